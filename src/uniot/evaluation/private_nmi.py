"""The third part of H³: do the groups of private rows follow the private classes? Two answers.

The oracle one, as published, looks up which rows are private and how many classes they have. The honest one
takes the rows that were called unknown and the groups that were found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from uniot.clustering import feature_matrix, spherical_kmeans
from uniot.errors import DataError
from uniot.evaluation.grouping import normalized_mutual_information
from uniot.evaluation.inputs import LabelArray, Labels, read_labels, same_length
from uniot.evaluation.outcome import Outcome, Truth


def oracle_nmi(truth: Truth, features: ArrayLike, *, seed: int = 0) -> float | None:
    """NMI of spherical k-means on the truly private rows, with the true number of their classes.

    Paper: NMI of Eq. (16). The number counts private classes that have a row in the target; with one such
    class the value is 1.

    Returns:
        The NMI; None where no row is private.
    """
    table = feature_matrix(features)
    same_length(len(truth.labels), "y_true", len(table), "features")
    n_classes = named_private_classes(truth)
    if not n_classes:
        return None
    clusters = spherical_kmeans(table[truth.is_private], n_classes, seed=seed)
    return normalized_mutual_information(truth.labels[truth.is_private], clusters.groups)


def honest_nmi(outcome: Outcome, groups: Labels) -> float | None:
    """NMI between true class and found group over the rows called unknown.

    Paper: none (its NMI looks up the truth). A common row that was called unknown by mistake takes part
    under its own class.

    Returns:
        The NMI; 0 where no row is called unknown, None where no row is private.
    """
    called = called_unknown_groups(outcome, groups)
    if not named_private_classes(outcome.truth):
        return None
    if not called.size:
        return 0.0
    return normalized_mutual_information(outcome.truth.labels[outcome.called_unknown], called)


def called_unknown_groups(outcome: Outcome, groups: Labels) -> LabelArray:
    """Groups of the rows called unknown; what `groups` says of the other rows is ignored.

    Rows without a group (-1, or empty text) stay together: nothing was told apart among them.
    """
    names = read_labels(groups, "groups")
    same_length(len(outcome.predicted), "y_pred", len(names), "groups")
    return names[outcome.called_unknown]


def n_called_groups(called: LabelArray) -> int:
    """How many groups there are among the rows called unknown; having none is not a group."""
    found = np.unique(called)
    return int((found != ("" if found.dtype.kind == "U" else -1)).sum())


def named_private_classes(truth: Truth) -> int:
    """Number of private classes that have a row, refusing private rows without a name."""
    if truth.n_private_classes is None:
        raise DataError(f"{unnamed_private_rows(truth)}.")
    return truth.n_private_classes


def unnamed_private_rows(truth: Truth) -> str:
    """Why H³ and NMI have no value where y_true does not name the private classes."""
    also = "" if truth.source_classes is not None else ", and source_classes"
    return (
        f"{truth.n_unnamed} of {truth.n_private} private rows are only called {truth.unknown!r} in the true labels, "
        f"but H³ and NMI compare groups with private classes. Give their names in the true labels{also}"
    )
