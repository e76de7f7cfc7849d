"""Embeddings with labels and names, read from files and written to them; nothing in a file is ever executed.

A kind of file has one reader and, but for .csv, one writer; the tables of them are the list of what is supported.
"""

from __future__ import annotations

import csv
import json
import zipfile
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from uniot.data.arrays import as_inputs, as_labels
from uniot.errors import DataError

_KEYS = {
    "x": ("x", "X", "embedding", "embeddings", "features"),
    "y": ("y", "label", "labels"),
    "ids": ("ids", "id", "path", "paths", "file", "files"),
}
# Parquet in pieces of this size: a few dozen megabytes at the usual widths.
_READ_ROWS = 1 << 12
_WRITE_VALUES = 1 << 22
# safetensors reads no header above 100 MB, and the names live there.
_HEADER_BYTES = 90_000_000

Replacing = Callable[[Path], AbstractContextManager[Path]]


@dataclass(frozen=True)
class EmbeddingFile:
    """What a file holds: embeddings (n, d), labels (n,) and names of the samples (n,) where it has them."""

    x: np.ndarray
    y: np.ndarray | None
    ids: list[str] | None


@dataclass(frozen=True)
class _Parts:
    """What a reader found; `x` is left out where it was not asked for."""

    x: np.ndarray | None = None
    y: np.ndarray | None = None
    ids: list[str] | None = None


def read_embeddings(path: Path, table: Path | None = None) -> EmbeddingFile:
    """Reads embeddings, and labels and names where there are any.

    Args:
        path: a file of one of these kinds.
            .npz: arrays `x`, `y`, `ids`.
            .npy: the embeddings, left on disk until used; labels and names in a .csv of the same name beside it.
            .parquet: a list column `x` or, where there is none, every numeric column; columns `label` and `path`.
            .safetensors: tensors `x` and, of integers, `y`; metadata `classes` and `ids`, each a JSON list.
            .csv: a first line with names; columns `label` and `path`, and numbers in all others.
        table: a .csv with the columns path, label or both, in the order of the rows; goes before what `path` says.
    """
    parts = _read(path, with_x=True, table=table)
    x = parts.x
    if x is None or x.ndim == 0:
        raise DataError(f"{path} holds a single number. Give one row of numbers per sample.")
    for what, values in (("labels", parts.y), ("ids", parts.ids)):
        if values is not None and len(values) != len(x):
            raise DataError(f"{path} has {len(values)} {what} for {len(x)} rows of x. Give one per row, or none.")
    return EmbeddingFile(x, parts.y, parts.ids)


