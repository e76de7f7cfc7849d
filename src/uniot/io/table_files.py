"""Read and write embeddings, labels and sample names as tables: .csv and .parquet files.

A table may come from anybody, so that no number in it is believed before memory is taken: the rows of a .csv are
bounded, and the columns of a .parquet file are read in batches whose size follows from the headers of its pages.
"""

from __future__ import annotations

import io
import math
import os
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from uniot.errors import DataError, UniotError, import_optional
from uniot.io.array_files import (
    FileContent,
    LabelColumn,
    Unpacked,
    check_complete_labels,
    cut_text,
    not_enough_memory,
)
from uniot.io.columns import KEYS, Columns
from uniot.io.csv_tables import CsvError, CsvReader, CsvWriter
from uniot.io.files import open_regular
from uniot.io.parquet_pages import Pages, column_pages
from uniot.io.text import as_utf8, listed

MOST_BYTES_IN_MEMORY = 1 << 30
"""Embeddings of more bytes are kept in a temporary file on disk, which is mapped, not in memory."""

WRITE_PLAIN = (
    "If this is intended, write it with `pyarrow.parquet.write_table(table, file, use_dictionary=False, "
    "compression='none')`, which does not compress."
)
"""Advice for files that take too much memory when they are unpacked."""

# Blocks of this size take a few dozen megabytes at the usual widths; the number of bytes limits them at any width.
_READ_ROWS, _READ_BYTES = 1 << 12, 1 << 26
_WRITE_VALUES = 1 << 22
_EXTRA_AND_PURPOSE = ("images", "reading or writing Parquet files")
# In memory, the metadata of a Parquet file may take sixty times its size in the file.
_MAX_FOOTER_BYTES = 1 << 23
_MAX_COLUMN_NAME = 1000
# Most writers make pages and dictionaries of a megabyte, DuckDB pages of up to 100. Arrow's index of a dictionary takes
# several times its size.
_MAX_PAGE_BYTES, _MAX_DICTIONARY_BYTES = 1 << 27, 1 << 25
# A single list may have all values of its row group, and Arrow reads whole rows: of larger row groups the file must be
# large as well.
_MAX_LIST_BYTES, _MAX_LIST_COMPRESSION = 1 << 28, 10
_REFERENCE_BYTES = 8
_MIN_BUFFER_BYTES = 1 << 16
_OUT_OF_MEMORY = ("alloc", "out of memory", "cannot allocate", "worker thread")
_SAVE_AS_NPZ = "Save it as an .npz file."
_LINE_BYTES = 1 << 20
_MISSING = frozenset({"", "-", "?", "na", "n/a", "#n/a", "<na>", "null", "none", "missing"})
_USUAL = Columns()


def read_csv(path: Path, with_x: bool, columns: Columns = _USUAL) -> FileContent:
    """Return labels, names and texts of a .csv or .tsv file and, as embeddings, the numbers of all other columns.

    In place of the numbers, one of the usual columns of embeddings may have a list of numbers per cell, such as
    `[0.1, 0.2]`, as pandas writes it.

    Args:
        path: the file.
        with_x: whether to read the embeddings.
        columns: those that were chosen.
    """
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            return _csv_content(path, CsvReader(file, delimiter=delimiter_of(path), with_nul=False), with_x, columns)
    except (OSError, UnicodeDecodeError, CsvError) as error:
        raise DataError(unreadable_csv(path, error)) from None


