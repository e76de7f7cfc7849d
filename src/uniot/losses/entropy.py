"""How undecided a prediction is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -Σ_k p_k log p_k of p = softmax(logits), (n,), in nats.

    Args:
        logits: (n, c).
    """
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def normalised_entropy(logits: Tensor) -> Tensor:
    """H(p) over its largest possible value log c, (n,), from 0 to 1."""
    return entropy(logits) / torch.log(torch.tensor(float(max(2, logits.shape[1]))))