def read_labels(path: Path, ids: list[str]) -> np.ndarray:
    """One label per sample, in the order of `ids`.

    Args:
        path: any file that `read_embeddings` reads, with or without embeddings; an .npy of labels; or a text file
            with a label a line. Where it names its samples, the names decide, not the order.
        ids: names of the samples, as in predictions.csv.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist. Give a file with the true label of every target sample.")
    if path.suffix.lower() in _READERS:
        parts = _read(path, with_x=False)
    else:
        parts = _Parts(y=np.array(_text(path).splitlines(), dtype=str))
    if parts.y is None:
        raise DataError(f"{path} holds no labels. Save them as y, or as the column label where the file has columns.")
    if parts.ids is not None and len(parts.ids) != len(parts.y):
        raise DataError(f"{path} has {len(parts.ids)} ids for {len(parts.y)} labels. Give one per label, or none.")
    if parts.ids is None or parts.ids == ids or _only_numbered(ids, parts.ids):
        if len(parts.y) != len(ids):
            raise DataError(
                f"{path} has {len(parts.y)} labels for {len(ids)} target samples. Give one per sample, in order."
            )
        return parts.y
    return _labels_by_name(path, parts.y, parts.ids, ids)


def write_embeddings(
    path: Path,
    x: np.ndarray,
    y: np.ndarray | None = None,
    ids: Sequence[str] | None = None,
    *,
    replacing: Replacing,
) -> None:
    """Writes what `read_embeddings` reads back.

    An .npy has its labels and names in a .csv beside it, where whole numbers come back as text.

    Args:
        path: ends with .npz, .npy, .parquet or .safetensors, which decides the kind.
        x: embeddings, (n, d).
        y: labels, (n,), text or whole numbers.
        ids: names of the samples. What UTF-8 cannot hold of a name is written as `as_utf8` says.
        replacing: gives a temporary path for a final one, and renames; `uniot.run_folder.replacing`.
    """
    kind = path.suffix.lower()
    if kind not in _WRITERS:
        raise DataError(f"{path} ends with {kind!r}. Embeddings are written to {_listed(_WRITERS)} files.")
    x = as_inputs(x, "x")
    y = None if y is None else as_labels(y, "y")
    for what, values in (("labels", y), ("ids", ids)):
        if values is not None and len(values) != len(x):
            raise DataError(f"there are {len(values)} {what} for {len(x)} rows of x. Give one per row, or none.")
    beside = path.with_suffix(".csv") if kind == ".npy" else None
    has_table = y is not None or ids is not None
    if beside is not None and not has_table and beside.exists():
        raise DataError(
            f"{beside} would be read as the labels of {path}, and it is not of these embeddings. "
            "Remove it, or give another name."
        )
    with ExitStack() as files:
        _WRITERS[kind](files.enter_context(replacing(path)), x, y, ids)
        if beside is not None and has_table:
            _write_table(files.enter_context(replacing(beside)), y, ids)


def as_utf8(text: str) -> str:
    r"""Text that UTF-8 can hold; a byte of a file name that is no text is written out, for instance as `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def import_pyarrow() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`, which the plain install does without."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"Parquet files need pyarrow ({error}). Install it: pip install 'uniot[images]'") from None


def _read(path: Path, *, with_x: bool, table: Path | None = None) -> _Parts:
    kind = path.suffix.lower()
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give a file of embeddings: {_listed(_READERS)}.")
    if not path.is_file():
        raise DataError(f"{path} does not exist. Give a file of embeddings: {_listed(_READERS)}.")
    if kind not in _READERS:
        raise DataError(f"{path} ends with {kind!r}. Embeddings are read from {_listed(_READERS)} files.")
    parts = _READERS[kind](path, with_x)
    beside = path.with_suffix(".csv")
    if table is None and kind == ".npy" and parts.y is None and beside.is_file():
        table = beside
    if table is None:
        return parts
    named = _from_csv(table, with_x=False)
    return _Parts(parts.x, parts.y if named.y is None else named.y, parts.ids if named.ids is None else named.ids)


def _from_npz(path: Path, with_x: bool) -> _Parts:
    if _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is a single array. Save it as `numpy.savez(file, x=array)`.")
    if not _begins_with(path, b"PK"):
        raise DataError(f"{path} is not an .npz file. Make one with `numpy.savez(file, x=embeddings, y=labels)`.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            arrays = {role: archive[key] for role, key in _roles(names, with_x).items()}
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise DataError(_unreadable(path, error)) from None
    if with_x and "x" not in arrays:
        raise DataError(
            f"{path} holds {', '.join(sorted(names)) or 'nothing'} and no array called x. "
            "Save embeddings with `numpy.savez(file, x=embeddings, y=labels)`."
        )
    y, ids = arrays.get("y"), arrays.get("ids")
    return _Parts(
        arrays.get("x"), None if y is None else np.atleast_1d(y), None if ids is None else _names(np.atleast_1d(ids))
    )


def _from_npy(path: Path, with_x: bool) -> _Parts:
    if not _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is not an .npy file. Make one with `numpy.save(file, embeddings)`.")
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(_unreadable(path, error)) from None
    if with_x:
        return _Parts(x=values)
    return _Parts(y=np.array(values) if values.ndim == 1 else None)


def _from_parquet(path: Path, with_x: bool) -> _Parts:
    pyarrow, parquet = import_pyarrow()
    try:
        with path.open("rb") as file, parquet.ParquetFile(file) as table:
            return _parquet_parts(path, table, with_x)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a Parquet file ({error}). It may be cut off; make it again."
        ) from None


