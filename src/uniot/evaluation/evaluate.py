"""Every score at once, with a sentence for each that has no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from numpy.typing import ArrayLike

from uniot.evaluation.grouping import adjusted_rand, hungarian_accuracy, purity
from uniot.evaluation.harmonic import harmonic_mean
from uniot.evaluation.inputs import UNKNOWN, Label, Labels, read_score, same_length
from uniot.evaluation.outcome import Outcome, compare
from uniot.evaluation.private_nmi import (
    called_unknown_groups,
    honest_nmi,
    n_called_groups,
    oracle_nmi,
    unnamed_private_rows,
)
from uniot.evaluation.ranking import area_under_oscr, area_under_roc, nearest_is_right
from uniot.evaluation.undefined import NO_COMMON, NOTHING_UNKNOWN, missing_part, no_private
from uniot.words import plural

SCORE_MEANINGS: dict[str, str] = {
    "h_score": "Harmonic mean of the accuracy on common classes and the recall of unknown.",
    "h3_score_honest": "Harmonic mean of common accuracy, unknown recall and the NMI of the groups found.",
    "h3_score_oracle": "H³ as published: its NMI looks up which rows are private and how many classes.",
    "nmi_honest": "How much the groups found tell of the true classes, over the rows called unknown.",
    "nmi_oracle": "How well k-means with the true number of classes separates the truly private rows.",
    "common_accuracy": "Share of right rows in each common class, averaged over the classes.",
    "common_accuracy_instance": "Share of all common rows that were given their class.",
    "overall_accuracy": "Share of rows that are right: common rows in their class, private rows as unknown.",
    "unknown_recall": "Share of the private rows that were called unknown.",
    "unknown_precision": "Share of the rows called unknown that are private.",
    "auroc": "Chance that a common row has a larger known score than a private one; 50 % is no better than a coin.",
    "oscr": "Common rows kept and right against private rows let in, over every threshold on the known score.",
    "hungarian_accuracy": "Share of rows called unknown that are right once each group is named by a class.",
    "purity": "Share of rows called unknown that belong to the largest class of their group.",
    "adjusted_rand": "Agreement on which unknown rows belong together; 0 is chance, 100 % are the true classes.",
}
"""Score name, as in `Evaluation`, to what it means in one sentence, for tables that show scores in per cent."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of one prediction: shares where 1 is best, None where there is no value and a note says why."""

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
    """Private classes that have a row in the target; None where y_true does not name them."""
    n_groups: int | None
    """Groups among the rows called unknown; None where no groups came."""
    n_groups_error: int | None
    """Groups found less private classes there are; None where either is not known."""
    average: str
    """How h_score and the two h3_scores average the common accuracy: "class" or "instance"."""
    per_class_recall: Mapping[Label, float]
    """Share of right rows in each common class that has a row, then of unknown."""
    counts: Mapping[str, int]
    """Number of rows, common rows, private rows, and rows called unknown."""
    notes: tuple[str, ...]
    """A sentence for every reason for which scores have no value, or something stands in for them."""

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, in types that JSON has; class names become text."""
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
    """Give every score that the inputs allow.

    Data that cannot be used raises `DataError`; a score that has no value on good data is None, and a note
    says why. No warning is given.

    Args:
        y_true: True class of each target row, or the word for unknown where it is private.
        y_pred: Source class or the word for unknown, per target row.
        source_classes: What is common; any other true label is private. Without it, only rows marked with the
            word for unknown are private.
        unknown: The word for unknown; where labels are integers, the default means -1.
        average: How H and H³ average the accuracy on common classes.
        known_score: Larger for more surely common, shape (n,); for AUROC and OSCR.
        nearest: Source class that each row gets if it is called known; for OSCR.
        features: Feature of each target row, shape (n, d); for the oracle H³ and NMI.
        groups: Group of each target row, read only where a row is called unknown; for the honest H³ and NMI.
        seed: Seed of the k-means of the oracle NMI.

    Returns:
        The scores, the counts behind them and the notes.
    """
    sheet = _Sheet(compare(y_true, y_pred, source_classes, unknown), average)
    sheet.add_label_scores()
    n_groups = sheet.add_group_scores(groups)
    sheet.add_oracle_scores(features, seed)
    sheet.add_ranking_scores(known_score, nearest)
    outcome, truth = sheet.outcome, sheet.outcome.truth
    return Evaluation(
        h_score=sheet.harmonic("h_score"),
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
        notes=sheet.notes,
        **sheet.scores,
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
class _Sheet:
    """Scores and notes while they are being collected."""

    outcome: Outcome
    average: str
    scores: dict[str, float | None] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    """What is said of scores, each sentence once, with the names of the scores."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for every reason, with all scores that it holds for."""
        return tuple(_note(names, words) for words, names in self.remarks.items())

    def leave_out(self, why: str, *names: str) -> None:
        """Give these scores no value, and say why."""
        for name in names:
            self.scores[name] = None
            self.remarks.setdefault(f"{_NO_VALUE}: {why}.", []).append(name)

    def harmonic(self, name: str, *more: float | None) -> float:
        """H, or H³ with the NMI, and a note where a part is missing."""
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
        """Scores of the groups of rows called unknown; returns how many groups there are."""
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