def delimiter_of(path: Path) -> str:
    """Return what separates the cells of a table: tabs in a .tsv file, commas in all others."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def unreadable_csv(path: Path, error: Exception) -> str:
    """Return the message for a table that cannot be read as text."""
    called = "tab-separated" if delimiter_of(path) == "\t" else "comma-separated"
    reason = _why_not_utf8(path) if isinstance(error, UnicodeDecodeError) else str(error)
    return (
        f"{path} cannot be read as {called} UTF-8 text ({reason}). Save it as {path.suffix.lower()[1:].upper()} in "
        "UTF-8, or give an .npz file."
    )


def _why_not_utf8(path: Path) -> str:
    """Return which line of a text file is not UTF-8, and which encoding it may have."""
    with open_regular(path) as file:
        number = 0
        while line := file.readline(_LINE_BYTES):
            if number == 0 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                return "it is UTF-16"
            number += 1
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data" or len(line) < _LINE_BYTES:
                    return f"line {number} has the byte 0x{line[error.start]:02x}, as in Windows-1252 or Latin-1"
    return "it is not UTF-8"


def _csv_content(path: Path, lines: CsvReader, with_x: bool, columns: Columns) -> FileContent:
    header: list[str] = next(lines, [])
    _check_header(path, header)
    roles = {role: header.index(key) for role, key in columns.roles(path, header).items()}
    lists = next((header.index(name) for name in KEYS["x"] if name in header), None)
    others = columns.are_no_features(header)
    # pandas writes the index of its rows as a column without a name.
    numbers = [place for place, name in enumerate(header) if name and name not in others]
    if any(_is_fraction(name) for name in header) or not (numbers if with_x else roles):
        needed = "a column for each dimension" if with_x else "path, label or both"
        raise DataError(
            f"{path} has the columns {listed(header) or '(none)'}; {needed} must be among them. "
            "Give the names of the columns in the first line."
        )
    labels = LabelColumn(Unpacked(path, path.stat().st_size, _SAVE_AS_NPZ))
    kept: dict[str, list[str]] = {role: [] for role in ("ids", "show", "text") if role in roles}
    values, n_rows, width = array("d"), 0, len(numbers)
    left_out: list[int] = []
    for row in lines:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"{path} has {len(row)} cells in line {lines.line_num} and {len(header)} columns. "
                "Give one cell per column."
            )
        if "y" in roles:
            labels.append(row[roles["y"]])
        for role, cells in kept.items():
            cell = row[roles[role]]
            cells.append(cell if role == "ids" else cut_text(cell))
        if with_x:
            if not n_rows:
                if lists is not None and row[lists].lstrip()[:1] == "[":
                    width, left_out = row[lists].count(",") + 1, [place for place in numbers if place != lists]
                else:
                    lists, left_out = None, [place for place in numbers if _is_text(row[place])]
                    numbers = [place for place in numbers if place not in set(left_out)]
                    width = len(numbers)
                if lists is None and not numbers:
                    raise DataError(
                        f"{path} has no column of numbers among {listed(header)}. Give a column for each dimension of "
                        "the embeddings; for texts, name their column with --text."
                    )
            try:
                if lists is None:
                    values.extend([float(row[place]) for place in numbers])
                else:
                    values.extend(_list_of_numbers(row[lists], width))
            except ValueError as error:
                raise DataError(_not_a_number(path, header, row, numbers, lines.line_num, lists, error)) from None
        n_rows += 1
    return FileContent(
        # Not copied: a copy would take as much memory again.
        np.frombuffer(values or b"", np.float64).reshape(-1, width) if with_x else None,
        labels.as_array() if "y" in roles else None,
        kept.get("ids"),
        tuple(header[place] for place in ((lists,) if lists is not None else numbers)),
        kept.get("show"),
        kept.get("text"),
        tuple(header[place] for place in left_out),
    )


def _is_text(cell: str) -> bool:
    """Return whether a cell is a text, and no number or missing value."""
    return not is_number(cell) and cell.strip().lower() not in _MISSING


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Raise DataError if the first line is separated by another character, or names two columns the same."""
    if len(header) == 1:
        other = next((mark for mark in (";", "\t", ",", "|") if mark in header[0]), None)
        if other is not None:
            called = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}[other]
            wanted = "tabs" if delimiter_of(path) == "\t" else "commas"
            raise DataError(
                f"{path} is separated by {called}, and a {path.suffix.lower()} file is read with {wanted}. Save it "
                f"with {wanted}" + (", or call it .tsv." if other == "\t" else " and with decimal points.")
            )
    twice = [name for name, count in Counter(filter(None, header)).items() if count > 1]
    if twice:
        raise DataError(f"{path} has two columns of the same name: {listed(twice)}. Give each its own name.")


