"""H-score and H³-score: high only if every part is high."""

from __future__ import annotations

import warnings
from typing import Literal

from numpy.typing import ArrayLike

from uniot.errors import DataError, UndefinedScoreWarning
from uniot.evaluation.inputs import UNKNOWN, Label, Labels
from uniot.evaluation.outcome import Truth, compare
from uniot.evaluation.private_nmi import honest_nmi, oracle_nmi
from uniot.evaluation.undefined import missing_part


def harmonic_mean(*parts: float | None) -> float:
    """Harmonic mean of the parts that have a value; 0 as soon as one of them is 0."""
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
    """Harmonic mean of the accuracy on common classes and the recall of unknown.

    Paper: Eq. (S1).

    Args:
        y_true: True class of each target row, or the word for unknown where it is private.
        y_pred: Source class or the word for unknown, per target row.
        source_classes: What is common; any other true label is private. Without it, only rows marked with the
            word for unknown are private.
        unknown: The word for unknown; where labels are integers, the default means -1.
        average: How rows make the accuracy on common classes; see `common_accuracy`.

    Returns:
        A share between 0 and 1. With an `UndefinedScoreWarning`: where no row is private, the accuracy on
        common classes; where no row is common, the recall of unknown.
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
    """Harmonic mean of the accuracy on common classes, the recall of unknown, and the NMI of private groups.

    Paper: Eq. (16) with `oracle=True`; the default is the honest variant, which looks up no truth to make
    groups.

    Args:
        y_true: True class name of each target row, private rows included.
        y_pred: Source class or the word for unknown, per target row.
        source_classes: What is common; any other true label is private.
        unknown: The word for unknown; where labels are integers, the default means -1.
        average: How rows make the accuracy on common classes; see `common_accuracy`.
        oracle: Make groups anew by spherical k-means on the `features` of the truly private rows with the
            true number of private classes, as the paper does; otherwise score the `groups` of rows called
            unknown.
        features: Feature of each target row, shape (n, d); for `oracle=True`.
        groups: Group of each target row, read only where a row is called unknown; for `oracle=False`.
        seed: Seed of the k-means.

    Returns:
        A share between 0 and 1; 0 where nothing is called unknown. With an `UndefinedScoreWarning`: where no
        row is private, the accuracy on common classes; where no row is common, the harmonic mean of the
        other two.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    if oracle:
        if features is None:
            raise DataError("H³ with oracle=True groups the features itself, but none came. Give features=...")
        nmi = oracle_nmi(outcome.truth, features, seed=seed)
    else:
        if groups is None:
            raise DataError(
                "H³ scores the groups of the rows called unknown, but none came. "
                "Give groups=..., or features=... with oracle=True for the figure that the paper prints."
            )
        nmi = honest_nmi(outcome, groups)
    score = harmonic_mean(outcome.common_accuracy(average), outcome.unknown_recall, nmi)
    _warn_of_missing_part("H³-score", outcome.truth)
    return score


def _warn_of_missing_part(score: str, truth: Truth) -> None:
    sentence = missing_part(truth)
    if sentence:
        warnings.warn(f"{score}: {sentence}", UndefinedScoreWarning, stacklevel=3)
