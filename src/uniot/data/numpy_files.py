"""Embeddings in NumPy's own files, .npz and .npy; never a pickle."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniot.data.embedding_parts import Parts, roles_of
from uniot.errors import DataError
from uniot.untrusted import open_regular

# An array of more bytes is not unpacked if it takes so many times the bytes of the file; a zip bomb takes a thousand.
_MOST_UNPACKED, _MOST_RATIO = 1 << 30, 100


def read_npz(path: Path, with_x: bool) -> Parts:
    """Arrays `x`, `y` and `ids` of an archive."""
    if _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is a single array. Save it as `numpy.savez(file, x=array)`.")
    if not _begins_with(path, b"PK"):
        raise DataError(f"{path} is not an .npz file. Make one with `numpy.savez(file, x=embeddings, y=labels)`.")
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            roles = roles_of(names, with_x)
            for key in roles.values():
                _check_unpacked_size(path, archive.zip, key)
            arrays = {role: archive[key] for role, key in roles.items()}
    except DataError:
        raise
    except Exception as error:  # zip, zlib, lzma and NumPy each have their own for a damaged archive
        raise DataError(_unreadable(path, error)) from None
    if with_x and "x" not in arrays:
        raise DataError(
            f"{path} holds {', '.join(sorted(names)) or 'nothing'} and no array called x. "
            "Save embeddings with `numpy.savez(file, x=embeddings, y=labels)`."
        )
    y, ids = arrays.get("y"), arrays.get("ids")
    return Parts(
        arrays.get("x"), None if y is None else np.atleast_1d(y), None if ids is None else _names(np.atleast_1d(ids))
    )


def read_npy(path: Path, with_x: bool) -> Parts:
    """An array of embeddings, left on disk until used; or, where they are not asked for, of labels."""
    if not _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is not an .npy file. Make one with `numpy.save(file, embeddings)`.")
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # as above
        raise DataError(_unreadable(path, error)) from None
    if with_x:
        return Parts(x=values)
    return Parts(y=np.array(values) if values.ndim == 1 else None)


def write_npz(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Everything in one archive."""
    parts: dict[str, Any] = {"x": x, "y": y, "ids": None if ids is None else np.array(ids, dtype=str)}
    # NumPy adds .npz to a name that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez(file, **{name: part for name, part in parts.items() if part is not None})


def write_npy(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """The embeddings alone; what else there is goes into a table beside them."""
    with path.open("wb") as file:
        np.save(file, x, allow_pickle=False)


def _names(values: np.ndarray) -> list[str]:
    texts = values.tolist()
    return [text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text) for text in texts]


def _begins_with(path: Path, mark: bytes) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(len(mark)) == mark
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give a file that is yours to read.") from None


def _check_unpacked_size(path: Path, archive: zipfile.ZipFile, key: str) -> None:
    """Refuse an array whose header promises other than the archive holds, and one that a small file unfolds to."""
    name = key if key in archive.namelist() else f"{key}.npy"
    about = archive.getinfo(name)
    with archive.open(about) as member:
        version = np.lib.format.read_magic(member)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(member)
        header_bytes = member.tell()
    n_bytes = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and header_bytes + n_bytes != about.file_size:
        raise DataError(
            f"{path} has {key} of {about.file_size} bytes, and its header promises {header_bytes + n_bytes}. "
            "It is damaged; make it again."
        )
    if n_bytes > _MOST_UNPACKED and n_bytes > _MOST_RATIO * about.compress_size:
        raise DataError(
            f"{path} has {key} that {about.compress_size} bytes unfold to {n_bytes}, {n_bytes / 1e9:.3g} GB, which "
            "embeddings never do. If it is meant so, save it with `numpy.savez`, which does not compress."
        )


def _unreadable(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return (
            f"{path} holds an object array, which only a pickle could load, and uniot never does. "
            "Save numbers and text: `numpy.savez(file, x=x.astype('float32'), y=y.astype(str))`."
        )
    if isinstance(error, MemoryError):
        return f"{path} takes more memory than there is ({error}). Give fewer samples, or save an .npy file."
    said = str(error).partition("\n")[0][:200] or type(error).__name__
    return f"{path} cannot be read as a NumPy file ({said}). It may be cut off; make it again."