def _list_of_numbers(cell: str, width: int) -> list[float]:
    """Return the numbers of a cell such as `[0.1, 0.2]`; raise ValueError if there are not `width` of them."""
    inner = cell.strip()
    if inner[:1] != "[" or inner[-1:] != "]":
        raise ValueError(f"{cell[:40]!r} is not a list of numbers")
    numbers = [float(part) for part in inner[1:-1].split(",")]
    if len(numbers) != width:
        raise ValueError(f"{len(numbers)} numbers, and {width} in the rows before")
    return numbers


def _not_a_number(
    path: Path,
    header: Sequence[str],
    row: Sequence[str],
    numbers: Sequence[int],
    line: int,
    lists: int | None,
    error: ValueError,
) -> str:
    """Return the message for a cell that is not a number."""
    if lists is not None:
        return f"{path} has no list of numbers in line {line}, column {header[lists]} ({str(error)[:100]}). Repair it."
    place = next(place for place in numbers if not is_number(row[place]))
    cell = "is empty" if not row[place].strip() else f"has {row[place][:40]!r}, which is not a number,"
    return (
        f"{path} {cell} in line {line}, column {header[place][:80]!r}. Give numbers in all columns but those of "
        "labels, names and what is shown (--label, --ids, --show), or leave the column out."
    )


