"""Compare predictions with the true labels: which rows are common, predicted as unknown, or correct."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.errors import DataError, SettingsError, UndefinedScoreWarning
from uniot.io.labels import as_labels

UNKNOWN = "unknown"
"""Label of a private row; -1 if classes are integers."""

Label: TypeAlias = str | int
Labels: TypeAlias = "ArrayLike | Collection[str] | Collection[int]"
LabelArray: TypeAlias = "NDArray[np.str_] | NDArray[np.int64]"
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Truth:
    """The true labels of the target."""

    labels: LabelArray
    """True class of each row, (n_samples,); the unknown label for a private row without a class name."""
    is_common: Mask
    """Whether the class is a source class, (n_samples,)."""
    source_classes: LabelArray | None
    """Distinct source classes, (n_classes,); None if not given."""
    unknown: Label
    """Label of unknown rows."""

    @property
    def is_private(self) -> Mask:
        """Return whether the class is private, (n_samples,)."""
        return ~self.is_common

    @property
    def n_common(self) -> int:
        """Return the number of common rows."""
        return int(self.is_common.sum())

    @property
    def n_private(self) -> int:
        """Return the number of private rows."""
        return int(self.is_private.sum())

    @property
    def n_unnamed(self) -> int:
        """Return the number of private rows without a class name."""
        return int((self.labels == self.unknown).sum())

    @property
    def n_private_classes(self) -> int | None:
        """Return the number of private classes that have a row; None if some private row has no class name."""
        return None if self.n_unnamed else len(np.unique(self.labels[self.is_private]))

    def read_assigned(self, values: Labels, name: str, *, rows: Mask | None = None, unknown: bool = True) -> LabelArray:
        """Return predicted labels of the same rows after checking them against the true labels.

        Args:
            values: source class or unknown label of each row, (n_samples,).
            name: name of the argument for error messages.
            rows: rows whose label counts, (n_samples,); all if None.
            unknown: whether the unknown label is allowed.

        Returns:
            The labels, (n_samples,).
        """
        # A blank label is no source class, which is reported below, unless its row does not count.
        labels = read_labels(values, name, allow_blank=True)
        same_length(len(self.labels), "y_true", len(labels), name)
        same_kind(self.labels, "y_true", labels, name)
        counted = labels if rows is None else labels[rows]
        if not unknown and (counted == self.unknown).any():
            raise DataError(
                f"{name} holds {self.unknown!r}, but must name a source class in every row that counts: "
                "the class of the row if it is predicted as known. Give the nearest class instead."
            )
        if self.source_classes is not None:
            strange = set(counted.tolist()) - set(self.source_classes.tolist()) - {self.unknown}
            if strange:
                raise DataError(
                    f"{name} holds {_some(strange)}, neither a source class nor {self.unknown!r}. "
                    f"Source classes are {_some(set(self.source_classes.tolist()))}: "
                    "compare the spelling, or give unknown=... if unknown rows have another label."
                )
        return labels


@dataclass(frozen=True, eq=False)
class Outcome:
    """Predictions compared with the true labels. Scores are between 0 and 1, or None if no row counts."""

    truth: Truth
    predicted: LabelArray
    """Source class or unknown label of each row, (n_samples,)."""

    @property
    def called_unknown(self) -> Mask:
        """Return whether each row is predicted as unknown, (n_samples,)."""
        called: Mask = np.asarray(self.predicted == self.truth.unknown)
        return called

    @cached_property
    def is_right(self) -> Mask:
        """Return whether each row is correct: a common row in its class, a private row as unknown, (n_samples,)."""
        right: Mask = np.where(self.truth.is_common, self.predicted == self.truth.labels, self.called_unknown)
        return right

    @property
    def overall_accuracy(self) -> float:
        """Return the fraction of rows that are correct."""
        return float(self.is_right.mean())

    @cached_property
    def recall_of_classes(self) -> Mapping[Label, float]:
        """Return the recall of each common class that has a row, in sorted order."""
        common = self.truth.is_common
        classes, index = np.unique(self.truth.labels[common], return_inverse=True)
        share = np.bincount(index, weights=self.is_right[common]) / np.bincount(index) if index.size else index
        return dict(zip(classes.tolist(), share.tolist(), strict=True))

    @property
    def recall_with_unknown(self) -> dict[Label, float]:
        """Return the recall of each common class that has a row, then of unknown if a row is private."""
        recall = self.unknown_recall
        return dict(self.recall_of_classes) | ({} if recall is None else {self.truth.unknown: recall})

    @property
    def confusion(self) -> dict[Label, dict[Label, int]]:
        """Return row counts by true class and predicted label, without zeros; common classes first."""
        found: dict[Label, dict[Label, int]] = {}
        for rows in (self.truth.is_common, self.truth.is_private):
            for name in np.unique(self.truth.labels[rows]).tolist():
                given, counts = np.unique(self.predicted[self.truth.labels == name], return_counts=True)
                found[name] = dict(zip(given.tolist(), counts.tolist(), strict=True))
        return found

    def common_accuracy(self, average: str = "class") -> float | None:
        """Return the accuracy on common rows, averaged over classes that have a row or over rows ("instance")."""
        if average not in ("class", "instance"):
            raise SettingsError(f"average must be 'class' or 'instance', but is {average!r}. Give one of the two.")
        if not self.truth.n_common:
            return None
        if average == "class":
            return float(np.mean(list(self.recall_of_classes.values())))
        return float(self.is_right[self.truth.is_common].mean())

    @property
    def unknown_recall(self) -> float | None:
        """Return the fraction of private rows that are predicted as unknown."""
        return float(self.called_unknown[self.truth.is_private].mean()) if self.truth.n_private else None

    @property
    def unknown_precision(self) -> float | None:
        """Return the fraction of rows predicted as unknown that are private."""
        called = self.called_unknown
        return float(self.truth.is_private[called].mean()) if called.any() else None


def read_truth(y_true: Labels, source_classes: Labels | None = None, unknown: Label = UNKNOWN) -> Truth:
    """Read the true labels and decide which rows are common.

    Args:
        y_true: true class of each row, (n_samples,).
        source_classes: source classes; any other label is private. If None, only the unknown label is private.
        unknown: label of unknown rows.

    Returns:
        The checked labels.
    """
    labels = read_labels(y_true, "y_true")
    word = _unknown_word(labels, unknown)
    if source_classes is None:
        return Truth(labels, np.asarray(labels != word), None, word)
    given = read_labels(source_classes, "source_classes")
    same_kind(labels, "y_true", given, "source_classes")
    classes: LabelArray = np.unique(given)  # type: ignore[assignment]
    if word in classes.tolist():
        raise DataError(
            f"source_classes holds {word!r}, which is the label of unknown rows. "
            "Leave it out of source_classes, or give unknown=... if unknown rows have another label."
        )
    return Truth(labels, np.isin(labels, classes), classes, word)


def compare(y_true: Labels, y_pred: Labels, source_classes: Labels | None, unknown: Label) -> Outcome:
    """Return predictions with the true labels after checking that they fit together."""
    truth = read_truth(y_true, source_classes, unknown)
    return Outcome(truth, truth.read_assigned(y_pred, "y_pred"))


def _unknown_word(labels: LabelArray, unknown: Label) -> Label:
    if labels.dtype.kind == "i" and unknown == UNKNOWN:
        return -1
    if isinstance(unknown, str) != (labels.dtype.kind == "U"):
        kind = "text" if labels.dtype.kind == "U" else "integers"
        raise DataError(
            f"unknown is {unknown!r}, but the labels are {kind}. Give the label of unknown rows; "
            "by default 'unknown' for text and -1 for integers."
        )
    return unknown if isinstance(unknown, str) else int(unknown)


def _some(labels: set[Label], most: int = 5) -> str:
    listed = sorted(labels)
    return ", ".join(repr(label) for label in listed[:most]) + (" ..." if len(listed) > most else "")


NO_COMMON = (
    "no true label is a source class. If that surprises, compare the spelling of the true labels and of the classes"
)
NOTHING_UNKNOWN = "no row is predicted as unknown"
NO_GROUP = "no group was found among the rows predicted as unknown. For h3_score_honest they are one group"


def no_private(truth: Truth) -> str:
    """Return why a score of private rows is undefined if no row is private."""
    if truth.source_classes is not None:
        return "no row is private: every true label is a source class"
    return "no row of y_true is private. If private rows carry the names of their classes, give source_classes"


def stand_in(value: float | None, instead: float, score: str, why: str) -> float:
    """Return the value, or a substitute with a warning to the caller of the score function."""
    if value is not None:
        return value
    message = f"{score} is undefined; {instead:g} is returned: {why}."
    warnings.warn(message, UndefinedScoreWarning, stacklevel=3)
    return instead


def missing_part(truth: Truth) -> str | None:
    """Return a sentence about the part that a harmonic mean lacks; None if every part has rows."""
    if not truth.n_private:
        return f"the accuracy on common classes is used instead: {no_private(truth)}."
    if not truth.n_common:
        return f"the scores of the private rows are used instead: {NO_COMMON}."
    return None


def read_labels(values: Labels, name: str, *, allow_blank: bool = False) -> LabelArray:
    """Return one label per row, all text or all integers, (n_samples,); blank text only if it is allowed."""
    if isinstance(values, (list, tuple, Set)):
        # As objects, elements keep their types; NumPy would convert ["a", 1] to text.
        values = np.array(list(values), dtype=object)
    return as_labels(read_vector(values, name), name, allow_blank=allow_blank)


def same_kind(labels: LabelArray, name: str, other: LabelArray, other_name: str) -> None:
    """Raise if one array holds text and the other integers."""
    if labels.dtype.kind != other.dtype.kind:
        words = {"U": "text", "i": "integers"}
        raise DataError(
            f"{name} holds {words[labels.dtype.kind]}, {other_name} holds {words[other.dtype.kind]}. "
            "Give both as class names or both as integers (-1 for unknown)."
        )


def same_length(n: int, name: str, n_other: int, other_name: str) -> None:
    """Raise if two arrays have different lengths."""
    if n != n_other:
        raise DataError(
            f"{name} has {n} rows, {other_name} has {n_other}. Give both for the same target rows, in the same order."
        )


def read_vector(values: Any, name: str) -> NDArray[Any]:
    """Return one value per row, (n_samples,), from a list, an array or a tensor on any device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked values. Leave these rows out, or fill them: `{name}.filled(…)`.")
    try:
        vector = np.asarray(values)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{name} cannot be read as one value per row: {cause}. Give a flat list.") from cause
    if vector.ndim != 1:
        raise DataError(f"{name} has shape {vector.shape}. Give one value per row, as a flat list.")
    if not vector.size:
        raise DataError(f"{name} is empty. Give at least one row.")
    return vector
