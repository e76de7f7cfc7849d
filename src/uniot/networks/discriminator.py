"""From a feature to how surely it is of the source."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.networks.dropout import dropped


class DomainDiscriminator(nn.Module):
    """Three linear layers with ReLU and dropout between them, as in the published code of PADA and UAN.

    The output is a logit: its sigmoid is D(x), towards 1 for the source and towards 0 for the target.
    """

    def __init__(self, in_features: int, hidden_size: int = 1024, dropout: float = 0.5) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, hidden_size)
        self.second = nn.Linear(hidden_size, hidden_size)
        self.last = nn.Linear(hidden_size, 1)
        self.dropout = dropout

    def forward(self, features: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Logits of features (n, d), (n,).

        Args:
            features: (n, d).
            generator: of the dropout's masks, on the CPU; nothing is dropped without one.
        """
        hidden = dropped(F.relu(self.first(features)), self.dropout, generator)
        hidden = dropped(F.relu(self.second(hidden)), self.dropout, generator)
        logits: Tensor = self.last(hidden).squeeze(1)
        return logits

    def of_domains(
        self, source: Tensor, target: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits of features of the source (b, d) and of the target (b', d), in one pass, which is quicker than two."""
        source_logits, target_logits = self(torch.cat([source, target]), generator).split([len(source), len(target)])
        return source_logits, target_logits
