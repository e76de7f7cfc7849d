r"""CSV tables: every table is read and written here, and no text in one is a formula to a spreadsheet program.

Excel, LibreOffice and Google Sheets compute a cell that begins with =, +, - or @; a class or a file called
`=HYPERLINK(…)` could send the table away. An apostrophe before such a text makes it text, and is removed when uniot
reads the table. A text that begins with apostrophes and then like a formula gets one more, so that all texts come back
unchanged. Plain numbers, such as the label -1, compute nothing and stay as they are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from uniot.io.files import write_text

CsvError = csv.Error
"""Raised if a text is not CSV."""

# A row of a million numbers takes less.
_MAX_ROW_LETTERS = 1 << 25
# Python's own limit of 131 072 letters per cell is less than a long document; rows are bounded here.
csv.field_size_limit(_MAX_ROW_LETTERS)

# All white space, up to the widest, but for the line ends below.
_SPACES = "".join(letter for letter in map(chr, range(0x3001)) if letter.isspace() and letter not in "\t\r\n")
# Full-width signs as well, which Excel takes for the others in East Asian languages.
_SIGNS = "=+@＝＋－＠-"
# Where a cell may begin: a spreadsheet program that splits a table at semicolons or tabs disregards quotes that follow
# a comma.
_BREAKS = ";\t\r\n"
_NUMBER = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)"
_BEFORE_FORMULA = (
    rf"(?<![^{_BREAKS}])(?='*[{_SPACES}]*[{_SIGNS}])(?!'*[{_SPACES}]*{_NUMBER}[{_SPACES}]*(?:[{_BREAKS}]|\Z))"
    r"|\A(?='*[\0\t\r\n])"
)
_TO_ESCAPE = re.compile(_BEFORE_FORMULA)
_ESCAPED = re.compile(f"(?:{_BEFORE_FORMULA})'")
_FIRST = frozenset(f"\0'{_SPACES}{_SIGNS}")


def escape_formulas(text: str) -> str:
    """Return a text that no spreadsheet program takes for a formula."""
    return _TO_ESCAPE.sub("'", text) if _is_suspect(text) else text


def unescape_formulas(text: str) -> str:
    """Return the text that `escape_formulas` was given."""
    return _ESCAPED.sub("", text) if "'" in text and _is_suspect(text) else text


def _is_suspect(text: str) -> bool:
    """Return whether a text may contain the beginning of a formula; fast, because nearly none does."""
    return text[:1] in _FIRST or ";" in text or "\t" in text or "\n" in text or "\r" in text


class CsvWriter:
    """Write rows as CSV; lines end with a line feed.

    Args:
        stream: receives a row per call of its `write`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(_LineFeeds(stream), lineterminator="\r\n")

    def write(self, rows: Iterable[Iterable[object]]) -> None:
        """Write rows of texts and numbers; None is an empty cell."""
        self._writer.writerows(
            [escape_formulas(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
        )


class _LineFeeds:
    """A stream for `csv.writer` that ends lines with a line feed alone.

    The writer does not quote a carriage return unless its own line end has one, and an unquoted one would end the line
    when the table is read.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(line.removesuffix("\r\n") + "\n")


def table_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV: a line of column names, (n_columns,), and a line per row, (n_rows, n_columns)."""
    text = io.StringIO()
    CsvWriter(text).write([columns])
    CsvWriter(text).write(rows)
    return text.getvalue()


def write_table(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], *, keep_empty: bool = False
) -> None:
    """Write a CSV table atomically.

    Args:
        path: the file.
        columns: names of the columns, (n_columns,).
        rows: cells of each line, (n_rows, n_columns); None is an empty cell.
        keep_empty: whether a table without rows is written as its header; otherwise the file is removed.
    """
    rows = list(rows)
    if not rows and not keep_empty:
        path.unlink(missing_ok=True)
        return
    write_text(path, table_text(columns, rows))


class CsvReader:
    """Read rows of CSV, written by uniot or by others; each row takes bounded memory.

    Iterating raises CsvError for a row without end.

    Args:
        lines: a file that was opened with `newline=""`, or lines of bounded length with their line ends.
        delimiter: character between cells.
        strict: whether wrong quotes raise CsvError.
        with_nul: whether cells may have NUL bytes, which NumPy drops from the end of a text; if not, they raise
            CsvError.
    """

    def __init__(
        self, lines: Iterable[str], *, delimiter: str = ",", strict: bool = False, with_nul: bool = True
    ) -> None:
        self._with_nul = with_nul
        self._n_letters = 0
        self._rows = csv.reader(self._checked(_bounded(lines)), delimiter=delimiter, strict=strict)

    @property
    def line_num(self) -> int:
        """Number of lines that were read."""
        return self._rows.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self._n_letters = 0
        return [unescape_formulas(cell) for cell in next(self._rows)]

    def _checked(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            # A row has several lines if a cell in quotation marks has line breaks.
            self._n_letters += len(line)
            if self._n_letters >= _MAX_ROW_LETTERS:
                raise CsvError(f"a row is longer than {_MAX_ROW_LETTERS} letters")
            if "\0" in line and not self._with_nul:
                raise CsvError("it holds a NUL byte")
            yield line


def _bounded(lines: Iterable[str]) -> Iterable[str]:
    """Return lines; those of a file are read in pieces, because one may be as long as the file."""
    return iter(lambda: lines.readline(_MAX_ROW_LETTERS), "") if isinstance(lines, io.TextIOBase) else lines


def dict_reader(lines: Iterable[str], *, strict: bool = False) -> csv.DictReader[Any]:
    """Return a reader of rows as dictionaries by the column names of the first line; arguments as in `CsvReader`."""
    lines = iter(lines)
    table = csv.DictReader(lines)
    table.reader = CsvReader(lines, strict=strict)  # type: ignore[assignment]
    return table
