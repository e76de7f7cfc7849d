"""How many target rows are right: common rows given their class, private rows called unknown.

Every function takes `y_true` (class names, or the word for unknown where a row is private), `y_pred` (a
source class or the word for unknown), `source_classes` (what is common; any other true label is private) and
`unknown` (that word: "unknown", and -1 where labels are integers). Each score is a share between 0 and 1;
where no row counts, 0.0 with an `UndefinedScoreWarning`.
"""

from __future__ import annotations

from typing import Literal

from uniot.evaluation.inputs import UNKNOWN, Label, Labels
from uniot.evaluation.outcome import compare
from uniot.evaluation.undefined import NO_COMMON, NOTHING_UNKNOWN, no_private, stand_in


def overall_accuracy(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Share of all rows that are right, a private row being right when it is called unknown."""
    return compare(y_true, y_pred, source_classes, unknown).overall_accuracy


def per_class_recall(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> dict[Label, float]:
    """Share of right rows of each common class that has a row, then of unknown if there is a private row."""
    return compare(y_true, y_pred, source_classes, unknown).recall_with_unknown


def confusion(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> dict[Label, dict[Label, int]]:
    """Number of rows of each true class by predicted label, without zeros; common classes first, then private."""
    return compare(y_true, y_pred, source_classes, unknown).confusion


def common_accuracy(
    y_true: Labels,
    y_pred: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
    average: Literal["class", "instance"] = "class",
) -> float:
    """Accuracy on common rows, the first part of the H-score.

    Paper: a_C of Eq. (S1), in words the instance accuracy; the reference, and the default here, take the
    mean of per-class recalls. A source class without a row in the target is left out of that mean.

    Args:
        y_true: True class of each target row, or the word for unknown.
        y_pred: Source class or the word for unknown, per target row.
        source_classes: What is common; without it every row not marked unknown.
        unknown: The word for unknown.
        average: "class" gives each class the same weight, "instance" each row.

    Returns:
        A share; 0.0 with an `UndefinedScoreWarning` where no row is common.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    return stand_in(outcome.common_accuracy(average), 0.0, "common accuracy", NO_COMMON)


def unknown_recall(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Share of private rows called unknown, the second part of the H-score.

    Paper: the accuracy on the single private class of Eq. (S1). 0.0 with an `UndefinedScoreWarning` where no
    row is private.
    """
    outcome = compare(y_true, y_pred, source_classes, unknown)
    return stand_in(outcome.unknown_recall, 0.0, "unknown recall", no_private(outcome.truth))


def unknown_precision(
    y_true: Labels, y_pred: Labels, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Share of rows called unknown that are private.

    Paper: none (what a person who looks through the unknown rows sees). 0.0 with an `UndefinedScoreWarning`
    where nothing is called unknown.
    """
    return stand_in(
        compare(y_true, y_pred, source_classes, unknown).unknown_precision,
        0.0,
        "unknown precision",
        NOTHING_UNKNOWN,
    )
