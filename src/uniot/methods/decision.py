"""Decisions of a method, the threshold that a preference moves, and calibrated probabilities.

The odds of a class are those of being known with this class against unknown, 1 at the threshold. The probability of
being known follows from the largest odds; the classes divide it in proportion to theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

# Limits of the search for an exponent. Beyond, all probabilities are one half, or 0 and 1.
_LEAST_EXPONENT, _LARGEST_EXPONENT = 0.1, 10.0
_HALVINGS = 40


@dataclass(frozen=True)
class Calibration:
    """Exponents of the odds: below 1 they lower a confidence, above 1 they raise it.

    They change neither the order of the samples nor the probability of one half at the threshold.

    Attributes:
        known: for samples that are known, and for the classes against each other.
        unknown: for samples that are unknown.
    """

    known: float = 1.0
    unknown: float = 1.0

    def class_probabilities(self, odds: Tensor) -> Tensor:
        """Return the probability of each class for a sample that is known, (n, c).

        Args:
            odds: of each class, 1 at the threshold, (n_samples, n_classes), float64.
        """
        largest, nearest = odds.max(dim=1, keepdim=True)
        # Without writing into a tensor, which ONNX does not know.
        is_nearest = torch.arange(odds.shape[1], device=odds.device) == nearest
        ratios = torch.where(is_nearest, 1.0, (odds / largest.clamp_min(1e-30)) ** self.known)
        return ratios / ratios.sum(dim=1, keepdim=True)

    def unknown_probability(self, largest: Tensor, known: Tensor) -> Tensor:
        """Return the probability that each sample is unknown, (n,).

        Args:
            largest: largest odds per sample, (n_samples,).
            known: whether each sample is known, (n_samples,).
        """
        # A known sample may lie below the threshold by a rounding; its class must not lose to unknown by that.
        known_odds = torch.where(known, largest.clamp_min(1) ** self.known, largest.clamp_max(1 - 1e-9) ** self.unknown)
        return 1 / (1 + known_odds)

    def confidence(self, largest: Tensor, class_probability: Tensor, known: Tensor) -> Tensor:
        """Return the probability of the prediction of each sample, (n,): of its class if known, else of being unknown.

        Known or unknown is decided before the class: two similar classes do not make a sample unknown.

        Args:
            largest: largest odds per sample, (n_samples,).
            class_probability: of the nearest class if the sample is known, (n,).
            known: whether each sample is known, (n_samples,).
        """
        of_unknown = self.unknown_probability(largest, known)
        return torch.where(known, ((1 - of_unknown) * class_probability).maximum(of_unknown), of_unknown)

    def probabilities(self, odds: Tensor, known: Tensor) -> Tensor:
        """Return the probability of each class and, last, of being unknown, (n, c + 1).

        The largest one is that of the prediction.

        Args:
            odds: of each class, 1 at the threshold, (n_samples, n_classes), float64.
            known: whether each sample is known, (n,).
        """
        of_class = self.class_probabilities(odds)
        own = of_class.max(dim=1, keepdim=True).values
        largest, nearest = odds.max(dim=1)
        of_unknown = self.unknown_probability(largest, known)[:, None]
        of_known = 1 - of_unknown
        answer = self.confidence(largest, own[:, 0], known)[:, None]
        of_nearest = torch.where(known[:, None], answer, of_known * own)
        others = of_class * ((of_known - of_nearest) / (1 - own).clamp_min(1e-12))
        # If two classes are equally probable, rounding must not make the other one larger.
        others = others.minimum(of_nearest)
        is_nearest = torch.arange(odds.shape[1], device=odds.device) == nearest[:, None]
        return torch.cat([torch.where(is_nearest, of_nearest, others), of_unknown], dim=1)


def fit_calibration(
    odds: Tensor, known: Tensor, known_accuracy: float | None, unknown_accuracy: float | None
) -> Calibration:
    """Choose exponents such that the mean confidence of the predictions is their estimated accuracy.

    Args:
        odds: of target samples, (n_samples, n_classes), float64.
        known: whether each is known, (n,).
        known_accuracy: estimated fraction of correct predictions among known samples; None if there is no estimate.
        unknown_accuracy: the same among unknown samples.
    """
    largest = odds.max(dim=1).values

    def exponent(chosen: Tensor, accuracy: float | None) -> float:
        if accuracy is None or not chosen.any():
            return 1.0
        own_odds, own_largest, own_known = odds[chosen], largest[chosen], known[chosen]

        def excess(value: float) -> float:
            tried = Calibration(value, value)
            of_class = tried.class_probabilities(own_odds).max(dim=1).values
            return float(tried.confidence(own_largest, of_class, own_known).mean()) - accuracy

        return _root(excess)

    return Calibration(exponent(known, known_accuracy), exponent(~known, unknown_accuracy))


def _root(function: Callable[[float], float]) -> float:
    """Return where a function that mostly rises crosses zero, by bisection on a logarithmic scale, within limits."""
    low, high = _LEAST_EXPONENT, _LARGEST_EXPONENT
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return math.sqrt(low * high)


# Smaller odds count as zero, so that odds divided by a threshold stay finite.
_SMALLEST = 1e-200
# Odds that differ by less are tied: they may change order by rounding when they are computed again.
_TIED = 1e-9
# Distance of the threshold from the smallest or the largest odds, if all samples are on one side of it.
_MARGIN = 1e-6


@dataclass(frozen=True)
class Threshold:
    """A threshold that replaces the rule's own, which is 1.

    Attributes:
        value: smallest odds of a known sample, positive.
        rejects: "some" compares with the value; "none" calls every sample known, "all" every sample unknown, new
            samples included.
    """

    value: float
    rejects: Literal["some", "none", "all"] = "some"


def threshold_for(odds: np.ndarray, private_prior: float | None, prefer: str | None) -> Threshold | None:
    """Return the threshold that meets a preference; None if there is no preference.

    Args:
        odds: largest odds of each fitted target sample by the rule, (n_samples,).
        private_prior: fraction of the target that is to be unknown; ties are kept together, and the nearest fraction
            that they allow is taken. 0 calls every sample known and 1 every sample unknown.
        prefer: "known" halves the fraction that the rule calls unknown, "unknown" the fraction that it calls known.
    """
    if prefer is not None:
        rejected = rejected_fraction(odds)
        # If the rule rejects nothing, or everything, its threshold may lie far from the odds: never move it the
        # other way.
        if prefer == "known":
            return Threshold(min(1.0, _nearest_threshold(odds, rejected / 2)))
        return Threshold(max(1.0, _nearest_threshold(odds, (1 + rejected) / 2)))
    if private_prior is None:
        return None
    rejects: Literal["some", "none", "all"] = "none" if private_prior == 0 else "all" if private_prior == 1 else "some"
    return Threshold(_nearest_threshold(odds, private_prior), rejects)


def rejected_fraction(odds: np.ndarray) -> float:
    """Return the fraction of samples that the rule calls unknown; NaN if there are none."""
    return float((odds < 1 - _TIED).mean()) if len(odds) else float("nan")


def _nearest_threshold(odds: np.ndarray, fraction: float) -> float:
    """Return a threshold below which as near as possible to this fraction of the odds lies."""
    ordered = np.sort(np.where(odds < _SMALLEST, 0.0, odds))
    # Between which neighbours a threshold fits: one of 0 would reject nothing and cannot be divided by.
    fits = np.concatenate([ordered[:1] > 0, ordered[1:] > ordered[:-1] * (1 + _TIED), [True]])
    counts = np.flatnonzero(fits)
    count = int(counts[np.abs(counts - fraction * len(ordered)).argmin()])
    if count == 0:
        return float(ordered[0] * (1 - _MARGIN))
    if count == len(ordered):
        return float(max(ordered[-1] * (1 + _MARGIN), _SMALLEST))
    below, above = float(ordered[count - 1]), float(ordered[count])
    return float(np.sqrt(below) * np.sqrt(above)) if below > 0 else above / 2


# Nothing is certain; keeps the odds finite.
_LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Decision:
    """Decisions about some samples.

    Attributes:
        odds: of each class against unknown, 1 at the threshold, (n_samples, n_classes), float64: the largest odds of a
            known sample are at least 1, up to rounding.
        known: whether each sample is of a source class, (n_samples,), bool.
    """

    odds: Tensor
    known: Tensor

    @classmethod
    def of(cls, probabilities: Tensor, score: Tensor, threshold: float | Tensor) -> Decision:
        """Return the decision by class probabilities and a score: known if the score is not below a threshold.

        The probability of being known is linear in the score on each side: 0 at 0, one half at the threshold, 1 at 1.

        Args:
            probabilities: (n_samples, n_classes).
            score: between 0 and 1, (n_samples,).
            threshold: strictly between 0 and 1.
        """
        score, probabilities = score.double().clamp(0, 1), probabilities.double()
        known = score >= threshold
        of_unknown = torch.where(known, (1 - score) / (1 - threshold), 2 - score / threshold) / 2
        # At the threshold both sides are exactly one half, and the odds exactly 1.
        largest = (1 - of_unknown) / of_unknown.clamp_min(_LEAST_PROBABILITY)
        relative = probabilities / probabilities.max(dim=1, keepdim=True).values.clamp_min(1e-300)
        return cls(relative * largest[:, None], known)

    def by_threshold(self, threshold: Threshold | None) -> Decision:
        """Return the decision by another threshold on the largest odds, which becomes 1; by the rule's own if None."""
        if threshold is None:
            return self
        odds = self.odds / threshold.value
        best, nearest = odds.max(dim=1, keepdim=True)
        if threshold.rejects == "none":
            is_nearest = torch.arange(odds.shape[1], device=odds.device) == nearest
            odds = torch.where(is_nearest, best.clamp_min(1), odds)
        elif threshold.rejects == "all":
            odds = odds / (best * (1 + 1e-9)).clamp_min(1)
        return Decision(odds, odds.max(dim=1).values >= 1)

    @property
    def nearest(self) -> Tensor:
        """Return the class with the largest odds, (n_samples,)."""
        return self.odds.argmax(dim=1)

    @property
    def known_score(self) -> Tensor:
        """Return the score of being known from 0 to 1, one half at the threshold, (n_samples,)."""
        largest = self.odds.max(dim=1).values
        return largest / (1 + largest)

    def confidence(self, calibration: Calibration) -> Tensor:
        """Return the probability of each prediction, (n_samples,): of the class if known, else of being unknown."""
        of_class = calibration.class_probabilities(self.odds).max(dim=1).values
        return calibration.confidence(self.odds.max(dim=1).values, of_class, self.known)

    def probabilities(self, calibration: Calibration) -> Tensor:
        """Return the probabilities of the classes, then of unknown, (n_samples, n_classes + 1).

        The largest one is that of the prediction.
        """
        return calibration.probabilities(self.odds, self.known)