def _parquet_parts(path: Path, table: Any, with_x: bool) -> _Parts:
    names = table.schema_arrow.names
    if len(set(names)) < len(names):
        raise DataError(f"{path} has two columns of the same name among {_listed(names)}. Give each its own.")
    roles = _roles(names, with_x=False)
    columns, dtype = _vector_columns(path, table.schema_arrow, set(roles.values())) if with_x else ([], None)
    x: np.ndarray | None = None
    values: dict[str, list[Any]] = {role: [] for role in roles}
    start = 0
    for batch in table.iter_batches(batch_size=_READ_ROWS, columns=[*columns, *roles.values()]):
        if with_x:
            rows = _vectors(path, batch, columns, start)
            if x is None:
                x = np.empty((table.metadata.num_rows, rows.shape[1]), dtype)
            if rows.shape[1] != x.shape[1]:
                raise DataError(_uneven(path, start, rows.shape[1], x.shape[1]))
            x[start : start + len(rows)] = rows
        for role, key in roles.items():
            values[role] += batch.column(key).to_pylist()
        start += batch.num_rows
    if with_x and x is None:
        x = np.empty((0, len(columns)), dtype)
    return _Parts(x, _whole_labels(path, values.get("y")), _whole_names(path, values.get("ids")))


def _vector_columns(path: Path, schema: Any, others: Collection[str]) -> tuple[list[str], np.dtype[Any]]:
    """The column of vectors, or the numeric columns that make them up; and the type of their numbers."""
    types = import_module("pyarrow.types")

    def numeric(kind: Any) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind))

    def vector(kind: Any) -> bool:
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return is_list and numeric(kind.value_type)

    for name in _KEYS["x"]:
        if name in schema.names and vector(schema.field(name).type):
            return [name], np.dtype(schema.field(name).type.value_type.to_pandas_dtype())
    # pandas writes the index of its rows as a column, which is no part of an embedding.
    wide = [
        field
        for field in schema
        if numeric(field.type) and field.name not in others and not field.name.startswith("__index_level_")
    ]
    if not wide:
        raise DataError(
            f"{path} has the columns {_listed(schema.names)} and no embeddings among them. "
            "Give a list column called x, or a numeric column for each dimension."
        )
    return [field.name for field in wide], np.result_type(*(field.type.to_pandas_dtype() for field in wide))


def _vectors(path: Path, batch: Any, columns: Sequence[str], start: int) -> np.ndarray:
    """The embeddings of a batch, (rows, d); `start` is the number of its first row."""
    for name in columns:
        _check_filled(path, batch.column(name), start, 1)
    first = batch.column(columns[0])
    if import_module("pyarrow.types").is_primitive(first.type):
        return np.stack([batch.column(name).to_numpy(zero_copy_only=False) for name in columns], axis=1)
    lengths = import_module("pyarrow.compute").list_value_length(first).to_numpy(zero_copy_only=False)
    uneven = np.flatnonzero(lengths != lengths[0])
    if len(uneven):
        raise DataError(_uneven(path, start + int(uneven[0]), int(lengths[uneven[0]]), int(lengths[0])))
    values = first.flatten()
    _check_filled(path, values, start, int(lengths[0]))
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(first), int(lengths[0]))


def _check_filled(path: Path, values: Any, start: int, per_row: int) -> None:
    if values.null_count:
        row = start + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // per_row
        raise DataError(f"{path} has an empty cell in row {row}. Remove such rows or repair them first.")


