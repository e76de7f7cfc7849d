"""Estimate without labels how many target samples are labelled correctly, and warn if that cannot be relied on.

Three statistics of the target predict the accuracy, by a logistic regression for the samples called known and one for
those called unknown:

    agreement   fraction of samples that have the same label, a class or unknown, by two halves of the directions
    absence     fraction of the classes that no sample is labelled with
    stability   fraction of samples whose own nearest class is that of their neighbourhood; for known samples alone

If two random halves of the directions disagree, labels are partly chance. If few of the classes are found, the target
is often one in which common samples were not recognised, or one that a single class dominates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.io.text import counted, listed, plural

# Weights of agreement, absence and stability, and the intercept, as benchmarks/reliability.py prints them, fitted to
# 345 tasks of six data sets (Office-31, PACS, digits, plants, cells, sentences).
_KNOWN = (4.1, -1.37, 3.12, -4.22)
_UNKNOWN = (0.33, -0.55, 0.0, 0.28)
# Below the first estimate labels are not trusted, and below the second they are doubted. The second was chosen on the
# same tasks and on odd targets: with the warnings about the data, all are warned of in which less than half is right.
_UNTRUSTED, DOUBTED = 0.4, 0.65
_MOST_NAMES = 5
_UNKNOWN_LABEL = -1
_HALVINGS = 4
_MOST_ROWS = 20_000
_BLOCK = 4096


class RejectionRule(Protocol):
    """A fitted rejection rule, as far as it is needed here."""

    def odds(self, rows: Tensor) -> Tensor:
        """Return the odds of each class against unknown, (n_samples, n_classes), for unit rows (n_samples, width)."""
        ...


@dataclass(frozen=True)
class TargetStatistics:
    """Label-free statistics of a target that predict the accuracy on it.

    Attributes:
        agreement: fraction of samples that have the same label by two random halves of the directions.
        absence: fraction of the classes that no sample is labelled with.
        stability: fraction of samples whose own nearest class is that of their neighbourhood.
    """

    agreement: float
    absence: float
    stability: float


@dataclass(frozen=True)
class Reliability:
    """How far the predictions for the target can be relied on, estimated without labels.

    Attributes:
        accuracy: estimated fraction of target samples that are labelled correctly: with their class, or as unknown if
            they are of no source class. None if the method has no estimate.
        known_accuracy: the same among the samples called known; None if there are none.
        unknown_accuracy: the same among the samples called unknown; None if there are none.
        warnings: sentences for users, the most important first.
        of_decision: those of the warnings that belong to the decision of the rule, like the estimates; the others are
            about the data.
    """

    accuracy: float | None = None
    known_accuracy: float | None = None
    unknown_accuracy: float | None = None
    warnings: tuple[str, ...] = ()
    of_decision: tuple[str, ...] = ()

    def with_warnings(self, *, before: Sequence[str] = (), after: Sequence[str] = ()) -> Reliability:
        """Return the same with further warnings before and after the present ones."""
        return replace(self, warnings=(*before, *self.warnings, *after))

    def for_other_decision(self) -> Reliability:
        """Return what still holds after a preference or answers changed the decision: the warnings about the data."""
        return Reliability(warnings=tuple(one for one in self.warnings if one not in self.of_decision))

    @property
    def sentence(self) -> str:
        """Return the estimates in words; empty if there are none."""
        if self.accuracy is None:
            return ""
        parts = (("known", self.known_accuracy), ("unknown", self.unknown_accuracy))
        of_parts = [f"{100 * value:.0f} % of those called {name}" for name, value in parts if value is not None]
        each = f" ({', '.join(of_parts)})" if len(of_parts) > 1 else ""
        return f"Estimated without labels: {100 * self.accuracy:.0f} % of the predictions are right{each}."


@torch.no_grad()
def target_statistics(
    own_rows: Tensor,
    rows: Tensor,
    odds: Tensor,
    prototypes: Tensor,
    *,
    fit_rule: Callable[[Tensor, Tensor], RejectionRule],
    generator: torch.Generator,
) -> TargetStatistics:
    """Compute the statistics that predict the accuracy.

    Args:
        own_rows: directions of the target samples before smoothing, (n, p), unit rows.
        rows: the same of their neighbourhoods, (n, p), unit rows.
        odds: of each class by the rejection rule, (n, n_classes).
        prototypes: class means, (c, p), unit rows.
        fit_rule: returns the rejection rule for rows (n, q) and class means (c, q), unit rows both.
        generator: for the random halves, and for a subset of a large target.
    """
    labels = _labels(odds)
    n_found = len(torch.unique(labels[labels != _UNKNOWN_LABEL]))
    if len(rows) > _MOST_ROWS:
        some = torch.randperm(len(rows), generator=generator)[:_MOST_ROWS].sort().values
        own_rows, rows = own_rows[some], rows[some]
    is_stable = nearest_class(own_rows, prototypes) == nearest_class(rows, prototypes)
    return TargetStatistics(
        agreement=agreement_of_halves(rows, prototypes, fit_rule, generator),
        absence=1 - n_found / odds.shape[1],
        stability=float(is_stable.double().mean()),
    )


def nearest_class(rows: Tensor, prototypes: Tensor) -> Tensor:
    """Return the index of the nearest class of each row, (n,)."""
    return torch.cat([(block @ prototypes.t()).argmax(dim=1) for block in rows.split(_BLOCK)])


def agreement_of_halves(
    rows: Tensor, prototypes: Tensor, fit_rule: Callable[[Tensor, Tensor], RejectionRule], generator: torch.Generator
) -> float:
    """Return the fraction of samples that have the same label by two halves of randomly rotated directions.

    Args:
        rows: directions of target samples, (n, p).
        prototypes: class means, (c, p).
        fit_rule: returns the rejection rule for one half, from rows and class means.
        generator: for the rotations.
    """
    width = prototypes.shape[1]
    if width < 2:
        return 1.0
    agreement = 0.0
    for _ in range(_HALVINGS):
        rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
        labels = []
        for half in (rotation[:, : width // 2], rotation[:, width // 2 :]):
            own, means = F.normalize(rows @ half, dim=1), F.normalize(prototypes @ half, dim=1)
            rule = fit_rule(own, means)
            labels.append(torch.cat([_labels(rule.odds(block)) for block in own.split(_BLOCK)]))
        agreement += float((labels[0] == labels[1]).double().mean()) / _HALVINGS
    return agreement


def _labels(odds: Tensor) -> Tensor:
    """Return the class of the largest odds, or `_UNKNOWN_LABEL` if these are below one, (n,)."""
    largest = odds.max(dim=1)
    return torch.where(largest.values >= 1, largest.indices, _UNKNOWN_LABEL)


def assess(
    statistics: TargetStatistics | None,
    *,
    known_fraction: float,
    others: Sequence[str] = (),
) -> Reliability:
    """Estimate the accuracy, and list what speaks against relying on the predictions.

    Args:
        statistics: of the target; None if the method has none, which leaves the other warnings.
        known_fraction: fraction of the target samples that are called known.
        others: further warnings, which follow those of the estimate.
    """
    nothing = tuple(one for one in others if one == NOTHING_KNOWN)
    if statistics is None:
        return Reliability(warnings=tuple(others), of_decision=nothing)
    known, unknown = estimated_accuracies(statistics)
    accuracy = known_fraction * known + (1 - known_fraction) * unknown
    of_known, of_unknown = known if known_fraction > 0 else None, unknown if known_fraction < 1 else None
    doubts = (*_low_accuracy(accuracy), *_nothing_unknown(known_fraction))
    return Reliability(accuracy, of_known, of_unknown, (*doubts, *others), (*doubts, *nothing))


def estimated_accuracies(statistics: TargetStatistics) -> tuple[float, float]:
    """Return the estimated accuracy among samples called known, and among those called unknown."""
    return _logistic(_KNOWN, statistics), _logistic(_UNKNOWN, statistics)


def regressors(statistics: TargetStatistics) -> tuple[float, ...]:
    """Return what the regressions see: agreement, absence, stability and a one for the intercept."""
    return statistics.agreement, statistics.absence, statistics.stability, 1.0


def _logistic(weights: tuple[float, ...], statistics: TargetStatistics) -> float:
    values = regressors(statistics)
    return 1 / (1 + math.exp(-sum(weight * value for weight, value in zip(weights, values, strict=True))))


def _low_accuracy(accuracy: float) -> tuple[str, ...]:
    if accuracy >= DOUBTED:
        return ()
    right = f"an estimated {100 * accuracy:.0f} % are right."
    if accuracy >= _UNTRUSTED:
        return (f"many labels are probably wrong: {right}",)
    return (
        "the target looks so different from the source, or is so dominated by one class, that labels cannot be "
        f"trusted: {right}",
    )


def _nothing_unknown(known_fraction: float) -> tuple[str, ...]:
    return (NOTHING_UNKNOWN,) if known_fraction == 1 else ()


NOTHING_UNKNOWN = (
    "no target sample is called unknown: either every one is of a source class, or new classes look just like source "
    "classes. A few answers tell which: `uniot ask`, or `model.ask` and `model.tell`."
)
NOTHING_KNOWN = "no target sample is known: every one is called unknown. Look at some before you rely on that."
# Trials with parts of Office-31: from about this size on, unknown samples are found reliably.
FEW_SAMPLES = 100
# With so few source classes, a private class is often as near to one of them as its own samples are, and no statistic
# of the target shows it.
FEW_CLASSES = 4
# A class mean of fewer labelled samples is mostly the noise of these.
_FEW_LABELLED = 3
# Below this fraction of distinct samples, neighbours are copies rather than evidence.
_FEW_DISTINCT = 0.5
# Features that differ by less than this part of their spread are those of copies: last digits depend on the batch.
_SAME = 1e-4


def data_warnings(
    features: np.ndarray, known: np.ndarray, n_target: int, classes: Sequence[object], class_sizes: Sequence[int]
) -> tuple[str, ...]:
    """Return warnings about the data, as sentences.

    Args:
        features: of some target samples, unit rows, (n_samples, n_features).
        known: whether the rule calls each target sample known, (n_target,).
        n_target: target samples in all.
        classes: names of the classes, (c,).
        class_sizes: labelled samples of each, (c,).
    """
    return (
        *_few_samples(n_target),
        *_few_classes(classes),
        *_nothing_known(known),
        *_identical(features),
        *_few_labelled(classes, class_sizes),
    )


def _few_samples(n_target: int) -> tuple[str, ...]:
    if n_target >= FEW_SAMPLES:
        return ()
    return (f"only {counted(n_target, 'target sample')}; results are unreliable below {FEW_SAMPLES}.",)


def _few_classes(classes: Sequence[object]) -> tuple[str, ...]:
    if len(classes) > FEW_CLASSES:
        return ()
    return (
        f"only {counted(len(classes), 'source class', 'source classes')}: how much of the target is unknown cannot be "
        "told from so few. A few answers can: `uniot ask`, or `model.ask` and `model.tell`.",
    )


def _nothing_known(known: np.ndarray) -> tuple[str, ...]:
    if known.any():
        return ()
    return (NOTHING_KNOWN,)


def _identical(features: np.ndarray) -> tuple[str, ...]:
    if features.shape[1] == 1:
        # Unit rows of a single feature are signs, whatever the samples are.
        return ()
    # What all samples have in common makes their differences small, which does not make the samples copies.
    centred = features - features.mean(axis=0, dtype=np.float64)
    spread = np.sqrt(np.square(centred).sum(axis=1).mean())
    step = max(_SAME * spread, np.finfo(np.float32).eps * np.abs(features).max())
    n_distinct = len(np.unique(np.round(centred / step), axis=0)) if step else 1
    if n_distinct >= _FEW_DISTINCT * len(features):
        return ()
    few = f"only {counted(n_distinct, 'distinct one')} among {counted(len(features), 'target sample')}"
    return (f"many target samples are identical, {few}: copies add no evidence. Leave them out.",)


def _few_labelled(classes: Sequence[object], sizes: Sequence[int]) -> tuple[str, ...]:
    few = [str(name) for name, size in zip(classes, sizes, strict=True) if size < _FEW_LABELLED]
    if not few:
        return ()
    having = f"{counted(len(few), 'class', 'classes')} {plural(len(few), 'has', 'have')}"
    return (
        f"{having} fewer than {_FEW_LABELLED} labelled samples, so that {plural(len(few), 'its', 'their')} labels are "
        f"unreliable: {listed(few, _MOST_NAMES)}.",
    )