def is_number(text: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_fraction(text: str) -> bool:
    """Return whether a header cell is a decimal number, as in a file without a header; pandas numbers columns."""
    return is_number(text) and not text.isdigit() and text.strip().lower() not in ("nan", "inf", "infinity")


def write_csv(path: Path, y: np.ndarray | None, ids: Sequence[str] | None, texts: Mapping[str, Sequence[str]]) -> None:
    """Write sample names, labels and columns of texts to a .csv, for embeddings in an .npy file."""
    columns: dict[str, Iterable[Any]] = {}
    if ids is not None:
        columns["path"] = ids
    if y is not None:
        columns["label"] = y.tolist()
    columns |= texts
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = CsvWriter(file)
        writer.write([columns])
        writer.write(zip(*columns.values(), strict=True))


def import_pyarrow() -> tuple[Any, Any]:
    """Return the modules `pyarrow` and `pyarrow.parquet`."""
    return import_optional("pyarrow", *_EXTRA_AND_PURPOSE), import_optional("pyarrow.parquet", *_EXTRA_AND_PURPOSE)


def read_parquet(path: Path, with_x: bool, columns: Columns = _USUAL, into: np.ndarray | None = None) -> FileContent:
    """Return the vectors of a .parquet file (a list column, or a column for each dimension), its labels and names.

    Args:
        path: the file.
        with_x: whether to read the vectors.
        columns: those that were chosen.
        into: array that they are written to, (n_rows, n_features); a new one if None.

    Raises:
        DataError: the file cannot be read, would take more memory than embeddings ever do, or does not fit `into`.
    """
    with opened_parquet(path, columns) as table:
        roles = columns.roles(path, table.names)
        x = None
        if with_x:
            found = table.vectors
            table.unpacked.add("x", found.n_bytes)
            x = allocate(found.shape, found.dtype) if into is None else into
            if x.shape != found.shape or x.dtype != found.dtype:
                raise DataError(
                    f"{path} had {len(x)} rows of {x.shape[1]} {x.dtype} numbers and has {found.shape[0]} of "
                    f"{found.shape[1]} {found.dtype} numbers now. Wait until it is written."
                )
            table.read_vectors(x)
        return FileContent(
            x,
            table.labels(roles["y"]) if "y" in roles else None,
            table.sample_names(roles["ids"]) if "ids" in roles else None,
            tuple(table.vectors.columns) if with_x else (),
            table.texts(roles["show"]) if "show" in roles else None,
            table.texts(roles["text"]) if "text" in roles else None,
            tuple(table.left_out(roles.values())) if with_x else (),
        )


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array for embeddings: in memory, or in a file that has no name and ends with the array."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes <= MOST_BYTES_IN_MEMORY:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile() as file:
            # Otherwise a full disk would kill the process, without a message, when the mapping is written to.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            else:
                file.truncate(n_bytes)
            # The mapping keeps the file alive after its handle is closed.
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise DataError(
            f"{n_bytes / 1e9:.1f} GB of embeddings cannot be kept in {tempfile.gettempdir()} ({error.strerror}). Set "
            "the environment variable TMPDIR to a folder on a disk with that much space."
        ) from None


def take_columns(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return columns of embeddings, (n_rows, n_columns), block by block: they may be larger than the memory."""
    taken = allocate((len(x), len(places)), x.dtype)
    rows = max(1, _WRITE_VALUES // max(1, x.shape[1]))
    for start in range(0, len(x), rows):
        taken[start : start + rows] = x[start : start + rows][:, places]
    return taken


@contextmanager
def opened_parquet(path: Path, columns: Columns = _USUAL) -> Iterator[ParquetTable]:
    """Open a Parquet file for the block, in which everything that is wrong with it is a DataError."""
    pyarrow, _ = import_pyarrow()
    try:
        with open_regular(path) as file:
            yield ParquetTable(file, path, columns=columns)
    except UniotError:
        raise
    except MemoryError as error:  # of Python, NumPy or Arrow
        raise DataError(not_enough_memory(path, error)) from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(unreadable_parquet(path, error)) from None


def unreadable_parquet(where: Path | str, error: Exception) -> str:
    """Return the message for a Parquet file that cannot be read."""
    reason = str(error).partition("\n")[0][:200]
    # While it decodes, Arrow reports a lack of memory as an OSError.
    if any(word in reason.lower() for word in _OUT_OF_MEMORY):
        return not_enough_memory(where, error)
    return f"{where} cannot be read as a Parquet file ({reason}). It may be truncated; make it again."


@dataclass(frozen=True)
class Vectors:
    """The embeddings of a Parquet file.

    Attributes:
        columns: the list column, or a column for each dimension.
        shape: (n_rows, n_features).
        dtype: type of the numbers.
    """

    columns: list[str]
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def n_bytes(self) -> int:
        """Return the size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


# Numbers of row groups, with their numbers of rows.
_Groups = Sequence[tuple[int, int]]


class ParquetTable:
    """An open Parquet file whose columns are read in bounded memory, whatever it contains.

    Args:
        file: the file.
        where: its name, for messages.
        headers: the same file, for the headers of its pages, if they are to be read from another handle.
        buffer_bytes: memory for reading all columns of numbers or text; each has at least 64 kB.
        columns: those that were chosen.

    Attributes:
        names: names of the columns.
        n_rows: number of rows.
        group_rows: number of rows of each row group.
        unpacked: counts the memory of what is read.
    """

    def __init__(
        self,
        file: BinaryIO,
        where: Path | str,
        headers: BinaryIO | None = None,
        buffer_bytes: int = 0,
        columns: Columns = _USUAL,
    ) -> None:
        self._types = import_optional("pyarrow.types", *_EXTRA_AND_PURPOSE)
        self._file, self._where, self._headers = file, where, file if headers is None else headers
        self._buffer_bytes, self._chosen = _MIN_BUFFER_BYTES, columns
        self.unpacked = Unpacked(where, _checked_size(file, where), WRITE_PLAIN)
        self._table = self._opened()
        self._about = self._table.metadata
        if buffer_bytes:
            self._buffer_bytes = max(_MIN_BUFFER_BYTES, buffer_bytes // max(1, self._about.num_columns))
            self._table = self._opened(metadata=self._about)
        self._schema = self._table.schema_arrow
        self.names: list[str] = self._schema.names
        longest = max(map(len, self.names), default=0)
        if longest > _MAX_COLUMN_NAME:
            raise DataError(
                f"{where} has a column name of {longest} letters; at most {_MAX_COLUMN_NAME} are read. Shorten it."
            )
        if len(set(self.names)) < len(self.names):
            raise DataError(
                f"{where} has two columns of the same name among {listed(self.names)}. Give each its own name."
            )
        self.n_rows = int(self._about.num_rows)
        self.group_rows = [int(self._about.row_group(number).num_rows) for number in range(self._about.num_row_groups)]
        if sum(self.group_rows) != self.n_rows or min(self.group_rows, default=0) < 0:
            raise DataError(_other_rows(where, self.n_rows, sum(self.group_rows)))
        # A row group without rows may have no pages.
        self._groups = [(number, size) for number, size in enumerate(self.group_rows) if size]
        self._dictionary_of: str | None = None

    @cached_property
    def vector_columns(self) -> tuple[list[str], np.dtype[Any]]:
        """Return the list column of the embeddings, or a column for each dimension, and the type of the numbers."""
        others = self._chosen.are_no_features(self.names)
        return vector_columns(self._where, self._schema, others)

    @cached_property
    def vectors(self) -> Vectors:
        """Return a description of the embeddings; a list column has as many features as its first list."""
        columns, dtype = self.vector_columns
        width = len(columns)
        if self._is_nested(columns[0]):
            width = self._first_list(self._groups[0][0], columns[0], dtype).shape[1] if self._groups else 0
        return Vectors(columns, (self.n_rows, width), dtype)

    def read_vectors(self, x: np.ndarray) -> None:
        """Read the embeddings into an array of the shape and type of `vectors`.

        Raises:
            DataError: rows differ in length, a cell is empty, or the file would take too much memory.
        """
        columns, start = self.vectors.columns, 0
        is_list = self._is_nested(columns[0])
        for group, n_rows in self._groups:
            rows = x[start : start + n_rows]
            if is_list:
                self._check_list(group, columns[0], x.dtype)
                self._read_rows(group, columns, start, rows)
            else:
                for first, end in self._together(group, columns):
                    self._read_rows(group, columns[first:end], start, rows[:, first:end])
            start += n_rows

    def check_announced(self) -> None:
        """Raise DataError if the metadata announces more embeddings than a file of this size ever has.

        Only the metadata is read, which may be wrong: `read_vectors` and `blocks` rely on the pages.
        """
        columns, dtype = self.vector_columns
        begins = tuple(f"{name}." for name in columns) if self._is_nested(columns[0]) else ()
        leaves = {number for name in columns for number in self._leaves.get(name, ())}
        leaves |= {number for path, found in self._leaves.items() if path.startswith(begins) for number in found}
        n_values = sum(
            max(0, int(self._about.row_group(group).column(leaf).num_values))
            for group, _ in self._groups
            for leaf in leaves
        )
        self.unpacked.add("x", n_values * dtype.itemsize)

    def blocks(self, groups: Iterable[int]) -> Iterator[tuple[np.ndarray, list[str] | None]]:
        """Yield the embeddings of some row groups in bounded memory.

        Yields:
            Embeddings, (n_rows, n_features), and the names of their samples, None if the file has none. Row groups may
            differ in the number of features.

        Raises:
            DataError: as `read_vectors` and `sample_names`.
        """
        name = self._chosen.roles(self._where, self.names).get("ids")
        start = 0
        for group in groups:
            n_rows = self.group_rows[group]
            names = None if name is None else self._names_of(name, [(group, n_rows)], start)
            done = 0
            for rows in self._group_blocks(group, n_rows, start):
                yield rows, names and names[done : done + len(rows)]
                done += len(rows)
            start += n_rows

    def labels(self, name: str) -> np.ndarray | None:
        """Return a column of labels, (n_rows,); None if all of its cells are empty.

        Raises:
            DataError: the column has other types than text and numbers, or empty cells among others; or it would take
                too much memory.
        """
        kind = self._schema.field(name).type
        if self._types.is_null(kind):
            return None
        if self._is_number(kind):
            return self._numeric_labels(name)
        text = kind.value_type if self._types.is_dictionary(kind) else kind
        if not self._is_text(text):
            raise DataError(
                f"{self._where} has labels of type {str(kind)[:100]} in the column {name}. Give text or whole numbers."
            )
        labels = LabelColumn(self.unpacked)
        labels.expect(self.n_rows)
        for values, places in self._values(name, self._groups):
            labels.extend([_as_text(value) for value in values], places)
        return labels.as_array()

    def sample_names(self, name: str) -> list[str]:
        """Return a column of sample names, (n_rows,).

        Raises:
            DataError: a cell is empty, or they would take too much memory.
        """
        return self._names_of(name, self._groups)

    def left_out(self, used: Collection[str]) -> list[str]:
        """Return the columns that are neither embeddings nor among those that are used."""
        others = {*self.vector_columns[0], *used}
        return [name for name in self.names if name not in others and not name.startswith("__index_level_")]

    def texts(self, name: str) -> list[str]:
        """Return a column of texts, (n_rows,), each cut to `LONGEST_TEXT`; an empty cell is an empty text."""
        return self._column(name, self._groups, cut_text)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column as Python objects, (n_rows,); None for an empty cell."""
        return self._column(name, self._groups)

    def _names_of(self, name: str, groups: _Groups, start: int = 0) -> list[str]:
        names = self._column(name, groups)
        for row, value in enumerate(names):
            if value is None:
                raise DataError(
                    f"{self._where} has no name in row {start + row}. Name all rows, or leave the column out."
                )
            names[row] = value if isinstance(value, str) else str(_as_text(value))
        return names

    def _column(self, name: str, groups: _Groups, read: Callable[[Any], Any] | None = None) -> list[Any]:
        kind = self._schema.field(name).type
        if self._types.is_nested(kind):
            raise DataError(
                f"{self._where} has values of type {str(kind)[:100]} in the column {name}. Give text or numbers."
            )
        self.unpacked.add(f"column {name}", _REFERENCE_BYTES * sum(n_rows for _, n_rows in groups))
        values: list[Any] = []
        for part, places in self._values(name, groups):
            read_part = part if read is None else [read(value) for value in part]
            values += [read_part[place] for place in places.tolist()]
        # Equal texts are in memory once, but they will be written as often as they are there.
        self.unpacked.add(f"column {name}", sum(len(value) for value in values if isinstance(value, (str, bytes))))
        return values

    def _opened(self, **options: Any) -> Any:
        _, parquet = import_pyarrow()
        # With a buffer, Arrow reads a part of a row group at a time instead of all of it.
        return parquet.ParquetFile(self._file, pre_buffer=False, buffer_size=self._buffer_bytes, **options)

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Numbers of the columns of numbers or text by path; a list column x has the path x.list.element."""
        leaves: dict[str, list[int]] = {}
        for number in range(self._about.num_columns):
            leaves.setdefault(self._table.schema.column(number).path, []).append(number)
        return leaves

    def _is_nested(self, name: str) -> bool:
        return bool(self._types.is_nested(self._schema.field(name).type))

    def _is_number(self, kind: Any) -> bool:
        return any(getattr(self._types, f"is_{what}")(kind) for what in ("integer", "floating", "boolean"))

    def _is_text(self, kind: Any) -> bool:
        return any(
            getattr(self._types, f"is_{what}")(kind) for what in ("string", "large_string", "binary", "large_binary")
        )

    def _pages(self, group: int, name: str) -> Pages:
        """Return what the pages of a column say in a row group.

        Raises:
            DataError: they do not fit in memory, or the column cannot be told apart from another one.
        """
        begins = f"{name}."
        found = self._leaves.get(name, [])
        if self._is_nested(name):
            found = [leaf for path, leaves in self._leaves.items() if path.startswith(begins) for leaf in leaves]
        # pyarrow selects columns by path: a column called a.b and the part b of a column a would both be read.
        above = [name[:place] for place, letter in enumerate(name) if letter == "." and name[:place] in self._named]
        if len(found) != 1 or above:
            raise DataError(
                f"{self._where} has several columns that are called {name}, or end so. Give each its own name."
            )
        pages = column_pages(self._headers, self._about.row_group(group).column(found[0]))
        for what, n_bytes, most in (
            ("dictionary", pages.dictionary, _MAX_DICTIONARY_BYTES),
            ("page", pages.largest, _MAX_PAGE_BYTES),
        ):
            if n_bytes > most:
                raise DataError(
                    f"{self._where} has a {what} that unpacks to {n_bytes / 1e9:.3g} GB in the column {name}; at most "
                    f"{most / 1e9:.3g} GB are read. Write smaller ones, as `pyarrow.parquet.write_table` does."
                )
        return pages

    @cached_property
    def _named(self) -> set[str]:
        return set(self.names)

    def _first_list(self, group: int, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the first row of a list column in a row group, (1, n_features)."""
        self._check_list(group, name, dtype)
        for batch in self._table.iter_batches(1, row_groups=[group], columns=[name]):
            return vectors(self._where, batch, [name], 0)
        raise DataError(_other_rows(self._where, self.n_rows, 0))

    def _check_list(self, group: int, name: str, dtype: np.dtype[Any]) -> None:
        """Raise DataError if one list could fill the memory with all values of its row group."""
        pages = self._pages(group, name)
        n_bytes = pages.n_values * max(4, dtype.itemsize)
        if n_bytes > _MAX_LIST_BYTES and n_bytes > _MAX_LIST_COMPRESSION * pages.packed:
            raise DataError(
                f"{self._where} has a row group that unpacks {name} from {pages.packed} bytes to {n_bytes / 1e9:.3g} "
                f"GB; at most {_MAX_LIST_BYTES / 1e9:.3g} GB are read at a time. Write smaller row groups: "
                "`pyarrow.parquet.write_table(table, file, row_group_size=10_000)`."
            )

    def _together(self, group: int, columns: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield start and stop of consecutive columns of a row group whose pages fit in memory together."""
        first, n_bytes = 0, 0
        for place, name in enumerate(columns):
            pages = self._pages(group, name)
            # A page is there packed and unpacked, a batch as Arrow's array and as NumPy's.
            column = 2 * pages.largest + 4 * pages.dictionary + 4 * _READ_ROWS * self.vector_columns[1].itemsize
            if place > first and n_bytes + column > _MAX_PAGE_BYTES:
                yield first, place
                first, n_bytes = place, 0
            n_bytes += column
        yield first, len(columns)

    def _group_blocks(self, group: int, n_rows: int, start: int) -> Iterator[np.ndarray]:
        """Yield the embeddings of a row group; `start` is the index of its first row for messages."""
        if not n_rows:
            return
        columns, dtype = self.vector_columns
        width, parts = len(columns), [(0, len(columns))]
        if self._is_nested(columns[0]):
            width = self._first_list(group, columns[0], dtype).shape[1]
        else:
            parts = list(self._together(group, columns))
        if len(parts) == 1:
            yield from self._row_batches(group, columns, start, (n_rows, width), dtype)
            return
        # The pages of all columns do not fit in memory together.
        self.unpacked.add("x", n_rows * width * dtype.itemsize)
        x = allocate((n_rows, width), dtype)
        for first, end in parts:
            self._read_rows(group, columns[first:end], start, x[:, first:end])
        batch_rows = _batch_rows(width * dtype.itemsize)
        for begin in range(0, n_rows, batch_rows):
            yield x[begin : begin + batch_rows]

    def _read_rows(self, group: int, columns: Sequence[str], start: int, x: np.ndarray) -> None:
        """Read columns of a row group into an array; `start` is the index of its first row in the file."""
        done = 0
        for rows in self._row_batches(group, columns, start, (len(x), x.shape[1]), x.dtype):
            x[done : done + len(rows)] = rows
            done += len(rows)

    def _row_batches(
        self, group: int, columns: Sequence[str], start: int, shape: tuple[int, int], dtype: np.dtype[Any]
    ) -> Iterator[np.ndarray]:
        """Yield columns of a row group, which together must have the given shape, in batches of rows."""
        n_rows, width = shape
        # Per value, Arrow has two levels of two bytes, the value, and its copy.
        batch_rows = _batch_rows(width * (4 + 2 * max(4, dtype.itemsize)))
        done = 0
        for batch in self._table.iter_batches(batch_rows, row_groups=[group], columns=list(columns)):
            rows = vectors(self._where, batch, columns, start + done)
            if rows.shape[1] != width:
                raise DataError(_uneven(self._where, start + done, rows.shape[1], width))
            done += len(rows)
            if done > n_rows:
                break
            yield rows
        if done != n_rows:
            raise DataError(_other_rows(self._where, n_rows, done))

    def _numeric_labels(self, name: str) -> np.ndarray | None:
        dtype = np.dtype(self._schema.field(name).type.to_pandas_dtype())
        self.unpacked.add("labels", (dtype.itemsize + 1) * self.n_rows)
        values, is_empty = np.empty(self.n_rows, dtype), np.empty(self.n_rows, dtype=bool)
        start = 0
        for part in self._parts(name, self._groups):
            rows = slice(start, start + len(part))
            is_empty[rows] = part.is_null().to_numpy(zero_copy_only=False)
            values[rows] = part.fill_null(0).to_numpy(zero_copy_only=False)
            start += len(part)
        return values if check_complete_labels(self._where, is_empty) else None

    def _values(self, name: str, groups: _Groups) -> Iterator[tuple[list[Any], np.ndarray]]:
        """Yield values of a column, None for an empty cell, and the index of each row of a batch among them."""
        for part in self._parts(name, groups):
            if self._types.is_dictionary(part.type):
                indices = part.indices.fill_null(-1).to_numpy(zero_copy_only=False)
                used, places = np.unique(indices, return_inverse=True)
                n_empty = int((used < 0).sum())
                values = part.dictionary.take(import_pyarrow()[0].array(used[n_empty:])).to_pylist()
                values = [None] * n_empty + values
            else:
                values, places = part.to_pylist(), np.arange(len(part))
            self.unpacked.add(f"column {name}", sum(map(sys.getsizeof, values)))
            yield values, places

    def _parts(self, name: str, groups: _Groups) -> Iterator[Any]:
        """Yield a column of numbers or text in Arrow arrays that fit in memory."""
        kind = self._schema.field(name).type
        for group, n_rows in groups:
            pages = self._pages(group, name)
            table, batch_rows = self._table, _READ_ROWS
            if not self._is_number(kind):
                # Many rows may repeat a long value; as a dictionary each value is in memory once.
                if self._is_text(kind) and pages.is_simple:
                    table = self._with_dictionary(name)
                batch_rows = _batch_rows(pages.largest, pages.values_per_page if pages.is_simple else 1)
            done = 0
            for batch in table.iter_batches(batch_rows, row_groups=[group], columns=[name]):
                part = batch.column(0)
                done += len(part)
                if done > n_rows:
                    break
                yield part
            if done != n_rows:
                raise DataError(_other_rows(self._where, n_rows, done))

    def _with_dictionary(self, name: str) -> Any:
        """Return the table with a column of text as indices into the distinct texts."""
        if self._dictionary_of != name:
            self._dictionary_table = self._opened(metadata=self._about, read_dictionary=[name])
            self._dictionary_of = name
        return self._dictionary_table


def _checked_size(file: BinaryIO, where: Path | str) -> int:
    """Return the size of a Parquet file in bytes.

    Raises:
        DataError: its metadata would take too much memory.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    footer = int.from_bytes(file.read(4), "little")
    if _MAX_FOOTER_BYTES < footer < size:
        raise DataError(
            f"{where} has {footer} bytes of metadata; at most {_MAX_FOOTER_BYTES} are read. Write fewer columns, such "
            "as one list column x, or larger row groups."
        )
    file.seek(0)
    return size


def _batch_rows(n_bytes: int, n_rows: int = 1) -> int:
    """Return how many rows may be in memory at a time if `n_rows` rows take at most this number of bytes."""
    return max(1, min(_READ_ROWS, (_READ_BYTES // max(1, n_bytes) - 2) * n_rows))


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _other_rows(where: Path | str, announced: int, found: int) -> str:
    return f"{where} announces {announced} rows and holds {found}. It is damaged; make it again."


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
    return [field.name for field in wide], np.result_type(*{field.type.to_pandas_dtype() for field in wide})


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


def write_parquet(
    path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None, texts: Mapping[str, Sequence[str]]
) -> None:
    """Write a list column `x` and, if given, the columns `label` and `path` and texts to a .parquet file."""
    pyarrow, parquet = import_pyarrow()
    n_features = x.shape[1]
    columns: dict[str, tuple[Any, Sequence[Any] | np.ndarray]] = {}
    if y is not None:
        columns["label"] = (pyarrow.string() if y.dtype.kind == "U" else pyarrow.int64(), y)
    if ids is not None:
        columns["path"] = (pyarrow.string(), ids)
    columns |= {name: (pyarrow.string(), values) for name, values in texts.items()}
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
        DataError: the Parquet file cannot be read.
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
    pyarrow, _ = import_pyarrow()
    try:
        with open_regular(path) as file:
            table = ParquetTable(file, path)
            _check_columns(table.names, names)
            return {name: table.column(name) for name in names}
    except MemoryError as error:
        raise DataError(not_enough_memory(path, error)) from None
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from None


def _check_columns(found: Sequence[str], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"it has no column {missing[0]}")
