"""Read list files: text or tables with the path, and if wanted the label, of one image per line."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from uniot.errors import DataError
from uniot.images.decoding import IMAGE_SUFFIXES
from uniot.io.columns import Columns
from uniot.io.csv_tables import CsvError, CsvReader
from uniot.io.files import open_regular
from uniot.io.table_files import delimiter_of, is_number
from uniot.io.text import counted, listed, quoted, text_lines

TABLE_SUFFIXES = (".csv", ".tsv")
LIST_SUFFIXES = (".txt", ".lst", *TABLE_SUFFIXES)

_PATH_COLUMNS = ("path", "image", "file", "filename")
_LABEL_COLUMNS = ("label", "class", "category")
_ADVICE = "Save the list as UTF-8."
_PATH_AND_LABEL = re.compile(rf"(.*(?:{'|'.join(map(re.escape, IMAGE_SUFFIXES))}))(?:\s+(\S.*))?", re.IGNORECASE)


# Lines and letters of a line that are looked at to tell a table of embeddings from a list.
_MOST_LINES, _LONGEST_LINE = 100, 1 << 20
# Columns of numbers from which a table with sample names holds embeddings.
_LEAST_FEATURES = 8
# No system has longer paths; without its second quotation mark, one goes on to the end of the file.
_LONGEST_PATH = 1 << 15
_USUAL = Columns()


def listed_images(where: Path, *, with_labels: bool, columns: Columns = _USUAL) -> list[tuple[str, str | None]]:
    """Read the images of a list file.

    Args:
        where: a .txt or .lst file with a path and, if there is one, a label per line; or a .csv or .tsv file with the
            columns path and label.
        with_labels: whether every image must have a label.
        columns: columns of the labels and the paths, if they are called otherwise.

    Returns:
        Name and label of each image, in the order of the list, repeated images once; None as label without labels.

    Raises:
        DataError: the file cannot be read, is a table of embeddings, lists no image, lacks a label, or gives an image
            two labels.
    """
    n_numbers = embedding_columns(where, columns)
    if n_numbers:
        raise DataError(
            f"{where} looks like a table of embeddings, with {counted(n_numbers, 'column')} of numbers, and a list of "
            "images is expected here: the column path and, if there are labels, label."
        )
    rows = _table_rows(where, columns) if where.suffix.lower() in TABLE_SUFFIXES else _text_rows(where)
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


def embedding_columns(where: Path, columns: Columns = _USUAL) -> int:
    """Return the number of columns of numbers if a table has embeddings, told by its first lines; 0 for a list.

    Args:
        where: a list file or table; one that cannot be read is a list, because reading it reports that.
        columns: those that were chosen: a column of paths that is only a name or what is shown lists no images.

    Raises:
        DataError: the table may be either.
    """
    if where.suffix.lower() not in TABLE_SUFFIXES:
        return 0
    try:
        with io.TextIOWrapper(open_regular(where), encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = islice(iter(lambda: file.readline(_LONGEST_LINE), ""), _MOST_LINES)
            rows = CsvReader(lines, delimiter=delimiter_of(where))
            header, first = next(rows, []), next(rows, [])
    except (OSError, CsvError):
        return 0
    names = [name.strip().lower() for name in header]
    path_at, label_at = _column(names, _PATH_COLUMNS), _column(names, _LABEL_COLUMNS)
    others = {path_at, label_at, *(place for place, name in enumerate(header) if name in columns.chosen.values())}
    cells = [cell for place, cell in enumerate(first or header) if place not in others]
    numbers = [cell for cell in cells if is_number(cell)]
    n_numbers = len(numbers) or sum(cell.lstrip()[:1] == "[" for cell in cells if cell.rstrip()[-1:] == "]")
    has_fractions = len(numbers) < n_numbers or any(not cell.strip().lstrip("+-").isdigit() for cell in numbers)
    path = None if path_at is None else _field(first, path_at)
    if path is None or (path_at is not None and header[path_at] in (columns.ids, columns.show)):
        # A list whose paths are called otherwise has a chosen column of paths.
        lists_images = columns.ids in header and _is_image(where, _field(first, header.index(str(columns.ids))))
        return 0 if lists_images and not has_fractions else n_numbers
    # A list may have some columns of numbers as well, such as width, height and other attributes of an image.
    if not _is_image(where, path):
        return n_numbers if has_fractions or n_numbers >= _LEAST_FEATURES else 0
    if has_fractions and n_numbers >= _LEAST_FEATURES:
        assert path_at is not None
        raise DataError(
            f"{where} has both images, in the column {header[path_at]}, and {n_numbers} columns of numbers that may be "
            f"embeddings. Give --show {quoted(header[path_at])} to read the numbers, or leave them out of the table to "
            "read the images."
        )
    return 0


def _is_image(where: Path, path: str | None) -> bool:
    if path is None:
        return False
    return path.lower().endswith(IMAGE_SUFFIXES) or os.access(where.parent / path, os.F_OK)


def _text_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    for number, line in text_lines(where, _ADVICE):
        line = line.strip()
        if line and not line.startswith("#"):
            # The path extends to the last image suffix of the line: a file may be called `a.jpg copy.jpg`.
            found = _PATH_AND_LABEL.fullmatch(line)
            yield (number, found[1], found[2]) if found else (number, line, None)


def _table_rows(where: Path, columns: Columns) -> Iterator[tuple[int, str, str | None]]:
    delimiter = delimiter_of(where)
    called = "tabs" if delimiter == "\t" else "commas"
    # A carriage return alone ends a line too.
    lines = (line for _, text in text_lines(where, _ADVICE) for line in io.StringIO(text, newline=""))
    rows = CsvReader(lines, delimiter=delimiter)
    try:
        written = next(rows, [])
        chosen = columns.roles(where, written)
        header = [column.strip().lower() for column in written]
        path_at, label_at = _column(header, _PATH_COLUMNS), _column(header, _LABEL_COLUMNS)
        path_at = written.index(chosen["ids"]) if columns.ids is not None and "ids" in chosen else path_at
        if columns.label is not None:
            label_at = written.index(chosen["y"]) if "y" in chosen else None
        if path_at is None:
            found = listed([repr(name) for name in header]) or "nothing"
            raise DataError(
                f"line 1 of {where} has {found} instead of column names. "
                f"Write path and, if there are labels, label in the first line, separated by {called}. "
                "For texts, name their column with --text."
            )
        for row in rows:
            path, label = _field(row, path_at), _field(row, label_at)
            if path and len(path) > _LONGEST_PATH:
                raise CsvError(f"a path of {len(path)} letters")
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
