"""Compute accuracies of predictions for the target: common rows in their class, private rows as unknown.

Common arguments: `y_true` (true classes, or the unknown label for private rows), `y_pred` (source classes, or the
unknown label), `source_classes` (any other true label is private) and `unknown` (the unknown label: "unknown", or -1
for integer labels). Scores are between 0 and 1. A score for which no row counts is 0.0, with a warning
(`UndefinedScoreWarning`).
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.errors import DataError, UndefinedScoreWarning
from uniot.metrics.grouping import honest_nmi, oracle_nmi
from uniot.metrics.outcome import (
    NO_COMMON,
    NOTHING_UNKNOWN,
    UNKNOWN,
    Label,
    Labels,
    Truth,
    compare,
    missing_part,
    no_private,
    read_truth,
    same_length,
    stand_in,
)
from uniot.metrics.ranking import read_mask


def overall_accuracy(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Return the fraction of all rows that are correct; a private row is correct as unknown."""
    return compare(y_true, y_pred, source_classes, unknown).overall_accuracy


def per_class_recall(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> dict[Label, float]:
    """Return the recall of each common class that has a row, then of unknown if a row is private."""
    return compare(y_true, y_pred, source_classes, unknown).recall_with_unknown


def confusion(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> dict[Label, dict[Label, int]]:
    """Return row counts by true class and predicted label, without zeros; common classes first, then private ones."""
    return compare(y_true, y_pred, source_classes, unknown).confusion


def common_accuracy(
    y_true: Labels,
    y_pred: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
    average: Literal["class", "instance"] = "class",
) -> float:
    """Return the accuracy on common rows, the first part of the H-score.

    Paper: a_C of Eq. (S1). The text defines it over instances; the reference code, and the default here, average the
    recalls of the classes. Source classes without a row in the target are left out.

    Args:
        y_true: true class of each target row, or the unknown label if it is private, (n_samples,).
        y_pred: source class or unknown label of each target row, (n_samples,).
        source_classes: source classes; if None, every row without the unknown label is common.
        unknown: label of unknown rows.
        average: "class" gives each class the same weight, "instance" each row.

    Returns:
        Accuracy from 0 to 1; 0.0 with an `UndefinedScoreWarning` if no row is common.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    return stand_in(outcome.common_accuracy(average), 0.0, "common accuracy", NO_COMMON)


def unknown_recall(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Return the fraction of private rows that are predicted as unknown, the second part of the H-score.

    Paper: the accuracy on the single private class of Eq. (S1).

    Returns:
        Recall from 0 to 1; 0.0 with an `UndefinedScoreWarning` if no row is private.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    return stand_in(outcome.unknown_recall, 0.0, "unknown recall", no_private(outcome.truth))


def unknown_precision(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Return the fraction of rows predicted as unknown that are private.

    Paper: none. 0.0 with an `UndefinedScoreWarning` if no row is predicted as unknown.
    """
    return stand_in(
        compare(y_true, y_pred, source_classes, unknown).unknown_precision,
        0.0,
        "unknown precision",
        NOTHING_UNKNOWN,
    )


def common_recall(
    y_true: Labels,
    detected: ArrayLike,
    assigned: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
) -> float:
    """Return the fraction of common rows that are detected as common and assigned to their class.

    Paper: recall of Fig. S1a.

    Args:
        y_true: true class of each row, or the unknown label if it is private, (n_samples,).
        detected: whether each row is detected as common, (n_samples,).
        assigned: source class of each row, (n_samples,); used only for detected rows.
        source_classes: source classes; any other true label is private.
        unknown: label of unknown rows; for integer labels, the default means -1.

    Returns:
        Recall from 0 to 1; 0.0 with an `UndefinedScoreWarning` if no row is common.
    """
    truth = read_truth(y_true, source_classes, unknown)
    found = _read_detected(truth, detected)
    right = found & (truth.read_assigned(assigned, "assigned", rows=found, unknown=False) == truth.labels)
    recall = float(right[truth.is_common].mean()) if truth.n_common else None
    return stand_in(recall, 0.0, "common recall", NO_COMMON)


def specificity(
    y_true: Labels, detected: ArrayLike, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Return the fraction of private rows that are not detected as common.

    Paper: specificity of Fig. S1a. The text there mentions a "low specificity" as an advantage, but by the paper's own
    definition, which is the one here, higher is better.

    Args:
        y_true: true class of each row, or the unknown label if it is private, (n_samples,).
        detected: whether each row is detected as common, (n_samples,).
        source_classes: source classes; any other true label is private.
        unknown: label of unknown rows; for integer labels, the default means -1.

    Returns:
        Specificity from 0 to 1; 0.0 with an `UndefinedScoreWarning` if no row is private.
    """
    truth = read_truth(y_true, source_classes, unknown)
    found = _read_detected(truth, detected)
    rate = float((~found)[truth.is_private].mean()) if truth.n_private else None
    return stand_in(rate, 0.0, "specificity", no_private(truth))


def _read_detected(truth: Truth, detected: ArrayLike) -> NDArray[np.bool_]:
    found = read_mask(detected, "detected")
    same_length(len(truth.labels), "y_true", len(found), "detected")
    return found


def harmonic_mean(*parts: float | None) -> float:
    """Return the harmonic mean of the parts that are not None; 0 if one of them is 0."""
    values = [part for part in parts if part is not None]
    if not values or min(values) <= 0.0:
        return 0.0
    return len(values) / sum(1.0 / value for value in values)


def h_score(
    y_true: Labels,
    y_pred: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
    average: Literal["class", "instance"] = "class",
) -> float:
    """Return the H-score: the harmonic mean of the accuracy on common classes and the recall of unknown.

    Paper: Eq. (S1).

    Args:
        y_true: true class of each target row, or the unknown label if it is private, (n_samples,).
        y_pred: source class or unknown label of each target row, (n_samples,).
        source_classes: source classes; any other true label is private. If None, only rows with the unknown label are
            private.
        unknown: label of unknown rows; for integer labels, the default means -1.
        average: how the accuracy on common classes is averaged; see `common_accuracy`.

    Returns:
        Score from 0 to 1. With an `UndefinedScoreWarning`: the accuracy on common classes if no row is private, the
        recall of unknown if no row is common.

    References:
        Fu, Cao, Long and Wang. Learning to Detect Open Classes for Universal Domain Adaptation (CMU). ECCV 2020.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    score = harmonic_mean(outcome.common_accuracy(average), outcome.unknown_recall)
    _warn_of_missing_part("H-score", outcome.truth)
    return score


def h3_score(
    y_true: Labels,
    y_pred: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
    average: Literal["class", "instance"] = "class",
    oracle: bool = False,
    features: ArrayLike | None = None,
    groups: Labels | None = None,
    seed: int = 0,
) -> float:
    """Return the H³-score: the harmonic mean of common accuracy, unknown recall and the NMI of the private groups.

    Paper: Eq. (16) with `oracle=True`; the default is the honest variant, whose groups do not use the truth.

    Args:
        y_true: true class of each target row, including private classes, (n_samples,).
        y_pred: source class or unknown label of each target row, (n_samples,).
        source_classes: source classes; any other true label is private.
        unknown: label of unknown rows; for integer labels, the default means -1.
        average: how the accuracy on common classes is averaged; see `common_accuracy`.
        oracle: whether to cluster the `features` of the truly private rows into the true number of private classes, as
            the paper does; otherwise the `groups` of the rows predicted as unknown are scored.
        features: features of the target rows, (n_samples, n_features); for `oracle=True`.
        groups: group of each target row, (n_samples,), used only for rows predicted as unknown; for `oracle=False`.
        seed: random seed of the k-means.

    Returns:
        Score from 0 to 1; 0 if no row is predicted as unknown. With an `UndefinedScoreWarning`: the accuracy on common
        classes if no row is private, the harmonic mean of the other two if no row is common.

    References:
        Chang, Shi, Tuan and Wang. Unified Optimal Transport Framework for Universal Domain Adaptation. NeurIPS 2022,
        arXiv:2210.17067.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    if oracle:
        if features is None:
            raise DataError("H³ with oracle=True clusters features, but none were given. Give features=...")
        nmi = oracle_nmi(outcome.truth, features, seed=seed)
    else:
        if groups is None:
            raise DataError(
                "H³ scores the groups of the rows predicted as unknown, but none were given. "
                "Give groups=..., or features=... with oracle=True for the score of the paper."
            )
        nmi = honest_nmi(outcome, groups)
    score = harmonic_mean(outcome.common_accuracy(average), outcome.unknown_recall, nmi)
    _warn_of_missing_part("H³-score", outcome.truth)
    return score


def _warn_of_missing_part(score: str, truth: Truth) -> None:
    sentence = missing_part(truth)
    if sentence:
        warnings.warn(f"{score}: {sentence}", UndefinedScoreWarning, stacklevel=3)
