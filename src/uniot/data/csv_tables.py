"""Embeddings, or labels and names alone, in text with commas."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniot.data.embedding_parts import Parts, roles_of, whole_labels
from uniot.errors import DataError
from uniot.untrusted import open_regular
from uniot.words import listed


def read_csv(path: Path, with_x: bool) -> Parts:
    """Columns `label` and `path`, and numbers in all others."""
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            return _csv_parts(path, csv.reader(_without_nul(file)), with_x)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as UTF-8 text with commas ({error}). Save it as CSV in UTF-8, or give an .npz file."
        ) from None


def _csv_parts(path: Path, lines: Any, with_x: bool) -> Parts:
    header: list[str] = next(lines, [])
    roles = {role: header.index(key) for role, key in roles_of(header, with_x=False).items()}
    # pandas writes the index of its rows as a column without a name.
    numbers = [place for place, name in enumerate(header) if name and place not in roles.values()]
    if any(_is_fraction(name) for name in header) or not (numbers if with_x else roles):
        needed = "a column for each dimension" if with_x else "path, label or both"
        raise DataError(
            f"{path} has the columns {listed(header) or '(none)'}; {needed} must be among them. "
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
    return Parts(x, whole_labels(path, cells.get("y")), cells.get("ids"))


def _without_nul(lines: Iterable[str]) -> Iterator[str]:
    """Pass lines on; NumPy would drop a NUL byte from the end of a name."""
    for line in lines:
        if "\0" in line:
            raise csv.Error("it holds a NUL byte")
        yield line


def _is_fraction(text: str) -> bool:
    """Whether text is a number but no count: such a thing names no column, and a count, with pandas, may."""
    try:
        float(text)
    except ValueError:
        return False
    return not text.isdigit()


def write_table(path: Path, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Names and labels, for embeddings that have no place for them."""
    columns: dict[str, Iterable[Any]] = {}
    if ids is not None:
        columns["path"] = ids
    if y is not None:
        columns["label"] = y.tolist()
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
