"""Read and write embeddings, labels and sample names as tables: .csv and .parquet files."""

from __future__ import annotations

import io
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import DataError, import_optional
from uniot.io.array_files import KEYS, FileContent, check_label_length, find_keys
from uniot.io.csv_tables import CsvError, CsvReader, CsvWriter
from uniot.io.files import open_regular
from uniot.io.text import as_utf8, listed

# Blocks of this size take a few dozen megabytes at the usual widths.
_READ_ROWS = 1 << 12
_WRITE_VALUES = 1 << 22
_EXTRA_AND_PURPOSE = ("images", "reading or writing Parquet files")


def read_csv(path: Path, with_x: bool) -> FileContent:
    """Return the columns `label` and `path` of a .csv and, as embeddings, the numbers of all other columns."""
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            return _csv_content(path, CsvReader(_without_nul(file)), with_x)
    except (OSError, UnicodeDecodeError, CsvError) as error:
        raise DataError(
            f"{path} cannot be read as comma-separated UTF-8 text ({error}). Save it as CSV in UTF-8, or give an "
            ".npz file."
        ) from None


def _csv_content(path: Path, lines: Any, with_x: bool) -> FileContent:
    header: list[str] = next(lines, [])
    roles = {role: header.index(key) for role, key in find_keys(header, with_x=False).items()}
    # pandas writes the index of its rows as a column without a name.
    numbers = [place for place, name in enumerate(header) if name and place not in roles.values()]
    if any(_is_fraction(name) for name in header) or not (numbers if with_x else roles):
        needed = "a column for each dimension" if with_x else "path, label or both"
        raise DataError(
            f"{path} has the columns {listed(header) or '(none)'}; {needed} must be among them. "
            "Give the names of the columns in the first line."
        )
    cells: dict[str, list[str]] = {role: [] for role in roles}
    values = array("d")
    for row in lines:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"{path} has {len(row)} cells in line {lines.line_num} and {len(header)} columns. "
                "Give one cell per column."
            )
        for role, place in roles.items():
            cells[role].append(row[place])
        if with_x:
            try:
                values.extend([float(row[place]) for place in numbers])
            except ValueError as error:
                raise DataError(
                    f"{path} has a cell in line {lines.line_num} that is not a number ({error}). "
                    "Give numbers in all columns but label and path."
                ) from None
    x = np.array(values).reshape(-1, len(numbers)) if with_x else None
    return FileContent(x, _checked_labels(path, cells.get("y")), cells.get("ids"), tuple(header[i] for i in numbers))


def _without_nul(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines; raise an error for a NUL byte, which NumPy would drop from the end of a name."""
    for line in lines:
        if "\0" in line:
            raise CsvError("it holds a NUL byte")
        yield line


def _is_fraction(text: str) -> bool:
    """Return whether a header cell is a decimal number, as in a file without a header; pandas numbers columns."""
    try:
        float(text)
    except ValueError:
        return False
    return not text.isdigit()


def _checked_labels(path: Path, values: list[Any] | None) -> np.ndarray | None:
    """Return labels as an array; None if all cells are empty."""
    if values is None:
        return None
    empty = [row for row, value in enumerate(values) if value is None or value == ""]
    if values and len(empty) == len(values):
        return None
    if empty:
        raise DataError(
            f"{path} has no label in {len(empty)} of {len(values)} rows, the first in row {empty[0]}. "
            "Label all rows or none."
        )
    check_label_length(path, len(values), values)
    return np.array(values)


def write_csv(path: Path, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Write sample names and labels to a .csv, for embeddings in an .npy file."""
    columns: dict[str, Iterable[Any]] = {}
    if ids is not None:
        columns["path"] = ids
    if y is not None:
        columns["label"] = y.tolist()
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = CsvWriter(file)
        writer.write([columns])
        writer.write(zip(*columns.values(), strict=True))


def import_pyarrow() -> tuple[Any, Any]:
    """Return the modules `pyarrow` and `pyarrow.parquet`."""
    return import_optional("pyarrow", *_EXTRA_AND_PURPOSE), import_optional("pyarrow.parquet", *_EXTRA_AND_PURPOSE)


def read_parquet(path: Path, with_x: bool) -> FileContent:
    """Return the vectors of a .parquet file (a list column, or a column for each dimension), its labels and names."""
    pyarrow, parquet = import_pyarrow()
    try:
        with open_regular(path) as file, parquet.ParquetFile(file) as table:
            return _parquet_content(path, table, with_x)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as a Parquet file ({error}). It may be truncated; make it again."
        ) from None


