"""Learnt directions that features are compared with: one per source class, or one per target cluster."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prototypes(nn.Module):
    """Unit rows without bias; `renormalise` after every optimiser step keeps them so."""

    def __init__(self, count: int, feature_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, feature_size), dim=1))

    def forward(self, features: Tensor) -> Tensor:
        """Cosines of unit features (n, d) to the prototypes, (n, count)."""
        return features @ self.weight.t()

    @torch.no_grad()
    def renormalise(self) -> None:
        """Brings every prototype back to unit norm."""
        self.weight.copy_(F.normalize(self.weight, dim=1))