def _from_safetensors(path: Path, with_x: bool) -> _Parts:
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            names = list(file.keys())
            tensors = {role: file.get_tensor(key) for role, key in _roles(names, with_x).items()}
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a safetensors file ({error}). It may be cut off; make it again."
        ) from None
    if with_x and "x" not in tensors:
        raise DataError(
            f"{path} holds {', '.join(sorted(names)) or 'nothing'} and no tensor called x. "
            'Save embeddings with `safetensors.torch.save_file({"x": embeddings, "y": labels}, file)`.'
        )
    arrays = {role: _as_array(tensor) for role, tensor in tensors.items()}
    y = arrays.get("y")
    if y is not None and "classes" in about:
        y = _class_names(path, np.atleast_1d(y), _json_list(path, "classes", about["classes"]))
    ids = next((_json_list(path, key, about[key]) for key in _KEYS["ids"] if key in about), None)
    return _Parts(
        arrays.get("x"), None if y is None else np.atleast_1d(y), None if ids is None else [str(name) for name in ids]
    )


def _as_array(tensor: Tensor) -> np.ndarray:
    # NumPy has no bfloat16 and no 8-bit floats; float32 holds each of them exactly.
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def _json_list(path: Path, key: str, text: str) -> list[Any]:
    try:
        values = json.loads(text)
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
    return np.array(classes).take(y)


def _from_csv(path: Path, with_x: bool) -> _Parts:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _csv_parts(path, csv.reader(file), with_x)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text with commas ({error}).") from None


def _csv_parts(path: Path, lines: Any, with_x: bool) -> _Parts:
    header: list[str] = next(lines, [])
    roles = {role: header.index(key) for role, key in _roles(header, with_x=False).items()}
    # pandas writes the index of its rows as a column without a name.
    numbers = [place for place, name in enumerate(header) if name and place not in roles.values()]
    if any(_is_fraction(name) for name in header) or not (numbers if with_x else roles):
        needed = "a column for each dimension" if with_x else "path, label or both"
        raise DataError(
            f"{path} has the columns {_listed(header) or '(none)'}; {needed} must be among them. "
            "The first line must name them."
        )
    cells: dict[str, list[str]] = {role: [] for role in roles}
    values = array("d")
    for row in lines:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(f"{path} has {len(row)} cells in line {lines.line_num} and {len(header)} columns.")
        for role, place in roles.items():
            cells[role].append(row[place])
        if with_x:
            try:
                values.extend([float(row[place]) for place in numbers])
            except ValueError as error:
                raise DataError(f"{path} has a cell in line {lines.line_num} that is no number ({error}).") from None
    x = np.array(values).reshape(-1, len(numbers)) if with_x else None
    return _Parts(x, _whole_labels(path, cells.get("y")), cells.get("ids"))


def _is_fraction(text: str) -> bool:
    """Whether text is a number but no count: such a thing names no column, and a count, with pandas, may."""
    try:
        float(text)
    except ValueError:
        return False
    return not text.isdigit()


def _whole_labels(path: Path, values: list[Any] | None) -> np.ndarray | None:
    """Labels as an array; none at all where every cell is empty."""
    if values is None:
        return None
    empty = [row for row, value in enumerate(values) if value is None or value == ""]
    if values and len(empty) == len(values):
        return None
    if empty:
        raise DataError(
            f"{path} has no label in {len(empty)} of {len(values)} rows, row {empty[0]} first. Label all rows or none."
        )
    return np.array(values)


def _whole_names(path: Path, values: list[Any] | None) -> list[str] | None:
    if values is not None and None in values:
        raise DataError(f"{path} has no name in row {values.index(None)}. Name all rows, or leave the column out.")
    return None if values is None else [str(value) for value in values]


def _labels_by_name(path: Path, labels: np.ndarray, names: list[str], ids: list[str]) -> np.ndarray:
    row_of: dict[str, int] = {}
    for row, name in enumerate(names):
        if labels[row_of.setdefault(name, row)] != labels[row]:
            raise DataError(f"{path} names {name!r} twice, with two labels. Give each sample a name of its own.")
    missing = [name for name in ids if name not in row_of]
    if missing:
        raise DataError(
            f"{path} has no label for {len(missing)} of {len(ids)} samples, {missing[0]!r} first. "
            "Use the paths of the run's predictions.csv."
        )
    return np.array(labels[[row_of[name] for name in ids]])


