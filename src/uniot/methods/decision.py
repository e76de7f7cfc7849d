"""What a method says of samples, whatever its rule: a share for each class, and whether the largest is enough."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.threshold import Threshold


@dataclass(frozen=True)
class Decision:
    """Answers for some samples.

    Attributes:
        shares: (n, c), float64, what speaks for each class, in units of what it takes to be known: where a sample is
            known, its largest share is at least one, but for rounding.
        known: (n,), bool.
    """

    shares: Tensor
    known: Tensor

    @classmethod
    def of(cls, probabilities: Tensor, score: Tensor, border: float) -> Decision:
        """Of class probabilities and a score that is compared with a border: known where it is not below.

        Args:
            probabilities: (n, c).
            score: (n,), between 0 and 1.
            border: strictly between 0 and 1.
        """
        score, shares = score.double().clamp(0, 1), probabilities.double()
        known = score >= border
        # From 0 to 1 below the border and beyond one above it, without a jump.
        strength = torch.where(known, 1 + (score - border) / (1 - border), score / border)
        return cls(shares / shares.max(dim=1, keepdim=True).values.clamp_min(1e-300) * strength[:, None], known)

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
    def confidence(self) -> Tensor:
        """From 0 to 1, (n,); one half where the largest share is just enough."""
        largest = self.shares.max(dim=1).values
        return largest / (1 + largest)

    def probabilities(self) -> Tensor:
        """(n, c + 1): the classes, then unknown, which counts as much as a share that is just enough."""
        row, nearest = torch.arange(len(self.shares)), self.nearest
        largest = self.shares[row, nearest]
        weights = self.shares.clone()
        # A known sample on the border may lie a rounding below it; its class must not lose to unknown by that.
        weights[row, nearest] = torch.where(self.known, largest.clamp_min(1), largest.clamp_max(1 - 1e-9))
        weights = torch.cat([weights, torch.ones(len(weights), 1, dtype=weights.dtype)], dim=1)
        return weights / weights.sum(dim=1, keepdim=True)
