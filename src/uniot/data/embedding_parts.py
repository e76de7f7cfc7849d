"""What every kind of embedding file consists of, and under which names its parts are looked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import DataError

KEYS = {
    "x": ("x", "X", "embedding", "embeddings", "features"),
    "y": ("y", "label", "labels"),
    "ids": ("ids", "id", "path", "paths", "file", "files"),
}

# One gigabyte.
_MOST_LETTERS = 1 << 28


@dataclass(frozen=True)
class Parts:
    """What a reader found; `x` is left out where it was not asked for."""

    x: np.ndarray | None = None
    y: np.ndarray | None = None
    ids: list[str] | None = None


def roles_of(names: Collection[str], with_x: bool) -> dict[str, str]:
    """Which of `names` holds what."""
    found = {role: next((key for key in keys if key in names), None) for role, keys in KEYS.items()}
    return {role: key for role, key in found.items() if key is not None and (with_x or role != "x")}


def whole_labels(path: Path, values: list[Any] | None) -> np.ndarray | None:
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
    check_letters(path, len(values), values)
    return np.array(values)


def check_letters(path: Path, n_rows: int, names: Collection[Any]) -> None:
    """Refuse names that an array of text could not hold: each row takes as much room as the longest name."""
    longest = max((len(name) for name in names if isinstance(name, str)), default=0)
    if n_rows * longest > _MOST_LETTERS:
        raise DataError(
            f"{path} has a label of {longest} letters, and {n_rows} rows take as much room each. Shorten the label."
        )


def whole_names(path: Path, values: list[Any] | None) -> list[str] | None:
    """Names as text, every row with one."""
    if values is not None and None in values:
        raise DataError(f"{path} has no name in row {values.index(None)}. Name all rows, or leave the column out.")
    return None if values is None else [str(value) for value in values]