def _only_numbered(ids: list[str], names: list[str]) -> bool:
    """Whether a run had no names for its samples while the truth has: then only the order can tell."""
    return ids == [str(row) for row in range(len(ids))] and not set(ids) <= set(names)


def _write_npz(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    parts: dict[str, Any] = {"x": x, "y": y, "ids": None if ids is None else np.array(ids, dtype=str)}
    # NumPy adds .npz to a name that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez(file, **{name: part for name, part in parts.items() if part is not None})


def _write_npy(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    with path.open("wb") as file:
        np.save(file, x, allow_pickle=False)


def _write_table(path: Path, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    columns: dict[str, Iterable[Any]] = {}
    if ids is not None:
        columns["path"] = ids
    if y is not None:
        columns["label"] = y.tolist()
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_parquet(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    pyarrow, parquet = import_pyarrow()
    n_dims = x.shape[1]
    columns: dict[str, tuple[Any, Sequence[Any] | np.ndarray]] = {}
    if y is not None:
        columns["label"] = (pyarrow.string() if y.dtype.kind == "U" else pyarrow.int64(), y)
    if ids is not None:
        columns["path"] = (pyarrow.string(), ids)
    vectors = pyarrow.list_(pyarrow.from_numpy_dtype(x.dtype), n_dims)
    schema = pyarrow.schema([("x", vectors), *((name, kind) for name, (kind, _) in columns.items())])
    rows = max(1, _WRITE_VALUES // n_dims)
    # A dictionary of distinct values helps text and only swells embeddings.
    with path.open("wb") as file, parquet.ParquetWriter(file, schema, use_dictionary=list(columns)) as writer:
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            arrays = [pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x[part].reshape(-1)), n_dims)]
            for kind, values in columns.values():
                plain = [as_utf8(value) if isinstance(value, str) else int(value) for value in values[part]]
                arrays.append(pyarrow.array(plain, type=kind))
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _write_safetensors(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    tensors, about = {"x": np.ascontiguousarray(x)}, {}
    if y is not None and y.dtype.kind == "U":
        classes, y = np.unique(y, return_inverse=True)
        about["classes"] = json.dumps(classes.tolist())
    if y is not None:
        tensors["y"] = y.astype(np.int64)
    if ids is not None:
        about["ids"] = json.dumps(list(ids))
    if sum(map(len, about.values())) > _HEADER_BYTES:
        raise DataError("the names are too long for a .safetensors file, which keeps them in its header. Use .parquet.")
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, about)
    except SafetensorError as error:  # a full disk arrives as one
        raise OSError(str(error)) from error
    # safetensors puts a file of its own in the place, which nobody else may read.
    path.chmod(mode)


def _roles(names: Collection[str], with_x: bool) -> dict[str, str]:
    """Which of `names` holds what."""
    found = {role: next((key for key in keys if key in names), None) for role, keys in _KEYS.items()}
    return {role: key for role, key in found.items() if key is not None and (with_x or role != "x")}


def _names(values: np.ndarray) -> list[str]:
    texts = values.tolist()
    return [text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text) for text in texts]


def _listed(names: Collection[str]) -> str:
    names = list(names)
    return ", ".join(names if len(names) <= 12 else [*names[:12], f"… ({len(names)} in all)"])


def _uneven(path: Path, row: int, length: int, expected: int) -> str:
    return f"{path} has {length} numbers in row {row} and {expected} in the rows before. Give rows of equal length."


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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text ({error}).") from None


_READERS: dict[str, Callable[[Path, bool], _Parts]] = {
    ".npz": _from_npz,
    ".npy": _from_npy,
    ".parquet": _from_parquet,
    ".safetensors": _from_safetensors,
    ".csv": _from_csv,
}
_WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray | None, Sequence[str] | None], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".safetensors": _write_safetensors,
}
