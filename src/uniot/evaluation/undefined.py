"""What is said, and what stands in, where a score has no value on the data given."""

from __future__ import annotations

import warnings

from uniot.errors import UndefinedScoreWarning
from uniot.evaluation.outcome import Truth

NO_COMMON = (
    "no true label is a source class. If that surprises, compare the spelling of the true labels and of the classes"
)
NOTHING_UNKNOWN = "no row is called unknown"


def no_private(truth: Truth) -> str:
    """Why a score of private rows has no value, if none is private."""
    if truth.source_classes is not None:
        return "no row is private: every true label is a source class"
    return "no row of y_true is private. If private rows carry the names of their classes, give source_classes"


def stand_in(value: float | None, instead: float, score: str, why: str) -> float:
    """The value, or what stands in for it with a warning to the caller of the score function."""
    if value is not None:
        return value
    message = f"{score} has no value and {instead:g} stands in: {why}."
    warnings.warn(message, UndefinedScoreWarning, stacklevel=3)
    return instead


def missing_part(truth: Truth) -> str | None:
    """Which part a harmonic mean goes without, as a sentence; None where every part has rows."""
    if not truth.n_private:
        return f"the accuracy on common classes stands in: {no_private(truth)}."
    if not truth.n_common:
        return f"the parts about private rows stand in: {NO_COMMON}."
    return None
