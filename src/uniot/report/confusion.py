"""The confusion matrix of a run that was evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uniot.io.text import as_utf8

_MOST = 40


@dataclass(frozen=True)
class ConfusionCell:
    """A count and its fraction of the row.

    Attributes:
        count: number of samples of the true class with the label.
        share: fraction of the samples of the true class.
        right: whether the label is right for the true class.
        rows: the samples, as target rows; empty if they are not known, or all labels that are not shown.
    """

    count: int
    share: float
    right: bool
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConfusionRow:
    """The samples of a true class, counted by label."""

    name: str
    is_common: bool
    count: int
    cells: list[ConfusionCell]


@dataclass(frozen=True)
class ConfusionTable:
    """The confusion matrix: common classes first, then private ones.

    Attributes:
        columns: labels that the run gave; the last is "unknown", whatever the run calls it.
        rows: true classes.
        rows_left_out: smaller true classes that are not shown.
        columns_left_out: labels that are not shown; the last cell but one of a row counts them together.
    """

    columns: list[str]
    rows: list[ConfusionRow]
    rows_left_out: int
    columns_left_out: int


RowsOf = Callable[[str, str, int], tuple[int, ...]]
"""Returns the rows of a true class and a label, given how many there are; empty if they are not known."""


def read_confusion(
    metrics: Mapping[str, Any] | None, class_names: Sequence[str], unknown: str, rows_of: RowsOf = lambda *_: ()
) -> ConfusionTable | None:
    """Return the confusion matrix of metrics.json; None if it has none.

    Args:
        metrics: content of metrics.json.
        class_names: source classes.
        unknown: label of unknown samples.
        rows_of: finds the samples of a cell.
    """
    read = None if metrics is None else metrics.get("confusion")
    if not isinstance(read, dict) or not read:
        return None
    counts: dict[str, dict[str, int]] = {
        as_utf8(name): {as_utf8(label): int(count) for label, count in given.items()} for name, given in read.items()
    }
    common = set(class_names)
    sizes = {name: sum(given.values()) for name, given in counts.items()}
    largest = set(sorted(sizes, key=lambda name: -sizes[name])[:_MOST])
    shown = [name for name in counts if name in largest]
    labels: dict[str, int] = {}
    for name in shown:
        for label, count in counts[name].items():
            labels[label] = labels.get(label, 0) + count
    # A class without predictions has a column too, in the order of the rows.
    columns = [name for name in shown if name in common]
    others = sorted((label for label in labels if label not in {*columns, unknown}), key=lambda label: -labels[label])
    left_out = others[max(0, _MOST - len(columns)) :]
    columns += others[: len(others) - len(left_out)]
    rows = [_row(name, counts[name], name in common, columns, left_out, unknown, rows_of) for name in shown]
    heads = [*columns, *(["others"] if left_out else []), "unknown"]
    return ConfusionTable(heads, rows, len(counts) - len(shown), len(left_out))


def _row(
    name: str,
    given: Mapping[str, int],
    is_common: bool,
    columns: list[str],
    left_out: list[str],
    unknown: str,
    rows_of: RowsOf,
) -> ConfusionRow:
    size, right = sum(given.values()), name if is_common else unknown

    def cell(label: str, is_right: bool) -> ConfusionCell:
        count = given.get(label, 0)
        return ConfusionCell(count, count / size, is_right, rows_of(name, label, count) if count else ())

    cells = [cell(label, label == right) for label in columns]
    if left_out:
        count = sum(given.get(label, 0) for label in left_out)
        cells.append(ConfusionCell(count, count / size, False))
    cells.append(cell(unknown, not is_common))
    return ConfusionRow(name, is_common, size, cells)
