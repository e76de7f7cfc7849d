"""Read and write embeddings as .npz, .npy and .safetensors files; nothing in a file is ever executed."""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from uniot.errors import DataError
from uniot.io.columns import Columns
from uniot.io.files import open_regular, parse_json
from uniot.io.labels import as_labels
from uniot.io.text import listed

NAME_BYTES = 64
"""Memory of a sample name beside its letters: a text and the reference to it."""
LONGEST_TEXT = 10_000
"""Letters of a text that are read: more than an encoder reads and than a page shows."""

# Larger content is rejected if it takes more than this many times the size of its file; a zip bomb takes a thousand.
_MAX_UNPACKED_BYTES, _MAX_COMPRESSION = 1 << 29, 100
# NumPy pads each label to the longest; labels that would take more are rejected if most of it would be padding.
_MAX_LABEL_BYTES, _MAX_PADDING, _BYTES_PER_LETTER = 1 << 28, 8, 4
# NumPy itself reads no longer header, but only after it has taken the memory.
_MAX_HEADER_BYTES = 10_000
_SAVE_UNCOMPRESSED = "If this is intended, save it with `numpy.savez`, which does not compress."
# A JSON list is counted before it is parsed: lists of lists take twenty times their size.
_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{,]', re.DOTALL)
_MAX_CLASSES = 1_000_000
# safetensors reads no header above 100 MB, and the sample names are stored in the header.
_HEADER_BYTES = 90_000_000
_USUAL = Columns()


@dataclass(frozen=True)
class FileContent:
    """Content of an embedding file.

    Attributes:
        x: embeddings, (n_samples, n_features); None if they were not requested.
        y: labels, (n_samples,); None if the file has none.
        ids: sample names, (n_samples,); None if the file has none.
        columns: names of the columns of a table that hold the embeddings.
        shown: what a person sees of each sample, (n_samples,), cut to `LONGEST_TEXT`; None if no column was chosen.
        texts: texts to be embedded, (n_samples,), cut likewise; None if no column was chosen.
        left_out: columns of a table that are neither numbers nor any of these.
    """

    x: np.ndarray | None = None
    y: np.ndarray | None = None
    ids: list[str] | None = None
    columns: tuple[str, ...] = ()
    shown: list[str] | None = None
    texts: list[str] | None = None
    left_out: tuple[str, ...] = ()


def cut_text(value: object) -> str:
    """Return a cell as text of at most `LONGEST_TEXT` letters; an empty one is an empty text."""
    if value is None:
        return ""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


class Unpacked:
    """The memory that the content of a file or folder takes, counted before it is allocated.

    Attributes:
        where: the file or folder, for messages.
        packed: its size in bytes.
        advice: last sentence of the message, for somebody to whom such content is not hostile.
    """

    def __init__(self, where: Path | str, packed: int, advice: str) -> None:
        self.where, self.packed, self.advice = where, packed, advice
        self._n_bytes = 0

    def add(self, what: str, n_bytes: int) -> None:
        """Count `n_bytes` of memory for `what`.

        Raises:
            DataError: the content is larger than embeddings in a file of this size ever are, as in a zip bomb.
        """
        self._n_bytes += n_bytes
        if self._n_bytes > _MAX_UNPACKED_BYTES and self._n_bytes > _MAX_COMPRESSION * self.packed:
            raise DataError(
                f"{self.where} would unpack its {what} from {self.packed} bytes to {self._n_bytes / 1e9:.3g} GB, which "
                f"embeddings never do. {self.advice}"
            )


def label_bytes(where: Path | str, n_rows: int, longest: int, n_letters: int) -> int:
    """Return the memory in bytes of an array of labels; NumPy pads each row to the longest label.

    Args:
        where: the file or folder, for messages.
        n_rows: number of rows.
        longest: number of letters of the longest label.
        n_letters: number of letters of all rows together.

    Raises:
        DataError: one long label would make the array huge.
    """
    n_bytes = _BYTES_PER_LETTER * n_rows * longest
    if n_bytes > _MAX_LABEL_BYTES and n_bytes > _MAX_PADDING * _BYTES_PER_LETTER * n_letters:
        raise DataError(
            f"{where} has a label of {longest} letters, and each of its {n_rows} rows would take that much memory. "
            "Shorten the label."
        )
    return n_bytes


