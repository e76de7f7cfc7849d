"""From an embedding to a feature of unit norm."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class ProjectionHead(nn.Module):
    """Linear, ReLU, linear, unit norm: SwAV's head without batch normalisation, as in the paper."""

    def __init__(self, in_features: int, hidden_size: int = 2048, feature_size: int = 256) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_features, hidden_size)
        self.out = nn.Linear(hidden_size, feature_size)

    def forward(self, embeddings: Tensor) -> Tensor:
        """(n, in_features) to (n, feature_size), unit rows."""
        return F.normalize(self.out(F.relu(self.hidden(embeddings))), dim=1)
