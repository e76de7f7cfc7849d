"""How undecided a prediction is."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -Σ_k p_k log p_k of p = softmax(logits), (n,), in nats.

    Args:
        logits: (n, c).
    """
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)
