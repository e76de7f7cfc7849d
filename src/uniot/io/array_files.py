"""Read and write embeddings as .npz, .npy and .safetensors files; nothing in a file is ever executed."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from uniot.errors import DataError
from uniot.io.files import open_regular, parse_json
from uniot.io.text import listed

KEYS = {
    "x": ("x", "X", "embedding", "embeddings", "features"),
    "y": ("y", "label", "labels"),
    "ids": ("ids", "id", "path", "paths", "file", "files"),
}
"""Names under which a file may hold the embeddings, the labels and the sample names."""

# Letters of all labels together, padded to the longest; NumPy takes four bytes per letter, so this is one gigabyte.
_MAX_LETTERS = 1 << 28
# A larger array is rejected if it takes more than this many times its compressed size; a zip bomb takes a thousand.
_MAX_UNPACKED_BYTES, _MAX_COMPRESSION = 1 << 30, 100
# safetensors reads no header above 100 MB, and the sample names are stored in the header.
_HEADER_BYTES = 90_000_000


@dataclass(frozen=True)
class FileContent:
    """Content of an embedding file.

    Attributes:
        x: embeddings, (n_samples, n_features); None if they were not requested.
        y: labels, (n_samples,); None if the file has none.
        ids: sample names, (n_samples,); None if the file has none.
        columns: names of the columns of a table that hold the embeddings.
    """

    x: np.ndarray | None = None
    y: np.ndarray | None = None
    ids: list[str] | None = None
    columns: tuple[str, ...] = ()


def find_keys(names: Collection[str], with_x: bool) -> dict[str, str]:
    """Return which of `names` holds the embeddings ("x"), the labels ("y") and the sample names ("ids")."""
    found = {role: next((key for key in keys if key in names), None) for role, keys in KEYS.items()}
    return {role: key for role, key in found.items() if key is not None and (with_x or role != "x")}


def check_label_length(path: Path, n_rows: int, labels: Collection[Any]) -> None:
    """Raise a DataError if the labels do not fit in memory: NumPy pads each row to the longest label."""
    longest = max((len(label) for label in labels if isinstance(label, str)), default=0)
    if n_rows * longest > _MAX_LETTERS:
        raise DataError(
            f"{path} has a label of {longest} letters, and each of its {n_rows} rows would take that much memory. "
            "Shorten the label."
        )


def read_npz(path: Path, with_x: bool) -> FileContent:
    """Return the arrays `x`, `y` and `ids` of an .npz archive."""
    if _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is a single array. Save it as `numpy.savez(file, x=array)`.")
    if not _begins_with(path, b"PK"):
        raise DataError(f"{path} is not an .npz file. Make one with `numpy.savez(file, x=embeddings, y=labels)`.")
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            roles = find_keys(names, with_x)
            for key in roles.values():
                _check_unpacked_size(path, archive.zip, key)
            arrays = {role: archive[key] for role, key in roles.items()}
    except DataError:
        raise
    except Exception as error:  # zip, zlib, lzma and NumPy raise different errors for a damaged archive
        raise DataError(_unreadable(path, error)) from None
    if with_x and "x" not in arrays:
        raise DataError(
            f"{path} holds {listed(sorted(names)) or 'nothing'} and no array called x. "
            "Save embeddings with `numpy.savez(file, x=embeddings, y=labels)`."
        )
    y, ids = arrays.get("y"), arrays.get("ids")
    return FileContent(
        arrays.get("x"), None if y is None else np.atleast_1d(y), None if ids is None else _names(np.atleast_1d(ids))
    )


def read_npy(path: Path, with_x: bool) -> FileContent:
    """Return the embeddings of an .npy file as a memory map; without `with_x`, its one-dimensional array of labels."""
    if not _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is not an .npy file. Make one with `numpy.save(file, embeddings)`.")
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # as above
        raise DataError(_unreadable(path, error)) from None
    if with_x:
        return FileContent(x=values)
    return FileContent(y=np.array(values) if values.ndim == 1 else None)


def write_npz(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Write embeddings, labels and sample names to one .npz archive."""
    arrays: dict[str, Any] = {"x": x, "y": y, "ids": None if ids is None else np.array(ids, dtype=str)}
    # NumPy appends .npz to a path that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def write_npy(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Write the embeddings alone; the caller writes labels and names to a .csv beside them."""
    with path.open("wb") as file:
        np.save(file, x, allow_pickle=False)


def _names(values: np.ndarray) -> list[str]:
    texts = values.tolist()
    return [text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text) for text in texts]


def _begins_with(path: Path, signature: bytes) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(len(signature)) == signature
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give a file that you may read.") from None


