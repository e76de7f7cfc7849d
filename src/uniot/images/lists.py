"""Read list files: text or tables with the path, and if wanted the label, of one image per line."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from uniot.errors import DataError
from uniot.images.decoding import IMAGE_SUFFIXES
from uniot.io.csv_tables import CsvError, CsvReader
from uniot.io.text import read_text

LIST_SUFFIXES = (".txt", ".lst", ".csv", ".tsv")

_PATH_COLUMNS = ("path", "image", "file", "filename")
_LABEL_COLUMNS = ("label", "class", "category")
_PATH_AND_LABEL = re.compile(rf"(.*(?:{'|'.join(map(re.escape, IMAGE_SUFFIXES))}))(?:\s+(\S.*))?", re.IGNORECASE)


def listed_images(where: Path, *, with_labels: bool) -> list[tuple[str, str | None]]:
    """Read the images of a list file.

    Args:
        where: a .txt or .lst file with a path and, if there is one, a label per line; or a .csv or .tsv file with the
            columns path and label.
        with_labels: whether every image must have a label.

    Returns:
        Name and label of each image, in the order of the list, repeated images once; None as label without labels.

    Raises:
        DataError: the file cannot be read, lists no image, lacks a label, or gives an image two labels.
    """
    rows = _table_rows(where) if where.suffix.lower() in (".csv", ".tsv") else _text_rows(where)
    found: dict[str, tuple[int, str, str | None]] = {}
    for line, name, label in rows:
        if with_labels and not label:
            raise DataError(
                f"line {line} of {where} has no label for {name!r}. Write a path that ends in .jpg, .png or the like, "
                "a space and the label; or a .csv with the columns path and label."
            )
        new = (line, name, label if with_labels else None)
        first_line, _, first_label = found.setdefault(os.path.normpath(where.parent / name), new)
        if first_label != new[2]:
            raise DataError(
                f"{where} gives {name!r} two labels: {first_label!r} in line {first_line} and {label!r} in line "
                f"{line}. Keep one of them."
            )
    if not found:
        raise DataError(f"{where} lists no image. Write the path of one image per line.")
    return [(name, label) for _, name, label in found.values()]


def _text_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    for number, line in enumerate(read_text(where, "Save the list as UTF-8.").split("\n"), start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            # The path extends to the last image suffix of the line: a file may be called `a.jpg copy.jpg`.
            found = _PATH_AND_LABEL.fullmatch(line)
            yield (number, found[1], found[2]) if found else (number, line, None)


def _table_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    delimiter, called = ("\t", "tabs") if where.suffix.lower() == ".tsv" else (",", "commas")
    rows = CsvReader(io.StringIO(read_text(where, "Save the list as UTF-8."), newline=""), delimiter=delimiter)
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        path_at, label_at = _column(header, _PATH_COLUMNS), _column(header, _LABEL_COLUMNS)
        if path_at is None:
            raise DataError(
                f"line 1 of {where} has {', '.join(map(repr, header)) or 'nothing'} instead of column names. "
                f"Write path and, if there are labels, label in the first line, separated by {called}."
            )
        for row in rows:
            path, label = _field(row, path_at), _field(row, label_at)
            if path:
                yield rows.line_num, path, label
            elif any(row):
                raise DataError(f"line {rows.line_num} of {where} has no path. Write one, or remove the line.")
    except CsvError as error:
        raise DataError(
            f"line {rows.line_num} of {where} cannot be read ({error}). Check its quotation marks."
        ) from None


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _field(row: Sequence[str], at: int | None) -> str | None:
    return row[at].strip() or None if at is not None and at < len(row) else None
