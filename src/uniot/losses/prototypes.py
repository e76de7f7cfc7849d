"""Prototypes of classes or clusters: trainable directions of unit norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prototypes(nn.Module):
    """Trainable prototypes of unit norm, without bias: a cosine classifier on unit features.

    Call `renormalise` after every optimiser step, which changes their norm.

    Attributes:
        weight: the prototypes, unit rows, (count, feature_size).

    Example:
        >>> prototypes = Prototypes(3, 8)
        >>> prototypes(F.normalize(torch.randn(5, 8), dim=1)).shape
        torch.Size([5, 3])
    """

    def __init__(self, count: int, feature_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, feature_size), dim=1))

    def forward(self, features: Tensor) -> Tensor:
        """Return the cosine of each unit feature (n, d) to each prototype, (n, count)."""
        return features @ self.weight.t()

    @torch.no_grad()
    def renormalise(self) -> None:
        """Normalise every prototype to unit norm."""
        self.weight.copy_(F.normalize(self.weight, dim=1))
