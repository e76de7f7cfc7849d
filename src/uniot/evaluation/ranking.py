"""How well a known score sets common rows before private ones, whatever threshold is taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.evaluation.inputs import UNKNOWN, Label, Labels, read_mask, read_score, same_length
from uniot.evaluation.outcome import Truth, read_truth
from uniot.evaluation.undefined import NO_COMMON, no_private, stand_in


def auroc(is_common: ArrayLike, known_score: ArrayLike) -> float:
    """Chance that a common row has a larger score than a private one, a tie counting half.

    Paper: none (threshold-free view of the detection).

    Args:
        is_common: Whether each row is of a common class, shape (n,).
        known_score: Larger for more surely common, shape (n,).

    Returns:
        Area under the ROC curve; 0.5 with an `UndefinedScoreWarning` where all rows are common or all
        private.
    """
    common, numbers = read_mask(is_common, "is_common"), read_score(known_score)
    same_length(len(common), "is_common", len(numbers), "known_score")
    return stand_in(
        area_under_roc(common, numbers),
        0.5,
        "AUROC",
        "it compares common with private rows, and one kind is missing",
    )


def oscr(
    y_true: Labels,
    nearest: Labels,
    known_score: ArrayLike,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
) -> float:
    """Area under correct classification of common rows against false positives of private rows.

    A threshold on the score runs from above the largest to below the smallest; rows at or above it are
    called known and get their `nearest` class. Rows of equal score enter together, joined by a straight
    line. With every `nearest` right the area is the AUROC.

    Paper: none (open-set classification rate of Dhamija et al., 2018).

    Args:
        y_true: True class of each target row, or the word for unknown where it is private.
        nearest: The source class that each row gets if it is called known.
        known_score: Larger for more surely common, shape (n,).
        source_classes: What is common; any other true label is private.
        unknown: The word for unknown; where labels are integers, the default means -1.

    Returns:
        A share between 0 and 1. With an `UndefinedScoreWarning`: where no row is private, the share of rows
        whose nearest class is right; where no row is common, 0.
    """
    truth = read_truth(y_true, source_classes, unknown)
    right = nearest_is_right(truth, nearest)
    numbers = read_score(known_score)
    same_length(len(right), "y_true", len(numbers), "known_score")
    if not truth.n_common:
        return stand_in(None, 0.0, "OSCR", NO_COMMON)
    closed_set_accuracy = float(right[truth.is_common].mean())
    return stand_in(area_under_oscr(truth.is_common, right, numbers), closed_set_accuracy, "OSCR", no_private(truth))


def nearest_is_right(truth: Truth, nearest: Labels) -> NDArray[np.bool_]:
    """Whether the nearest class is the true class; never for a private row, shape (n,)."""
    right: NDArray[np.bool_] = truth.is_common & (
        truth.read_assigned(nearest, "nearest", unknown=False) == truth.labels
    )
    return right


def area_under_roc(is_common: NDArray[np.bool_], known_score: NDArray[np.float64]) -> float | None:
    """AUROC; None where all rows are common or all private."""
    return area_under_oscr(is_common, is_common, known_score)


def area_under_oscr(
    is_common: NDArray[np.bool_], is_right: NDArray[np.bool_], known_score: NDArray[np.float64]
) -> float | None:
    """OSCR; None where all rows are common or all private.

    By trapezia, the area is the share of pairs (common row, private row) in which the common row is right
    and has the larger score, ties counting half: one sort instead of a sweep.
    """
    n_common, n_private = int(is_common.sum()), int((~is_common).sum())
    if not n_common or not n_private:
        return None
    private = np.sort(known_score[~is_common])
    right = known_score[is_right]
    below = np.searchsorted(private, right, side="left") + np.searchsorted(private, right, side="right")
    return float(below.sum() / 2 / n_common / n_private)
