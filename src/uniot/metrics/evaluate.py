"""Compute all scores of a prediction at once, with a note for each score that is undefined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from numpy.typing import ArrayLike

from uniot.io.text import plural
from uniot.metrics.accuracy import harmonic_mean
from uniot.metrics.grouping import (
    adjusted_rand,
    called_unknown_groups,
    honest_nmi,
    hungarian_accuracy,
    n_called_groups,
    oracle_nmi,
    purity,
    unnamed_private_rows,
)
from uniot.metrics.outcome import (
    NO_COMMON,
    NO_GROUP,
    NOTHING_UNKNOWN,
    UNKNOWN,
    Label,
    Labels,
    Outcome,
    compare,
    missing_part,
    no_private,
    same_length,
)
from uniot.metrics.ranking import area_under_oscr, area_under_roc, nearest_is_right, read_score

SCORE_MEANINGS: dict[str, str] = {
    "h_score": "Overall: high only if common accuracy and unknown recall both are (their harmonic mean).",
    "h3_score_honest": "Harmonic mean of common accuracy, unknown recall and the NMI of the groups found.",
    "h3_score_oracle": "H³ as published: its NMI uses the true private samples and the true number of their classes.",
    "nmi_honest": "How much groups and true classes of the unknown have in common; 0 is nothing, 100 is all.",
    "nmi_oracle": "How well k-means with the true number of classes separates the true private samples.",
    "common_accuracy": "Of the samples of your classes, those with the right label; every class counts the same.",
    "common_accuracy_instance": "As common accuracy, but every sample counts the same.",
    "overall_accuracy": "Of all samples, those that are right: the right label, or unknown for a new class.",
    "unknown_recall": "Of the samples of new classes, those called unknown.",
    "unknown_precision": "Of the samples called unknown, those that are of new classes.",
    "auroc": "Chance that a sample of your classes looks more known than one of a new class; 50 is guessing.",
    "oscr": "As AUROC, but samples of your classes also need the right label.",
    "hungarian_accuracy": "Of the samples called unknown, those in the right group if each new class has one group.",
    "purity": "Of the samples called unknown, those of the most frequent true class in their group.",
    "adjusted_rand": "How well groups put together what belongs together; 0 is chance, 100 are the true classes.",
}
"""Meaning of each score of `Evaluation` in one sentence, for tables that show scores in per cent."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of one prediction; 1 is best, and None is undefined with a note that gives the reason."""

    h_score: float
    h3_score_honest: float | None
    h3_score_oracle: float | None
    nmi_honest: float | None
    nmi_oracle: float | None
    common_accuracy: float | None
    common_accuracy_instance: float | None
    overall_accuracy: float
    unknown_recall: float | None
    unknown_precision: float | None
    auroc: float | None
    oscr: float | None
    hungarian_accuracy: float | None
    purity: float | None
    adjusted_rand: float | None
    n_private_true: int | None
    """Number of private classes that have a row in the target; None if y_true does not name them."""
    n_groups: int | None
    """Number of groups among the rows predicted as unknown; None if no groups were given."""
    n_groups_error: int | None
    """Number of groups minus number of private classes; None if either is None."""
    average: str
    """Averaging of the common accuracy in h_score and both h3_scores: "class" or "instance"."""
    per_class_recall: Mapping[Label, float]
    """Recall of each common class that has a row, then of unknown."""
    counts: Mapping[str, int]
    """Number of rows, common rows, private rows, and rows predicted as unknown."""
    notes: tuple[str, ...]
    """One sentence per reason why scores are undefined or replaced by others."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name in JSON types; class names become text."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        values["per_class_recall"] = {str(name): recall for name, recall in self.per_class_recall.items()}
        return values | {"counts": dict(self.counts), "notes": list(self.notes)}


def evaluate(
    y_true: Labels,
    y_pred: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
    average: Literal["class", "instance"] = "class",
    known_score: ArrayLike | None = None,
    nearest: Labels | None = None,
    features: ArrayLike | None = None,
    groups: Labels | None = None,
    seed: int = 0,
) -> Evaluation:
    """Compute all scores that the arguments allow.

    A score that is undefined for valid data is None, with a note that gives the reason; there are no warnings.

    Args:
        y_true: true class of each target row, or the unknown label if it is private, (n_samples,).
        y_pred: source class or unknown label of each target row, (n_samples,).
        source_classes: source classes; any other true label is private. If None, only rows with the unknown label are
            private.
        unknown: label of unknown rows; for integer labels, the default means -1.
        average: how H and H³ average the accuracy on common classes: "class" or "instance".
        known_score: higher for rows that are more likely common, (n_samples,); for AUROC and OSCR.
        nearest: source class of each row if it is predicted as known, (n_samples,); for OSCR.
        features: features of the target rows, (n_samples, n_features); for the oracle H³ and NMI.
        groups: group of each target row, (n_samples,), used only for rows predicted as unknown; for the honest H³ and
            NMI.
        seed: random seed of the k-means of the oracle NMI.

    Returns:
        The scores, the row counts and the notes.

    Raises:
        DataError: the arguments have different lengths, labels that do not fit together, or NaN.
    """
    scoring = _Scores(compare(y_true, y_pred, source_classes, unknown), average)
    scoring.add_label_scores()
    n_groups = scoring.add_group_scores(groups)
    scoring.add_oracle_scores(features, seed)
    scoring.add_ranking_scores(known_score, nearest)
    outcome, truth = scoring.outcome, scoring.outcome.truth
    return Evaluation(
        h_score=scoring.harmonic("h_score"),
        overall_accuracy=outcome.overall_accuracy,
        n_private_true=truth.n_private_classes,
        n_groups=n_groups,
        n_groups_error=None
        if n_groups is None or truth.n_private_classes is None
        else n_groups - truth.n_private_classes,
        average=average,
        per_class_recall=outcome.recall_with_unknown,
        counts={
            "rows": len(truth.labels),
            "common": truth.n_common,
            "private": truth.n_private,
            "called_unknown": int(outcome.called_unknown.sum()),
        },
        notes=scoring.notes,
        **scoring.scores,
    )


_NO_VALUE = "no value"


def _note(names: list[str], words: str) -> str:
    if not names:
        return words
    if words.startswith(_NO_VALUE):
        words = f"{plural(len(names), 'has', 'have')} {words}"
        return f"{', '.join(names)} {words}"
    return f"{', '.join(names)}: {words}"


@dataclass
class _Scores:
    """Scores and notes during their computation."""

    outcome: Outcome
    average: str
    scores: dict[str, float | None] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    """Sentence to the names of the scores that it holds for."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return one sentence per reason, with all scores that it holds for."""
        return tuple(_note(names, words) for words, names in self.remarks.items())

    def leave_out(self, why: str, *names: str) -> None:
        """Set scores to None and note the reason."""
        for name in names:
            self.scores[name] = None
            self.remarks.setdefault(f"{_NO_VALUE}: {why}.", []).append(name)

    def harmonic(self, name: str, *more: float | None) -> float:
        """Return H, or H³ with the NMI, and note a missing part."""
        missing = missing_part(self.outcome.truth)
        if missing:
            self.remarks.setdefault(missing, []).append(name)
        return harmonic_mean(self.outcome.common_accuracy(self.average), self.outcome.unknown_recall, *more)

    def add_label_scores(self) -> None:
        outcome = self.outcome
        for name, value, why in (
            ("common_accuracy", outcome.common_accuracy("class"), NO_COMMON),
            ("common_accuracy_instance", outcome.common_accuracy("instance"), NO_COMMON),
            ("unknown_recall", outcome.unknown_recall, no_private(outcome.truth)),
            ("unknown_precision", outcome.unknown_precision, NOTHING_UNKNOWN),
        ):
            self.scores[name] = value
            if value is None:
                self.leave_out(why, name)

    def add_group_scores(self, groups: Labels | None) -> int | None:
        """Add the scores of the groups of rows predicted as unknown; return the number of groups."""
        others = ("hungarian_accuracy", "purity", "adjusted_rand")
        if groups is None:
            self.leave_out("no groups were given", "nmi_honest", "h3_score_honest", *others)
            return None
        truth, called = self.outcome.truth, called_unknown_groups(self.outcome, groups)
        n_groups = n_called_groups(called)
        if truth.n_private_classes is None:
            self.leave_out(unnamed_private_rows(truth), "nmi_honest", "h3_score_honest", *others)
            return n_groups
        nmi = self.scores["nmi_honest"] = honest_nmi(self.outcome, groups)
        if nmi is None:
            self.leave_out(no_private(truth), "nmi_honest", *others)
        elif not called.size:
            self.remarks[f"nmi_honest is 0, and h3_score_honest with it: {NOTHING_UNKNOWN}."] = []
            self.leave_out(NOTHING_UNKNOWN, *others)
        elif not n_groups:
            # H³ counts rows without a group as one group; alone, the scores of that group would look perfect.
            self.leave_out(NO_GROUP, "nmi_honest", *others)
        else:
            names = truth.labels[self.outcome.called_unknown]
            self.scores["hungarian_accuracy"] = hungarian_accuracy(names, called)
            self.scores["purity"] = purity(names, called)
            self.scores["adjusted_rand"] = adjusted_rand(names, called)
        self.scores["h3_score_honest"] = self.harmonic("h3_score_honest", nmi)
        return n_groups

    def add_oracle_scores(self, features: ArrayLike | None, seed: int) -> None:
        names, truth = ("nmi_oracle", "h3_score_oracle"), self.outcome.truth
        if features is None:
            self.leave_out("no features were given", *names)
        elif truth.n_private_classes is None:
            self.leave_out(unnamed_private_rows(truth), *names)
        else:
            nmi = self.scores["nmi_oracle"] = oracle_nmi(truth, features, seed=seed)
            if nmi is None:
                self.leave_out(no_private(truth), "nmi_oracle")
            self.scores["h3_score_oracle"] = self.harmonic("h3_score_oracle", nmi)

    def add_ranking_scores(self, known_score: ArrayLike | None, nearest: Labels | None) -> None:
        truth = self.outcome.truth
        right = None if nearest is None else nearest_is_right(truth, nearest)
        if known_score is None:
            self.leave_out("no known score was given", "auroc", "oscr")
            return
        numbers = read_score(known_score)
        same_length(len(truth.labels), "y_true", len(numbers), "known_score")
        if not truth.n_common or not truth.n_private:
            self.leave_out(NO_COMMON if truth.n_private else no_private(truth), "auroc", "oscr")
            return
        self.scores["auroc"] = area_under_roc(truth.is_common, numbers)
        if right is None:
            self.leave_out("no nearest class was given", "oscr")
        else:
            self.scores["oscr"] = area_under_oscr(truth.is_common, right, numbers)
