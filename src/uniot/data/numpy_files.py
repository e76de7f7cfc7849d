"""Embeddings in NumPy's own files, .npz and .npy; never a pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniot.data.embedding_parts import Parts, roles_of
from uniot.errors import DataError


def read_npz(path: Path, with_x: bool) -> Parts:
    """Arrays `x`, `y` and `ids` of an archive."""
    if _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is a single array. Save it as `numpy.savez(file, x=array)`.")
    if not _begins_with(path, b"PK"):
        raise DataError(f"{path} is not an .npz file. Make one with `numpy.savez(file, x=embeddings, y=labels)`.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            arrays = {role: archive[key] for role, key in roles_of(names, with_x).items()}
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
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
    except (OSError, EOFError, ValueError) as error:
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
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give a file that is yours to read.") from None


def _unreadable(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return (
            f"{path} holds an object array, which only a pickle could load, and uniot never does. "
            "Save numbers and text: `numpy.savez(file, x=x.astype('float32'), y=y.astype(str))`."
        )
    return f"{path} cannot be read as a NumPy file ({error}). It may be cut off; make it again."
