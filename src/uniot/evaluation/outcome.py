"""Truth and prediction side by side: which rows are common, which were called unknown, which are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from uniot.errors import DataError, SettingsError
from uniot.evaluation.inputs import (
    UNKNOWN,
    Label,
    LabelArray,
    Labels,
    Mask,
    read_labels,
    same_kind,
    same_length,
)


@dataclass(frozen=True, eq=False)
class Truth:
    """What the target rows really are."""

    labels: LabelArray
    """True class of each row, or the word for unknown where a private row has no name, shape (n,)."""
    is_common: Mask
    """Whether the class is one of the source, shape (n,)."""
    source_classes: LabelArray | None
    """Distinct source classes, if they were given."""
    unknown: Label
    """The word for unknown among these labels."""

    @property
    def is_private(self) -> Mask:
        """Whether the class is not one of the source, shape (n,)."""
        return ~self.is_common

    @property
    def n_common(self) -> int:
        """Number of common rows."""
        return int(self.is_common.sum())

    @property
    def n_private(self) -> int:
        """Number of private rows."""
        return int(self.is_private.sum())

    @property
    def n_unnamed(self) -> int:
        """Number of private rows whose true class is not given, only that they are unknown."""
        return int((self.labels == self.unknown).sum())

    @property
    def n_private_classes(self) -> int | None:
        """Number of private classes that have a row; None where some private row has no name."""
        return None if self.n_unnamed else len(np.unique(self.labels[self.is_private]))

    def read_assigned(self, values: Labels, name: str, *, rows: Mask | None = None, unknown: bool = True) -> LabelArray:
        """Labels that a method gave to the same rows, checked against this truth.

        Args:
            values: A source class, or the word for unknown, per row.
            name: What to call them in an error.
            rows: Rows whose label counts; all by default.
            unknown: Whether the word for unknown is a possible label.
        """
        labels = read_labels(values, name)
        same_length(len(self.labels), "y_true", len(labels), name)
        same_kind(self.labels, "y_true", labels, name)
        counted = labels if rows is None else labels[rows]
        if not unknown and (counted == self.unknown).any():
            raise DataError(
                f"{name} holds {self.unknown!r}, but must name a source class in every row that counts: "
                "the class that the row gets if it is called known. Give the nearest class instead."
            )
        if self.source_classes is not None:
            strange = set(counted.tolist()) - set(self.source_classes.tolist()) - {self.unknown}
            if strange:
                raise DataError(
                    f"{name} holds {_some(strange)}, neither a source class nor {self.unknown!r}. "
                    f"Source classes are {_some(set(self.source_classes.tolist()))}: "
                    "compare the spelling, or give unknown=... if another word stands for unknown."
                )
        return labels


@dataclass(frozen=True, eq=False)
class Outcome:
    """A prediction beside the truth. Scores are shares between 0 and 1, or None where nothing is counted."""

    truth: Truth
    predicted: LabelArray
    """Source class or the word for unknown, shape (n,)."""

    @property
    def called_unknown(self) -> Mask:
        """Rows that were called unknown, shape (n,)."""
        called: Mask = np.asarray(self.predicted == self.truth.unknown)
        return called

    @cached_property
    def is_right(self) -> Mask:
        """Common rows given their class and private rows called unknown, shape (n,)."""
        right: Mask = np.where(self.truth.is_common, self.predicted == self.truth.labels, self.called_unknown)
        return right

    @property
    def overall_accuracy(self) -> float:
        """Share of all rows that are right."""
        return float(self.is_right.mean())

    @cached_property
    def recall_of_classes(self) -> Mapping[Label, float]:
        """Share of right rows in each common class that has a row, in sorted order."""
        common = self.truth.is_common
        classes, index = np.unique(self.truth.labels[common], return_inverse=True)
        share = np.bincount(index, weights=self.is_right[common]) / np.bincount(index) if index.size else index
        return dict(zip(classes.tolist(), share.tolist(), strict=True))

    @property
    def recall_with_unknown(self) -> dict[Label, float]:
        """Recall of each common class that has a row, then of unknown if there is a private row."""
        recall = self.unknown_recall
        return dict(self.recall_of_classes) | ({} if recall is None else {self.truth.unknown: recall})

    @property
    def confusion(self) -> dict[Label, dict[Label, int]]:
        """Number of rows of each true class by predicted label, without zeros; common classes first, then private."""
        found: dict[Label, dict[Label, int]] = {}
        for rows in (self.truth.is_common, self.truth.is_private):
            for name in np.unique(self.truth.labels[rows]).tolist():
                given, counts = np.unique(self.predicted[self.truth.labels == name], return_counts=True)
                found[name] = dict(zip(given.tolist(), counts.tolist(), strict=True))
        return found

    def common_accuracy(self, average: str = "class") -> float | None:
        """Accuracy on common rows, as a mean over the classes that have a row or over rows ("instance")."""
        if average not in ("class", "instance"):
            raise SettingsError(f"average must be 'class' or 'instance', but is {average!r}. Give one of the two.")
        if not self.truth.n_common:
            return None
        if average == "class":
            return float(np.mean(list(self.recall_of_classes.values())))
        return float(self.is_right[self.truth.is_common].mean())

    @property
    def unknown_recall(self) -> float | None:
        """Share of the private rows that were called unknown."""
        return float(self.called_unknown[self.truth.is_private].mean()) if self.truth.n_private else None

    @property
    def unknown_precision(self) -> float | None:
        """Share of the rows called unknown that are private."""
        called = self.called_unknown
        return float(self.truth.is_private[called].mean()) if called.any() else None


def read_truth(y_true: Labels, source_classes: Labels | None = None, unknown: Label = UNKNOWN) -> Truth:
    """Say which rows are common.

    With `source_classes`, a row is common if its label is one of them. Without, a row is private only if its
    label is the word for unknown.
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
            f"source_classes holds {word!r}, which stands for unknown. "
            "Leave it out of source_classes, or give unknown=... if another word stands for unknown."
        )
    return Truth(labels, np.isin(labels, classes), classes, word)


def compare(y_true: Labels, y_pred: Labels, source_classes: Labels | None, unknown: Label) -> Outcome:
    """Put a prediction beside the truth, after checking that they fit."""
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
