"""Estimate without labels how many target samples are labelled correctly, and warn if that cannot be relied on.

Four statistics of the target predict the accuracy, each by a logistic regression for the samples called known and one
for those called unknown:

    stability   fraction of samples whose own nearest class is that of their neighbourhood
    certainty   mean probability that the rejection rule gives to its own answers
    size        logarithm of the number of target samples, as neighbourhoods grow with the target
    imbalance   length of the mean of the target's unit rows, which grows if one class dominates

The agreement of two halves of the feature directions on the nearest class shows whether the classes are
distinguishable: it is low if the target looks very different, or if one class dominates and becomes the centre of the
target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.io.text import counted, listed, plural
from uniot.methods.decision import answer_probability
from uniot.methods.fitted import TargetStatistics

# Weights of stability, certainty, size and imbalance, and the intercept, as benchmarks/reliability.py prints them,
# fitted to 345 tasks of six data sets (Office-31, PACS, digits, plants, cells, sentences). The mean absolute error is
# 0.16 on these tasks, and 0.12 to 0.25 on a data set that is left out; see docs/discovery.md.
_KNOWN = (5.97, 3.91, 0.35, -1.07, -8.81)
_UNKNOWN = (2.18, 1.35, 0.13, 3.5, -3.43)
# Sizes of the targets of these tasks; beyond, the size says no more.
_SMALLEST, _LARGEST = 26, 1500
# Below the first estimate labels are not trusted, below the second they are doubted, and below the third other signs of
# trouble are looked for. The labels of samples called known are also doubted by themselves.
_UNTRUSTED, DOUBTED, _CERTAIN = 0.4, 0.6, 0.7
# Kappa of two halves of the directions: most targets with a dominant class are below, and many that look different.
_LOW_AGREEMENT = 0.5
_MOSTLY_UNKNOWN = 0.6
# A class with a probability of presence between these is neither found nor excluded.
_MAYBE_PRESENT = (0.25, 0.75)
_MOST_NAMES = 5
_HALVINGS = 4
_MOST_ROWS = 20_000
_BLOCK = 4096


@dataclass(frozen=True)
class Reliability:
    """Estimates, without labels, how far the predictions for the target can be relied on.

    Attributes:
        accuracy: estimated fraction of target samples that are labelled correctly: with their class, or as unknown if
            they are of no source class. None if the method has no estimate.
        known_accuracy: the same among the samples called known; None if there are none.
        unknown_accuracy: the same among the samples called unknown; None if there are none.
        warnings: sentences for users, the most important first.
        of_decision: those of the warnings that belong to the decision of the rule, like the estimates; the others are
            about the data.
    """

    accuracy: float | None
    known_accuracy: float | None
    unknown_accuracy: float | None
    warnings: tuple[str, ...] = ()
    of_decision: tuple[str, ...] = ()

    def for_other_decision(self) -> Reliability:
        """Return what still holds if a preference or answers have changed the decision: warnings about the data."""
        return Reliability(None, None, None, tuple(one for one in self.warnings if one not in self.of_decision))

    @property
    def sentence(self) -> str:
        """Return the estimates in words; empty if there are none."""
        if self.accuracy is None:
            return ""
        parts = (("known", self.known_accuracy), ("unknown", self.unknown_accuracy))
        of_parts = [f"{100 * value:.0f} % of those called {name}" for name, value in parts if value is not None]
        each = f" ({', '.join(of_parts)})" if len(of_parts) > 1 else ""
        return f"Estimated without labels: {100 * self.accuracy:.0f} % of the answers are right{each}."


@torch.no_grad()
def target_statistics(
    own_rows: Tensor,
    rows: Tensor,
    odds: Tensor,
    prototypes: Tensor,
    *,
    presence: Tensor,
    generator: torch.Generator,
) -> TargetStatistics:
    """Compute the statistics that predict the accuracy.

    Args:
        own_rows: directions of the target samples before smoothing, (n, p), unit rows.
        rows: the same of their neighbourhoods, (n, p), unit rows.
        odds: of each class by the rejection rule, (n, n_classes).
        prototypes: class means, (c, p), unit rows.
        presence: probability that each class is in the target, (c,).
        generator: for the random halves, and for a subset of a large target.
    """
    if len(rows) > _MOST_ROWS:
        some = torch.randperm(len(rows), generator=generator)[:_MOST_ROWS].sort().values
        own_rows, rows, odds = own_rows[some], rows[some], odds[some]
    is_stable = nearest_class(own_rows, prototypes) == nearest_class(rows, prototypes)
    return TargetStatistics(
        stability=float(is_stable.double().mean()),
        certainty=float(answer_probability(odds).mean()),
        imbalance=float(rows.double().mean(dim=0).norm()),
        agreement=agreement_of_halves(rows, prototypes, generator),
        presence=presence,
    )


def nearest_class(rows: Tensor, prototypes: Tensor) -> Tensor:
    """Return the index of the nearest class of each row, (n,)."""
    return torch.cat([(block @ prototypes.t()).argmax(dim=1) for block in rows.split(_BLOCK)])


def agreement_of_halves(rows: Tensor, prototypes: Tensor, generator: torch.Generator) -> float:
    """Return Cohen's kappa between the nearest classes by two halves of randomly rotated directions.

    Args:
        rows: directions of target samples, (n, p).
        prototypes: class means, (c, p).
        generator: for the rotations.
    """
    width, n_classes = prototypes.shape[1], len(prototypes)
    if width < 2:
        return 1.0
    agreement = chance = 0.0
    for _ in range(_HALVINGS):
        rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
        halves = rotation[:, : width // 2], rotation[:, width // 2 :]
        one, other = (nearest_class(rows @ half, F.normalize(prototypes @ half, dim=1)) for half in halves)
        agreement += float((one == other).double().mean()) / _HALVINGS
        sizes = [torch.bincount(nearest, minlength=n_classes).double() / len(rows) for nearest in (one, other)]
        chance += float((sizes[0] * sizes[1]).sum()) / _HALVINGS
    # All samples in one class by both halves: they agree, though by chance alone.
    return 1.0 if chance > 1 - 1e-9 else (agreement - chance) / (1 - chance)


def assess(
    statistics: TargetStatistics | None,
    *,
    n_target: int,
    known_fraction: float,
    classes: Sequence[object],
    others: Sequence[str] = (),
) -> Reliability:
    """Estimate the accuracy, and say in words what speaks against the answers.

    Args:
        statistics: of the target; None if the method has none, which leaves the other warnings.
        n_target: target samples.
        known_fraction: fraction of them that are called known.
        classes: names of the classes, (c,).
        others: further warnings, which follow those of the estimate.
    """
    nothing = tuple(one for one in others if one == NOTHING_KNOWN)
    if statistics is None:
        return Reliability(None, None, None, tuple(others), nothing)
    known, unknown = estimated_accuracies(statistics, n_target)
    accuracy = known_fraction * known + (1 - known_fraction) * unknown
    of_known, of_unknown = known if known_fraction > 0 else None, unknown if known_fraction < 1 else None
    doubts = _low_accuracy(accuracy) or _low_known_accuracy(of_known)
    warnings = list(doubts)
    mostly_unknown: tuple[str, ...] = ()
    if doubts or accuracy < _CERTAIN:
        mostly_unknown = _mostly_unknown(statistics, known_fraction, classes)
        warnings += [*_one_class(statistics.agreement), *mostly_unknown]
    warnings += others
    return Reliability(accuracy, of_known, of_unknown, tuple(warnings), (*doubts, *mostly_unknown, *nothing))


def estimated_accuracies(statistics: TargetStatistics, n_target: int) -> tuple[float, float]:
    """Return the estimated fractions of right answers among samples called known and among those called unknown."""
    return _logistic(_KNOWN, statistics, n_target), _logistic(_UNKNOWN, statistics, n_target)


def regressors(statistics: TargetStatistics, n_target: int) -> tuple[float, ...]:
    """Return what the regressions see: stability, certainty, size, imbalance and a one for the intercept."""
    size = math.log(min(max(n_target, _SMALLEST), _LARGEST))
    return statistics.stability, statistics.certainty, size, statistics.imbalance, 1.0


def _logistic(weights: tuple[float, ...], statistics: TargetStatistics, n_target: int) -> float:
    values = regressors(statistics, n_target)
    return 1 / (1 + math.exp(-sum(weight * value for weight, value in zip(weights, values, strict=True))))


def _low_accuracy(accuracy: float) -> tuple[str, ...]:
    if accuracy >= DOUBTED:
        return ()
    right = f"an estimated {100 * accuracy:.0f} % are right."
    if accuracy >= _UNTRUSTED:
        return (f"many labels are probably wrong: {right}",)
    return (f"the target looks so different from the source that labels cannot be trusted: {right}",)


def _low_known_accuracy(accuracy: float | None) -> tuple[str, ...]:
    if accuracy is None or accuracy >= DOUBTED:
        return ()
    return (f"the samples called known are probably labelled wrong: an estimated {100 * accuracy:.0f} % are right.",)


def _one_class(agreement: float) -> tuple[str, ...]:
    if agreement >= _LOW_AGREEMENT:
        return ()
    return (
        "the classes of the target are hard to tell apart: either most samples are of one single class, for which this "
        "method is unreliable, or the target looks very different from the source. Look at some samples of each class.",
    )


def _mostly_unknown(statistics: TargetStatistics, known_fraction: float, classes: Sequence[object]) -> tuple[str, ...]:
    low, high = _MAYBE_PRESENT
    presence = statistics.presence.tolist()
    order = sorted(range(len(presence)), key=lambda index: -presence[index])
    maybe = [str(classes[index]) for index in order if low <= presence[index] <= high]
    if 1 - known_fraction < _MOSTLY_UNKNOWN or not maybe:
        return ()
    return (
        f"{100 * (1 - known_fraction):.0f} % unknown: perhaps the target merely looks different; these classes might "
        f"be present: {listed(maybe, _MOST_NAMES)}.",
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
    """Return what the data give reason to doubt, as sentences.

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
