"""Embeddings in Parquet files, read and written piece by piece; pyarrow is imported on first use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from uniot.data.embedding_parts import KEYS, Parts, roles_of, whole_labels, whole_names
from uniot.data.text import as_utf8
from uniot.errors import DataError
from uniot.untrusted import open_regular
from uniot.words import listed

# Pieces of this size are a few dozen megabytes at the usual widths.
_READ_ROWS = 1 << 12
_WRITE_VALUES = 1 << 22


def import_pyarrow() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`, which the plain install does without."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"Parquet files need pyarrow ({error}). Install it: pip install 'uniot[images]'") from None


def read_parquet(path: Path, with_x: bool) -> Parts:
    """A list column of vectors or a column for each dimension; labels and names in columns of their own."""
    pyarrow, parquet = import_pyarrow()
    try:
        with open_regular(path) as file, parquet.ParquetFile(file) as table:
            return _parquet_parts(path, table, with_x)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as a Parquet file ({error}). It may be cut off; make it again."
        ) from None


def _parquet_parts(path: Path, table: Any, with_x: bool) -> Parts:
    names = table.schema_arrow.names
    if len(set(names)) < len(names):
        raise DataError(f"{path} has two columns of the same name among {listed(names)}. Give each its own.")
    roles = roles_of(names, with_x=False)
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
    if start != table.metadata.num_rows:
        raise DataError(
            f"{path} promises {table.metadata.num_rows} rows and holds {start}. It is damaged; make it again."
        )
    if with_x and x is None:
        x = np.empty((0, len(columns)), dtype)
    return Parts(x, whole_labels(path, values.get("y")), whole_names(path, values.get("ids")))


def _vector_columns(path: Path, schema: Any, others: Collection[str]) -> tuple[list[str], np.dtype[Any]]:
    """The column of vectors, or the numeric columns that make them up; and the type of their numbers."""
    types = import_module("pyarrow.types")

    def numeric(kind: Any) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind))

    def vector(kind: Any) -> bool:
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return is_list and numeric(kind.value_type)

    for name in KEYS["x"]:
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
            f"{path} has the columns {listed(schema.names)} and no embeddings among them. "
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


def _uneven(path: Path, row: int, length: int, expected: int) -> str:
    return f"{path} has {length} numbers in row {row} and {expected} in the rows before. Give rows of equal length."


def write_parquet(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """A list column `x`, and the columns `label` and `path` where there are labels and names."""
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
