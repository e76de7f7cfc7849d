"""Compare groups with true classes; the names of the groups do not matter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike

from uniot.errors import DataError
from uniot.metrics.outcome import LabelArray, Labels, Outcome, Truth, read_labels, same_length

# scikit-learn and SciPy are imported where they are used, because commands that only show scores do not need them.


def normalized_mutual_information(y_true: Labels, groups: Labels) -> float:
    """Return the mutual information of classes and groups over the mean of their entropies.

    Paper: NMI of Eq. (16), as scikit-learn computes it (arithmetic mean).

    Args:
        y_true: true class of each row, (n_samples,).
        groups: group of each row, (n_samples,).

    Returns:
        0 if classes and groups are independent, 1 if the groups are the classes. One class in one group gives 1.
    """
    from sklearn.metrics import normalized_mutual_info_score

    classes, names = _read_pair(y_true, groups)
    with _many_groups():
        return float(normalized_mutual_info_score(classes, names))


def hungarian_accuracy(y_true: Labels, groups: Labels) -> float:
    """Return the accuracy under the best one-to-one assignment of groups to classes.

    Rows of a group without a class, because there are more groups than classes, count as wrong.

    Args:
        y_true: true class of each row, (n_samples,).
        groups: group of each row, (n_samples,).

    References:
        Kuhn. The Hungarian Method for the Assignment Problem. Naval Research Logistics Quarterly 2, 1955.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(*_read_pair(y_true, groups))
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def purity(y_true: Labels, groups: Labels) -> float:
    """Return the fraction of rows that belong to the largest class of their group.

    Args:
        y_true: true class of each row, (n_samples,).
        groups: group of each row, (n_samples,).
    """
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(*_read_pair(y_true, groups), sparse=True)
    return float(table.max(axis=0).sum() / table.sum())


def adjusted_rand(y_true: Labels, groups: Labels) -> float:
    """Return the adjusted Rand index: agreement on which pairs of rows belong together.

    Args:
        y_true: true class of each row, (n_samples,).
        groups: group of each row, (n_samples,).

    Returns:
        0 on average for random groups, 1 if the groups are the classes; -0.5 at least.

    References:
        Hubert and Arabie. Comparing Partitions. Journal of Classification 2, 1985.
    """
    from sklearn.metrics import adjusted_rand_score

    classes, names = _read_pair(y_true, groups)
    with _many_groups():
        return float(adjusted_rand_score(classes, names))


def _read_pair(y_true: Labels, groups: Labels) -> tuple[LabelArray, LabelArray]:
    classes, names = read_labels(y_true, "y_true"), read_labels(groups, "groups", allow_blank=True)
    same_length(len(classes), "y_true", len(names), "groups")
    return classes, names


@contextmanager
def _many_groups() -> Iterator[None]:
    """Silence scikit-learn's warning about many groups for few rows, which it takes for the target of a regression."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        yield


def oracle_nmi(truth: Truth, features: ArrayLike, *, seed: int = 0) -> float | None:
    """Cluster the truly private rows by spherical k-means into their true number of classes, and return the NMI.

    Paper: NMI of Eq. (16).

    Args:
        truth: true labels; private classes without a row in the target do not count.
        features: features of all target rows, (n_samples, n_features).
        seed: random seed of the k-means.

    Returns:
        The NMI, 1 for a single private class; None if no row is private.
    """
    from uniot.discovery.kmeans import spherical_kmeans
    from uniot.io.arrays import as_inputs

    table = as_inputs(features, "features")
    same_length(len(truth.labels), "y_true", len(table), "features")
    n_classes = named_private_classes(truth)
    if not n_classes:
        return None
    clusters = spherical_kmeans(table[truth.is_private], n_classes, seed=seed)
    return normalized_mutual_information(truth.labels[truth.is_private], clusters.groups)


def honest_nmi(outcome: Outcome, groups: Labels) -> float | None:
    """Return the NMI of true classes and predicted groups over the rows predicted as unknown.

    Paper: none (its NMI uses the truth). A common row that was predicted as unknown counts with its own class.

    Args:
        outcome: predictions with the true labels.
        groups: group of each target row, (n_samples,).

    Returns:
        The NMI; 0 if no row is predicted as unknown, None if no row is private.
    """
    called = called_unknown_groups(outcome, groups)
    if not named_private_classes(outcome.truth):
        return None
    if not called.size:
        return 0.0
    return normalized_mutual_information(outcome.truth.labels[outcome.called_unknown], called)


def called_unknown_groups(outcome: Outcome, groups: Labels) -> LabelArray:
    """Return the groups of the rows predicted as unknown, (n_unknown,).

    Rows without a group (-1, or empty text) form one group, because nothing separates them.
    """
    names = read_labels(groups, "groups", allow_blank=True)
    same_length(len(outcome.predicted), "y_pred", len(names), "groups")
    return names[outcome.called_unknown]


def n_called_groups(called: LabelArray) -> int:
    """Return the number of groups; rows without a group (-1, or empty text) are not counted."""
    found = np.unique(called)
    return int((found != ("" if found.dtype.kind == "U" else -1)).sum())


def named_private_classes(truth: Truth) -> int:
    """Return the number of private classes that have a row.

    Raises:
        DataError: some private rows have no class name.
    """
    if truth.n_private_classes is None:
        raise DataError(f"{unnamed_private_rows(truth)}.")
    return truth.n_private_classes


def unnamed_private_rows(truth: Truth) -> str:
    """Return why H³ and NMI are undefined if y_true does not name the private classes."""
    also = "" if truth.source_classes is not None else ", and source_classes"
    return (
        f"{truth.n_unnamed} of {truth.n_private} private rows are only called {truth.unknown!r} in the true labels, "
        f"but H³ and NMI compare groups with private classes. Give their names in the true labels{also}"
    )