class LabelColumn:
    """Labels of a file as they are read, each distinct text once.

    Args:
        unpacked: counts the memory of the array.
    """

    def __init__(self, unpacked: Unpacked) -> None:
        self._unpacked = unpacked
        self._codes = array("q")
        self._code_of: dict[str, int] = {}
        self._n_letters = 0

    def expect(self, n_rows: int) -> None:
        """Count the memory of this number of rows before they are read."""
        self._unpacked.add("labels", self._codes.itemsize * n_rows)

    def append(self, label: str | None) -> None:
        """Add the label of the next row; an empty one is None or an empty text."""
        self._codes.append(self._code(label))
        self._n_letters += len(label or "")

    def extend(self, texts: Sequence[str | None], places: np.ndarray) -> None:
        """Add the labels of the next rows as indices into texts, (n_rows,)."""
        codes = np.array([self._code(text) for text in texts], dtype=np.int64)
        lengths = np.array([len(text or "") for text in texts], dtype=np.int64)
        self._codes.frombytes(codes.take(places).tobytes())
        self._n_letters += int(lengths.take(places).sum())

    def _code(self, label: str | None) -> int:
        return self._code_of.setdefault(label, len(self._code_of)) if label else -1

    def as_array(self) -> np.ndarray | None:
        """Return the labels, (n_rows,); None if all are empty.

        Raises:
            DataError: some are empty, or they take too much memory.
        """
        where = self._unpacked.where
        codes = np.frombuffer(self._codes, np.int64) if self._codes else np.empty(0, np.int64)
        if not check_complete_labels(where, codes < 0):
            return None
        if any("\0" in label for label in self._code_of):
            raise DataError(f"{where} has a label with a NUL byte, which NumPy would cut off. Remove it.")
        longest = max(map(len, self._code_of), default=1)
        self._unpacked.add("labels", label_bytes(where, len(codes), longest, self._n_letters))
        return np.array(list(self._code_of), dtype=str).take(codes)


def check_complete_labels(where: Path | str, is_empty: np.ndarray) -> bool:
    """Return whether there are labels: False if all cells are empty, (n_rows,).

    Raises:
        DataError: some are empty.
    """
    n_empty = int(is_empty.sum())
    if n_empty and n_empty < len(is_empty):
        raise DataError(
            f"{where} has no label in {n_empty} of {len(is_empty)} rows, the first in row {int(is_empty.argmax())}. "
            "Label all rows or none."
        )
    return not n_empty


def read_npz(path: Path, with_x: bool, columns: Columns = _USUAL) -> FileContent:
    """Return the arrays `x`, `y` and `ids` of an .npz archive, or those that were chosen."""
    if _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is a single array. Save it as `numpy.savez(file, x=array)`.")
    if not _begins_with(path, b"PK"):
        raise DataError(f"{path} is not an .npz file. Make one with `numpy.savez(file, x=embeddings, y=labels)`.")
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            roles = columns.roles(path, names, with_x=with_x)
            unpacked = Unpacked(path, os.fstat(file.fileno()).st_size, _SAVE_UNCOMPRESSED)
            for role, key in roles.items():
                n_values = _check_unpacked_size(path, archive.zip, key, unpacked)
                if role in ("ids", "show", "text"):
                    unpacked.add(key, NAME_BYTES * n_values)
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
        arrays.get("x"),
        None if y is None else np.atleast_1d(y),
        None if ids is None else _names(np.atleast_1d(ids)),
        shown=_texts(arrays.get("show")),
        texts=_texts(arrays.get("text")),
    )


def _texts(values: np.ndarray | None) -> list[str] | None:
    return None if values is None else [cut_text(value) for value in np.atleast_1d(values).tolist()]


def read_npy(path: Path, with_x: bool, columns: Columns = _USUAL) -> FileContent:
    """Return the embeddings of an .npy file as a memory map; without `with_x`, its one-dimensional array of labels."""
    if not _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is not an .npy file. Make one with `numpy.save(file, embeddings)`.")
    try:
        with open_regular(path) as file:
            _read_header(file)
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # as above
        raise DataError(_unreadable(path, error)) from None
    if with_x:
        return FileContent(x=values)
    return FileContent(y=values if values.ndim == 1 else None)


def write_npz(
    path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None, texts: Mapping[str, Sequence[str]]
) -> None:
    """Write embeddings, labels, sample names and columns of texts to one .npz archive."""
    arrays: dict[str, Any] = {"x": x, "y": y, "ids": None if ids is None else np.array(ids, dtype=str)}
    arrays |= {name: np.array(values, dtype=str) for name, values in texts.items()}
    # NumPy appends .npz to a path that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def write_npy(
    path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None, texts: Mapping[str, Sequence[str]]
) -> None:
    """Write the embeddings alone; the caller writes labels, names and texts to a .csv beside them."""
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


