"""What a method says of samples, whatever its rule: a share for each class, and whether the largest is enough."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.calibration import Calibration
from uniot.threshold import Threshold

# Nothing is certain; keeps the odds finite.
_LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Decision:
    """Answers for some samples.

    Attributes:
        shares: (n, c), float64, odds of being known that speak for each class, in units of what it takes to be known:
            where a sample is known, its largest share is at least one, but for rounding.
        known: (n,), bool.
    """

    shares: Tensor
    known: Tensor

    @classmethod
    def of(cls, probabilities: Tensor, score: Tensor, border: float) -> Decision:
        """Return the decision by class probabilities and a score: known where the score is not below a threshold.

        The probability of being known is linear in the score on each side: 0 at 0, one half at the threshold, 1 at 1.

        Args:
            probabilities: (n, c).
            score: (n,), between 0 and 1.
            border: the threshold, strictly between 0 and 1.
        """
        score, shares = score.double().clamp(0, 1), probabilities.double()
        known = score >= border
        of_unknown = torch.where(known, (1 - score) / (1 - border), 2 - score / border) / 2
        # At the threshold both sides are exactly one half, and the odds exactly 1.
        odds = (1 - of_unknown) / of_unknown.clamp_min(_LEAST_PROBABILITY)
        return cls(shares / shares.max(dim=1, keepdim=True).values.clamp_min(1e-300) * odds[:, None], known)

    def by_threshold(self, threshold: Threshold | None) -> Decision:
        """Return the decision by another threshold on the largest share, which becomes 1; by the rule's own if None."""
        if threshold is None:
            return self
        shares = self.shares / threshold.value
        best, nearest = shares.max(dim=1, keepdim=True)
        if threshold.rejects == "none":
            is_nearest = torch.arange(shares.shape[1], device=shares.device) == nearest
            shares = torch.where(is_nearest, best.clamp_min(1), shares)
        elif threshold.rejects == "all":
            shares = shares / (best * (1 + 1e-9)).clamp_min(1)
        return Decision(shares, shares.max(dim=1).values >= 1)

    @property
    def nearest(self) -> Tensor:
        """Class with the largest share, (n,)."""
        return self.shares.argmax(dim=1)

    @property
    def known_score(self) -> Tensor:
        """From 0 to 1 what speaks for being known, (n,); one half where the largest share is just enough."""
        largest = self.shares.max(dim=1).values
        return largest / (1 + largest)

    def confidence(self, calibration: Calibration) -> Tensor:
        """Probability of each answer, (n,): of the class if known, else of being unknown."""
        of_class = calibration.class_probabilities(self.shares).max(dim=1).values
        return calibration.confidence(self.shares.max(dim=1).values, of_class, self.known)

    def probabilities(self, calibration: Calibration) -> Tensor:
        """(n, c + 1): the classes, then unknown; the largest is the answer's, and its confidence."""
        return calibration.probabilities(self.shares, self.known)