def _parquet_content(path: Path, table: Any, with_x: bool) -> FileContent:
    names = table.schema_arrow.names
    if len(set(names)) < len(names):
        raise DataError(f"{path} has two columns of the same name among {listed(names)}. Give each its own name.")
    roles = find_keys(names, with_x=False)
    columns, dtype = vector_columns(path, table.schema_arrow, set(roles.values())) if with_x else ([], None)
    x: np.ndarray | None = None
    values: dict[str, list[Any]] = {role: [] for role in roles}
    start = 0
    for batch in table.iter_batches(batch_size=_READ_ROWS, columns=[*columns, *roles.values()]):
        if with_x:
            rows = vectors(path, batch, columns, start)
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
            f"{path} announces {table.metadata.num_rows} rows and holds {start}. It is damaged; make it again."
        )
    if with_x and x is None:
        x = np.empty((0, len(columns)), dtype)
    ids = values.get("ids")
    if ids is not None and None in ids:
        raise DataError(f"{path} has no name in row {ids.index(None)}. Name all rows, or leave the column out.")
    ids = None if ids is None else [str(name) for name in ids]
    return FileContent(x, _checked_labels(path, values.get("y")), ids, tuple(columns))


def vector_columns(path: Path | str, schema: Any, others: Collection[str]) -> tuple[list[str], np.dtype[Any]]:
    """Return the column of vectors, or the numeric columns that make them up, and the type of their numbers."""
    types = import_optional("pyarrow.types", *_EXTRA_AND_PURPOSE)

    def numeric(kind: Any) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind))

    def vector(kind: Any) -> bool:
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return is_list and numeric(kind.value_type)

    for name in KEYS["x"]:
        if name in schema.names and vector(schema.field(name).type):
            return [name], np.dtype(schema.field(name).type.value_type.to_pandas_dtype())
    # pandas writes the index of its rows as a column, which is not part of an embedding.
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


def vectors(path: Path | str, batch: Any, columns: Sequence[str], start: int) -> np.ndarray:
    """Return the embeddings of a batch, (n_rows, n_features); `start` is the index of its first row in the file."""
    for name in columns:
        _check_no_nulls(path, batch.column(name), start, 1)
    first = batch.column(columns[0])
    if import_optional("pyarrow.types", *_EXTRA_AND_PURPOSE).is_primitive(first.type):
        return np.stack([batch.column(name).to_numpy(zero_copy_only=False) for name in columns], axis=1)
    compute = import_optional("pyarrow.compute", *_EXTRA_AND_PURPOSE)
    lengths = compute.list_value_length(first).to_numpy(zero_copy_only=False)
    uneven = np.flatnonzero(lengths != lengths[0])
    if len(uneven):
        raise DataError(_uneven(path, start + int(uneven[0]), int(lengths[uneven[0]]), int(lengths[0])))
    values = first.flatten()
    _check_no_nulls(path, values, start, int(lengths[0]))
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(first), int(lengths[0]))


def _check_no_nulls(path: Path | str, values: Any, start: int, per_row: int) -> None:
    if values.null_count:
        row = start + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // per_row
        raise DataError(f"{path} has an empty cell in row {row}. Remove or repair such rows first.")


def _uneven(path: Path | str, row: int, length: int, expected: int) -> str:
    return f"{path} has {length} numbers in row {row} and {expected} in the rows before. Give rows of equal length."


def write_parquet(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Write a list column `x` and, if given, the columns `label` and `path` to a .parquet file."""
    pyarrow, parquet = import_pyarrow()
    n_features = x.shape[1]
    columns: dict[str, tuple[Any, Sequence[Any] | np.ndarray]] = {}
    if y is not None:
        columns["label"] = (pyarrow.string() if y.dtype.kind == "U" else pyarrow.int64(), y)
    if ids is not None:
        columns["path"] = (pyarrow.string(), ids)
    vectors = pyarrow.list_(pyarrow.from_numpy_dtype(x.dtype), n_features)
    schema = pyarrow.schema([("x", vectors), *((name, kind) for name, (kind, _) in columns.items())])
    rows = max(1, _WRITE_VALUES // n_features)
    # Dictionary encoding compresses text, but would make embeddings larger.
    with path.open("wb") as file, parquet.ParquetWriter(file, schema, use_dictionary=list(columns)) as writer:
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            arrays = [pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x[part].reshape(-1)), n_features)]
            for kind, values in columns.values():
                plain = [as_utf8(value) if isinstance(value, str) else int(value) for value in values[part]]
                arrays.append(pyarrow.array(plain, type=kind))
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return columns of a .parquet file, or of any other file as CSV, by their names.

    Raises:
        ValueError: a column is missing, or a line is cut off.
    """
    return _parquet_columns(path, names) if path.suffix.lower() == ".parquet" else _csv_columns(path, names)


def _csv_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        lines = CsvReader(file)
        header = next(lines, [])
        _check_columns(header, names)
        places = [header.index(name) for name in names]
        columns: list[list[Any]] = [[] for _ in names]
        for row in filter(None, lines):
            if len(row) < len(header):
                raise ValueError(f"line {lines.line_num} is cut off")
            for column, place in zip(columns, places, strict=True):
                column.append(row[place])
    return dict(zip(names, columns, strict=True))


def _parquet_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    pyarrow, parquet = import_pyarrow()
    try:
        with open_regular(path) as file:
            table = parquet.read_table(file)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from None
    _check_columns(table.column_names, names)
    return {name: table.column(name).to_pylist() for name in names}


def _check_columns(found: Sequence[str], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"it has no column {missing[0]}")
