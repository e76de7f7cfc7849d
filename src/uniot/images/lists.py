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
from uniot.io.array_files import find_keys
from uniot.io.csv_tables import CsvError, CsvReader
from uniot.io.files import open_regular
from uniot.io.text import listed, quoted, text_lines

LIST_SUFFIXES = (".txt", ".lst", ".csv", ".tsv")

_PATH_COLUMNS = ("path", "image", "file", "filename")
_LABEL_COLUMNS = ("label", "class", "category")
_ADVICE = "Save the list as UTF-8."
_PATH_AND_LABEL = re.compile(rf"(.*(?:{'|'.join(map(re.escape, IMAGE_SUFFIXES))}))(?:\s+(\S.*))?", re.IGNORECASE)


# Lines and letters of a line that are looked at to tell a table of embeddings from a list.
_MOST_LINES, _LONGEST_LINE = 100, 1 << 20
# Columns of numbers from which a table with sample names holds embeddings.
_LEAST_FEATURES = 8


def listed_images(where: Path, *, with_labels: bool) -> list[tuple[str, str | None]]:
    """Read the images of a list file.

    Args:
        where: a .txt or .lst file with a path and, if there is one, a label per line; or a .csv or .tsv file with the
            columns path and label.
        with_labels: whether every image must have a label.

    Returns:
        Name and label of each image, in the order of the list, repeated images once; None as label without labels.

    Raises:
        DataError: the file cannot be read, is a table of embeddings, lists no image, lacks a label, or gives an image
            two labels.
    """
    check_is_list(where)
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


def check_is_list(where: Path) -> None:
    """Raise DataError if a table contains embeddings instead of paths of images; only its first lines are read.

    Args:
        where: a list file; one that cannot be read passes, because reading it reports that.
    """
    suffix = where.suffix.lower()
    if suffix not in (".csv", ".tsv"):
        return
    try:
        with io.TextIOWrapper(open_regular(where), encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = islice(iter(lambda: file.readline(_LONGEST_LINE), ""), _MOST_LINES)
            rows = CsvReader(lines, delimiter="\t" if suffix == ".tsv" else ",")
            header, first = next(rows, []), next(rows, [])
    except (OSError, CsvError):
        return
    columns = [name.strip().lower() for name in header]
    path, label = _field(first, _column(columns, _PATH_COLUMNS)), _column(columns, _LABEL_COLUMNS)
    if path is not None and (path.lower().endswith(IMAGE_SUFFIXES) or os.access(where.parent / path, os.F_OK)):
        return
    numbers = [cell for place, cell in enumerate(first or header) if place != label and _is_number(cell)]
    # A list may have some columns of numbers as well, such as the width and height of an image.
    if len(numbers) < (2 if path is None else _LEAST_FEATURES):
        return
    raise DataError(
        f"{where} looks like a table of embeddings, with {len(numbers)} columns of numbers. A {suffix} file is read as "
        "a list of images here, with the column path and, if there are labels, label. Save the embeddings as an .npz "
        f"file{_conversion(where, header)}"
    )


def _conversion(where: Path, header: Sequence[str]) -> str:
    """Return the end of a sentence: how to make an .npz file of a table of embeddings."""
    has_names = not any(_is_number(name) and not name.isdigit() for name in header)
    if where.suffix.lower() != ".csv" or not has_names:
        return ", with numpy.savez(file, x=embeddings, y=labels)."
    arrays = "x=e.x, y=e.y" if "y" in find_keys(header, with_x=False) else "x=e.x"
    code = (
        "import numpy, pathlib; from uniot.io.embedding_files import read_embeddings; "
        f"e = read_embeddings(pathlib.Path({str(where)!r})); "
        f"numpy.savez({str(where.with_suffix('.npz'))!r}, {arrays})"
    )
    return f": python -c {quoted(code)}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    for number, line in text_lines(where, _ADVICE):
        line = line.strip()
        if line and not line.startswith("#"):
            # The path extends to the last image suffix of the line: a file may be called `a.jpg copy.jpg`.
            found = _PATH_AND_LABEL.fullmatch(line)
            yield (number, found[1], found[2]) if found else (number, line, None)


def _table_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    delimiter, called = ("\t", "tabs") if where.suffix.lower() == ".tsv" else (",", "commas")
    # A carriage return alone ends a line too.
    lines = (line for _, text in text_lines(where, _ADVICE) for line in io.StringIO(text, newline=""))
    rows = CsvReader(lines, delimiter=delimiter)
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        path_at, label_at = _column(header, _PATH_COLUMNS), _column(header, _LABEL_COLUMNS)
        if path_at is None:
            found = listed([repr(name) for name in header]) or "nothing"
            raise DataError(
                f"line 1 of {where} has {found} instead of column names. "
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
