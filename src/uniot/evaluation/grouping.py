"""How well groups agree with true classes; the names of the groups do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniot.evaluation.inputs import Labels, read_labels, same_length


@dataclass(frozen=True, eq=False)
class _Overlap:
    """The cells of the table class x group that are not empty."""

    count: NDArray[np.int64]
    class_index: NDArray[np.int64]
    group_index: NDArray[np.int64]
    class_size: NDArray[np.int64]
    group_size: NDArray[np.int64]


def normalized_mutual_information(y_true: Labels, groups: Labels) -> float:
    """What the groups tell of the classes, over the mean of the two entropies.

    Paper: NMI of Eq. (16), as scikit-learn computes it (arithmetic mean). One class in one group gives 1; one
    class in several groups, or several classes in one group, gives 0.

    Args:
        y_true: True class of each row.
        groups: Group of each row.

    Returns:
        0 where the groups tell nothing, 1 where they are the classes under other names.
    """
    overlap = _overlap(y_true, groups)
    if len(overlap.class_size) == len(overlap.group_size) == 1:
        return 1.0
    n = overlap.class_size.sum()
    expected = overlap.class_size[overlap.class_index] / n * overlap.group_size[overlap.group_index]
    information = float((overlap.count / n * np.log(overlap.count / expected)).sum())
    entropies = _entropy(overlap.class_size) + _entropy(overlap.group_size)
    return min(1.0, max(0.0, 2.0 * information / entropies))


def hungarian_accuracy(y_true: Labels, groups: Labels) -> float:
    """Share of rows that are right once each group is named after one class, in the best way, none twice.

    Groups beyond the number of classes stay without a name, and their rows count as wrong.
    """
    from scipy.optimize import linear_sum_assignment

    overlap = _overlap(y_true, groups)
    table = np.zeros((len(overlap.class_size), len(overlap.group_size)), dtype=np.int64)
    table[overlap.class_index, overlap.group_index] = overlap.count
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def purity(y_true: Labels, groups: Labels) -> float:
    """Share of rows that belong to the largest class of their group; a class may be the largest of several."""
    overlap = _overlap(y_true, groups)
    largest = np.zeros(len(overlap.group_size), dtype=np.int64)
    np.maximum.at(largest, overlap.group_index, overlap.count)
    return float(largest.sum() / overlap.group_size.sum())


def adjusted_rand(y_true: Labels, groups: Labels) -> float:
    """Agreement on which pairs of rows belong together, 0 on average for random groups and 1 for the classes.

    It can be negative, down to -0.5. Where classes and groups are both one, or both all single rows, it is 1.
    """
    overlap = _overlap(y_true, groups)
    n = int(overlap.class_size.sum())
    together, by_class, by_group = (_pairs(c) for c in (overlap.count, overlap.class_size, overlap.group_size))
    if together == by_class == by_group:
        return 1.0
    by_chance = by_class * by_group / (n * (n - 1) // 2)
    return float((together - by_chance) / ((by_class + by_group) / 2 - by_chance))


def _overlap(y_true: Labels, groups: Labels) -> _Overlap:
    classes, names = read_labels(y_true, "y_true"), read_labels(groups, "groups")
    same_length(len(classes), "y_true", len(names), "groups")
    _, class_of_row, class_size = np.unique(classes, return_inverse=True, return_counts=True)
    _, group_of_row, group_size = np.unique(names, return_inverse=True, return_counts=True)
    cells, count = np.unique(class_of_row * len(group_size) + group_of_row, return_counts=True)
    return _Overlap(count, cells // len(group_size), cells % len(group_size), class_size, group_size)


def _entropy(sizes: NDArray[np.int64]) -> float:
    share = sizes / sizes.sum()
    return float(-(share * np.log(share)).sum())


def _pairs(sizes: NDArray[np.int64]) -> int:
    """Number of pairs of rows within parts of these sizes, as a Python integer that cannot overflow."""
    return int((sizes * (sizes - 1) // 2).sum())
