"""From what speaks for each class to probabilities: of each class, of being unknown, and of the answer that is given.

A share is the odds of being known against unknown, 1 at the threshold. The probability of being known is that of the
largest share; the classes divide it in proportion to their shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Limits of the search for an exponent. Beyond, all probabilities are one half, or 0 and 1.
_SMALLEST, _LARGEST = 0.1, 10.0
_HALVINGS = 40


@dataclass(frozen=True)
class Calibration:
    """Exponents of the shares: below 1 they lower a confidence, above 1 they raise it.

    Whatever they are, the order of the samples stays, and so does one half at the threshold.

    Attributes:
        known: for samples that are known, and for the classes against each other.
        unknown: for samples that are unknown.
    """

    known: float = 1.0
    unknown: float = 1.0

    def class_probabilities(self, shares: Tensor) -> Tensor:
        """Return the probability of each class for a sample that is known, (n, c).

        Args:
            shares: what speaks for each class, 1 at the threshold, (n, c), float64.
        """
        largest, nearest = shares.max(dim=1, keepdim=True)
        # Without writing into a tensor, which ONNX does not know.
        is_nearest = torch.arange(shares.shape[1], device=shares.device) == nearest
        ratios = torch.where(is_nearest, 1.0, (shares / largest.clamp_min(1e-30)) ** self.known)
        return ratios / ratios.sum(dim=1, keepdim=True)

    def unknown_probability(self, largest: Tensor, known: Tensor) -> Tensor:
        """Return the probability that each sample is unknown, (n,).

        Args:
            largest: share of each, (n,).
            known: whether that is enough, (n,).
        """
        # A known sample may lie below the threshold by a rounding; its class must not lose to unknown by that.
        odds = torch.where(known, largest.clamp_min(1) ** self.known, largest.clamp_max(1 - 1e-9) ** self.unknown)
        return 1 / (1 + odds)

    def confidence(self, largest: Tensor, class_probability: Tensor, known: Tensor) -> Tensor:
        """Return the probability of the answer of each sample, (n,): of its class if known, else of being unknown.

        A sample is known before its class is: where two classes are hard to tell apart, neither loses to unknown.

        Args:
            largest: share of each, (n,).
            class_probability: of the nearest class if the sample is known, (n,).
            known: whether the share is enough, (n,).
        """
        of_unknown = self.unknown_probability(largest, known)
        return torch.where(known, ((1 - of_unknown) * class_probability).maximum(of_unknown), of_unknown)

    def probabilities(self, shares: Tensor, known: Tensor) -> Tensor:
        """Return the probability of each class and, last, of being unknown, (n, c + 1); the largest is the answer's.

        Args:
            shares: what speaks for each class, 1 at the threshold, (n, c), float64.
            known: whether the largest is enough, (n,).
        """
        of_class = self.class_probabilities(shares)
        own = of_class.max(dim=1, keepdim=True).values
        largest, nearest = shares.max(dim=1)
        of_unknown = self.unknown_probability(largest, known)[:, None]
        of_known = 1 - of_unknown
        answer = self.confidence(largest, own[:, 0], known)[:, None]
        of_nearest = torch.where(known[:, None], answer, of_known * own)
        others = of_class * ((of_known - of_nearest) / (1 - own).clamp_min(1e-12))
        # Of two equal classes, rounding must not prefer the other.
        others = others.minimum(of_nearest)
        is_nearest = torch.arange(shares.shape[1], device=shares.device) == nearest[:, None]
        return torch.cat([torch.where(is_nearest, of_nearest, others), of_unknown], dim=1)


def fit_calibration(
    shares: Tensor, known: Tensor, known_accuracy: float | None, unknown_accuracy: float | None
) -> Calibration:
    """Choose exponents with which the mean confidence of the answers is their estimated accuracy.

    Args:
        shares: of target samples, (n, c), float64.
        known: whether each is known, (n,).
        known_accuracy: estimated share of right answers among those known; None if there is no estimate.
        unknown_accuracy: the same among those unknown.
    """
    largest = shares.max(dim=1).values

    def exponent(chosen: Tensor, accuracy: float | None) -> float:
        if accuracy is None or not chosen.any():
            return 1.0
        own_shares, own_largest, own_known = shares[chosen], largest[chosen], known[chosen]

        def excess(value: float) -> float:
            tried = Calibration(value, value)
            of_class = tried.class_probabilities(own_shares).max(dim=1).values
            return float(tried.confidence(own_largest, of_class, own_known).mean()) - accuracy

        return _root(excess)

    return Calibration(exponent(known, known_accuracy), exponent(~known, unknown_accuracy))


def _root(function: Callable[[float], float]) -> float:
    """Return where a function that mostly rises crosses zero, by bisection on a logarithmic scale, within limits."""
    low, high = _SMALLEST, _LARGEST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return math.sqrt(low * high)


def answer_probability(shares: Tensor) -> Tensor:
    """Return the probability of each answer as the rule has it, (n,): of its class if known, else of being unknown.

    Args:
        shares: what speaks for each class, 1 at the threshold, (n, c).
    """
    largest = shares.max(dim=1).values
    of_known = largest / (1 + largest)
    return torch.where(largest >= 1, of_known * largest / shares.sum(dim=1), 1 - of_known)