def _check_unpacked_size(path: Path, archive: zipfile.ZipFile, key: str, unpacked: Unpacked) -> int:
    """Return the number of values of an array.

    Raises:
        DataError: the array differs in size from its header, or the archive may be a zip bomb.
    """
    name = key if key in archive.namelist() else f"{key}.npy"
    about = archive.getinfo(name)
    with archive.open(about) as member:
        shape, dtype = _read_header(member)
        header_bytes = member.tell()
    n_bytes = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and header_bytes + n_bytes != about.file_size:
        raise DataError(
            f"{path} has {key} of {about.file_size} bytes, but its header announces {header_bytes + n_bytes}. "
            "The file is damaged; make it again."
        )
    unpacked.add(key, n_bytes)
    return math.prod(shape)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array in NumPy's format, from the beginning of its file.

    Raises:
        ValueError: there is no such header, or it is longer than any that NumPy writes.
    """
    version = np.lib.format.read_magic(file)
    length_bytes = 2 if version == (1, 0) else 4
    length = file.read(length_bytes)
    header_bytes = int.from_bytes(length, "little")
    if header_bytes > _MAX_HEADER_BYTES:
        raise ValueError(f"its header has {header_bytes} bytes; at most {_MAX_HEADER_BYTES} are read")
    header = io.BytesIO(length + file.read(header_bytes))
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(header)
    return shape, dtype


def not_enough_memory(where: Path | str, error: BaseException) -> str:
    """Return the message for a file that does not fit in memory."""
    reason = str(error).partition("\n")[0][:200]
    told = f" ({reason})" if reason else ""
    return (
        f"{where} needs more memory than is available{told}. Give fewer samples, or an .npy file, which is read from "
        "disk as needed."
    )


def _unreadable(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return (
            f"{path} holds an object array, which only a pickle could load, and uniot never loads pickles. "
            "Save numbers and text: `numpy.savez(file, x=x.astype('float32'), y=y.astype(str))`."
        )
    if isinstance(error, MemoryError):
        return not_enough_memory(path, error)
    reason = str(error).partition("\n")[0][:200] or type(error).__name__
    return f"{path} cannot be read as a NumPy file ({reason}). It may be truncated; make it again."


def read_safetensors(path: Path, with_x: bool, columns: Columns = _USUAL) -> FileContent:
    """Return the tensors `x` and `y` of a .safetensors file, or those that were chosen.

    Class names, sample names and texts are JSON lists in its metadata.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            names = list(file.keys())
            roles = columns.roles(path, [*names, *about], with_x=with_x)
            tensors = {role: file.get_tensor(key) for role, key in roles.items() if key in names}
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
        y = np.atleast_1d(y)
        y = _class_names(path, y, _json_list(path, "classes", about["classes"], len(y)))
    n_rows = max((len(np.atleast_1d(array)) for array in arrays.values()), default=0)
    lists = {role: _json_list(path, key, about[key], n_rows) for role, key in roles.items() if key in about}
    ids = lists.get("ids")
    if y is None and "y" in lists:
        y = as_labels(lists["y"], f"{roles['y']} of {path}")
    return FileContent(
        arrays.get("x"),
        None if y is None else np.atleast_1d(y),
        None if ids is None else [str(name) for name in ids],
        shown=None if "show" not in lists else [cut_text(text) for text in lists["show"]],
        texts=None if "text" not in lists else [cut_text(text) for text in lists["text"]],
    )


def write_safetensors(
    path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None, texts: Mapping[str, Sequence[str]]
) -> None:
    """Write embeddings, labels, sample names and columns of texts to a .safetensors file.

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
    about |= {name: json.dumps(list(values)) for name, values in texts.items()}
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


def _json_list(path: Path, key: str, text: str, n_rows: int) -> list[Any]:
    """Return a list of names from the metadata of a file with this number of rows."""
    nested, count = 0, 1
    for found in _JSON_TOKEN.finditer(text):
        nested += found[0] in "[{"
        count += found[0] == ","
        if nested > 1:
            raise DataError(f"{path} has metadata {key!r} that is not a list of names. Write a JSON list of text.")
        if count > max(n_rows, _MAX_CLASSES):
            raise DataError(
                f"{path} has metadata {key!r} of more than {count - 1} names for {n_rows} rows. Give one per row."
            )
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
    lengths = np.array([len(name) if isinstance(name, str) else 1 for name in classes], dtype=np.int64)
    longest, n_letters = int(lengths.max(initial=1)), int(lengths.sum() + lengths.take(y).sum())
    unpacked = Unpacked(path, path.stat().st_size, "Shorten the names of the classes.")
    unpacked.add("labels", label_bytes(path, len(y) + len(classes), longest, n_letters))
    return np.array(classes).take(y)
