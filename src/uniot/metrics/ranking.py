"""Evaluate the known score itself, over all thresholds: how well it separates common from private rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.errors import DataError
from uniot.metrics.outcome import (
    NO_COMMON,
    UNKNOWN,
    Label,
    Labels,
    Mask,
    Truth,
    no_private,
    read_truth,
    read_vector,
    same_length,
    stand_in,
)


def auroc(is_common: ArrayLike, known_score: ArrayLike) -> float:
    """Return the probability that a common row has a higher known score than a private one; a tie counts half.

    Paper: none.

    Args:
        is_common: whether each row is of a common class, (n_samples,).
        known_score: higher for rows that are more likely common, (n_samples,).

    Returns:
        Area under the ROC curve; 0.5 with an `UndefinedScoreWarning` if all rows are common or all are private.
    """
    common, numbers = read_mask(is_common, "is_common"), read_score(known_score)
    same_length(len(common), "is_common", len(numbers), "known_score")
    return stand_in(
        area_under_roc(common, numbers),
        0.5,
        "AUROC",
        "it compares common with private rows, and one of the two is missing",
    )


def oscr(
    y_true: Labels,
    nearest: Labels,
    known_score: ArrayLike,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
) -> float:
    """Return the area under the open-set classification rate curve (OSCR).

    The curve plots the rate of common rows that are predicted as known in their class against the rate of private rows
    that are predicted as known, over all thresholds on the known score. Rows of equal score enter together, joined by a
    straight line. If every `nearest` is correct, the area is the AUROC.

    Paper: none.

    Args:
        y_true: true class of each target row, or the unknown label, (n_samples,).
        nearest: source class of each row if it is predicted as known, (n_samples,).
        known_score: higher for rows that are more likely common, (n_samples,).
        source_classes: source classes; any other true label is private.
        unknown: label of unknown rows; for integer labels, the default means -1.

    Returns:
        Area between 0 and 1. With an `UndefinedScoreWarning`: the fraction of rows whose nearest class is correct if no
        row is private, 0 if no row is common.

    References:
        Dhamija, Günther and Boult. Reducing Network Agnostophobia. NeurIPS 2018, arXiv:1811.04110.
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
    """Return whether the nearest class is the true one, (n_samples,); False for private rows."""
    right: NDArray[np.bool_] = truth.is_common & (
        truth.read_assigned(nearest, "nearest", unknown=False) == truth.labels
    )
    return right


def area_under_roc(is_common: NDArray[np.bool_], known_score: NDArray[np.float64]) -> float | None:
    """Return the AUROC; None if all rows are common or all are private."""
    return area_under_oscr(is_common, is_common, known_score)


def area_under_oscr(
    is_common: NDArray[np.bool_], is_right: NDArray[np.bool_], known_score: NDArray[np.float64]
) -> float | None:
    """Return the OSCR; None if all rows are common or all are private.

    By the trapezoidal rule, the area is the fraction of pairs (common row, private row) in which the common row is
    correct and has the higher score; ties count half. One sort replaces a sweep over the thresholds.

    Args:
        is_common: whether each row is of a common class, (n_samples,).
        is_right: whether the nearest class is the true one, (n_samples,).
        known_score: higher for rows that are more likely common, (n_samples,).
    """
    n_common, n_private = int(is_common.sum()), int((~is_common).sum())
    if not n_common or not n_private:
        return None
    private = np.sort(known_score[~is_common])
    right = known_score[is_right]
    below = np.searchsorted(private, right, side="left") + np.searchsorted(private, right, side="right")
    return float(below.sum() / 2 / n_common / n_private)


def best_threshold_h_score(
    y_true: Labels,
    nearest: Labels,
    known_score: ArrayLike,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
) -> float:
    """Return the highest H-score over all thresholds on the known score.

    A row at or above the threshold is predicted as its `nearest` class, any other as unknown; rows of equal score stay
    together. The common accuracy is the mean over classes.

    Args:
        y_true: true class of each target row, or the unknown label, (n_samples,).
        nearest: source class of each row if it is predicted as known, (n_samples,).
        known_score: higher for rows that are more likely common, (n_samples,).
        source_classes: source classes; any other true label is private.
        unknown: label of unknown rows; for integer labels, the default means -1.

    Returns:
        H-score between 0 and 1. If no row is private, the common accuracy without rejection; if no row is common, 1,
        which rejecting everything reaches.
    """
    truth = read_truth(y_true, source_classes, unknown)
    right = nearest_is_right(truth, nearest)
    numbers = read_score(known_score)
    same_length(len(right), "y_true", len(numbers), "known_score")
    if not truth.n_common:
        return 1.0
    _, index, sizes = np.unique(truth.labels[truth.is_common], return_inverse=True, return_counts=True)
    # Contribution of a correct row to the mean of the class accuracies.
    weights = np.zeros(len(right))
    weights[truth.is_common] = 1 / (len(sizes) * sizes[index])
    order = np.argsort(-numbers, kind="stable")
    last_of_a_tie = np.append(np.flatnonzero(np.diff(numbers[order])), len(order) - 1)
    accuracy = np.cumsum((weights * right)[order])[last_of_a_tie]
    if not truth.n_private:
        return min(1.0, float(accuracy[-1]))
    recall = 1 - np.cumsum(truth.is_private[order])[last_of_a_tie] / truth.n_private
    total = accuracy + recall
    h_scores = 2 * accuracy * recall / np.where(total > 0, total, 1)
    return min(1.0, float(h_scores.max()))


def read_score(values: ArrayLike, name: str = "known_score") -> NDArray[np.float64]:
    """Return one number per row, (n_samples,); infinity is allowed, NaN is not."""
    raw = read_vector(values, name)
    if raw.dtype.kind not in "fiub":
        raise DataError(f"{name} must be numbers, but is {raw.dtype}. Give one number per row.")
    numbers = raw.astype(np.float64)
    broken = np.flatnonzero(np.isnan(numbers))
    if broken.size:
        raise DataError(
            f"{broken.size} of {len(numbers)} values of {name} are NaN (first: row {broken[0]}). "
            "Give every row a number; infinity is allowed."
        )
    return numbers


def read_mask(values: ArrayLike, name: str) -> Mask:
    """Return one bool per row, (n_samples,), from bool or from 0 and 1."""
    raw = read_vector(values, name)
    if raw.dtype.kind not in "biuf" or not np.isin(raw, (0, 1)).all():
        raise DataError(f"{name} must be true or false for each row, but holds other values. Give bool, 0 or 1.")
    return raw.astype(np.bool_)