def _check_unpacked_size(path: Path, archive: zipfile.ZipFile, key: str) -> None:
    """Raise a DataError if an array differs in size from its header, or if the archive may be a zip bomb."""
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
            f"{path} has {key} of {about.file_size} bytes, but its header announces {header_bytes + n_bytes}. "
            "The file is damaged; make it again."
        )
    if n_bytes > _MAX_UNPACKED_BYTES and n_bytes > _MAX_COMPRESSION * about.compress_size:
        raise DataError(
            f"{path} has {key} that unpacks from {about.compress_size} bytes to {n_bytes / 1e9:.3g} GB, which "
            "embeddings never do. If this is intended, save it with `numpy.savez`, which does not compress."
        )


def _unreadable(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return (
            f"{path} holds an object array, which only a pickle could load, and uniot never loads pickles. "
            "Save numbers and text: `numpy.savez(file, x=x.astype('float32'), y=y.astype(str))`."
        )
    if isinstance(error, MemoryError):
        return f"{path} needs more memory than is available ({error}). Give fewer samples, or save an .npy file."
    reason = str(error).partition("\n")[0][:200] or type(error).__name__
    return f"{path} cannot be read as a NumPy file ({reason}). It may be truncated; make it again."


def read_safetensors(path: Path, with_x: bool) -> FileContent:
    """Return the tensors `x` and `y` of a .safetensors file; class and sample names are JSON lists in its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            names = list(file.keys())
            tensors = {role: file.get_tensor(key) for role, key in find_keys(names, with_x).items()}
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a safetensors file ({error}). It may be truncated; make it again."
        ) from None
    if with_x and "x" not in tensors:
        raise DataError(
            f"{path} holds {listed(sorted(names)) or 'nothing'} and no tensor called x. "
            'Save embeddings with `safetensors.torch.save_file({"x": embeddings, "y": labels}, file)`.'
        )
    arrays = {role: _as_array(path, tensor) for role, tensor in tensors.items()}
    y = arrays.get("y")
    if y is not None and "classes" in about:
        y = _class_names(path, np.atleast_1d(y), _json_list(path, "classes", about["classes"]))
    ids = next((_json_list(path, key, about[key]) for key in KEYS["ids"] if key in about), None)
    return FileContent(
        arrays.get("x"), None if y is None else np.atleast_1d(y), None if ids is None else [str(name) for name in ids]
    )


def write_safetensors(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Write embeddings, labels and sample names to a .safetensors file.

    Text labels are written as class indices, with the class names in the metadata.
    """
    tensors, about = {"x": np.ascontiguousarray(x)}, {}
    if y is not None and y.dtype.kind == "U":
        classes, y = np.unique(y, return_inverse=True)
        about["classes"] = json.dumps(classes.tolist())
    if y is not None:
        tensors["y"] = y.astype(np.int64)
    if ids is not None:
        about["ids"] = json.dumps(list(ids))
    if sum(map(len, about.values())) > _HEADER_BYTES:
        raise DataError(
            "the names are too long for a .safetensors file, which stores them in its header. Write a .parquet file."
        )
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, about)
    except SafetensorError as error:  # raised for a full disk too
        raise OSError(str(error)) from error
    # safetensors replaces the file by one that only its owner may read.
    path.chmod(mode)


def _as_array(path: Path, tensor: Tensor) -> np.ndarray:
    # NumPy has no bfloat16 and no 8-bit floats; float32 represents them exactly.
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        try:
            tensor = tensor.float()
        except NotImplementedError:  # 4-bit numbers, which torch stores but cannot convert
            raise DataError(f"{path} holds numbers of type {tensor.dtype}. Save them as float32.") from None
    return np.asarray(tensor.numpy())


def _json_list(path: Path, key: str, text: str) -> list[Any]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise DataError(
            f"{path} has metadata {key!r} that is not JSON ({error}). Write it with `json.dumps`."
        ) from None
    if not isinstance(values, list) or not all(isinstance(value, (str, int)) for value in values):
        raise DataError(f"{path} has metadata {key!r} that is not a list of names. Write a JSON list of text.")
    return values


def _class_names(path: Path, y: np.ndarray, classes: list[Any]) -> np.ndarray:
    wrong = y[(y < 0) | (y >= len(classes))] if y.dtype.kind in "iu" else y
    if len(wrong):
        raise DataError(
            f"{path} holds the label {wrong[0]} and names {len(classes)} classes. "
            f"Give whole numbers from 0 to {len(classes) - 1} as y."
        )
    check_label_length(path, max(len(y), len(classes)), classes)
    return np.array(classes).take(y)
