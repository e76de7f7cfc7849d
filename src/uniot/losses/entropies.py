"""Entropies of predictions, and losses that minimise them or push them apart.

References:
    Saito et al., Universal Domain Adaptation through Self-Supervision, NeurIPS 2020, arXiv:2002.07953 (DANCE).
    Yang et al., Prototypical Partial Optimal Transport for Universal Domain Adaptation, AAAI 2023, arXiv:2408.01089.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy H(p) = -Σ_k p_k log p_k of p = softmax(logits) per sample, (n,), in nats.

    Args:
        logits: (n, c).

    Example:
        >>> entropy(torch.tensor([[0.0, 0.0], [20.0, 0.0]])).round(decimals=4)
        tensor([0.6931, 0.0000])
    """
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def normalised_entropy(logits: Tensor) -> Tensor:
    """Return the entropy divided by its maximum log c per sample, (n,), from 0 to 1; logits: (n, c).

    Example:
        >>> normalised_entropy(torch.zeros(1, 5))
        tensor([1.])
    """
    return entropy(logits) / torch.log(torch.tensor(float(max(2, logits.shape[1]))))


def weighted_entropy(logits: Tensor, weights: Tensor) -> Tensor:
    """Return mean_i(w_i H(p_i)), a scalar, of logits (n, c) and weights (n,).

    Example:
        >>> round(float(weighted_entropy(torch.zeros(2, 2), torch.tensor([1.0, 0.0]))), 4)  # log(2) / 2
        0.3466
    """
    return (weights * entropy(logits)).mean()


def entropy_separation_loss(logits: Tensor, margin: float = 0.5) -> Tensor:
    """Compute the mean over samples of -|H(p) - ρ| if that distance is above the margin, else 0.

    ρ is half of the largest entropy, log(c) / 2. There is no gradient within the margin, where it is not yet clear
    whether a sample belongs to a class. The authors' code has the constant -margin there, with the same gradients.

    Args:
        logits: (n, c).
        margin: m, in nats.

    Returns:
        The loss, a scalar.

    Paper: Saito et al., NeurIPS 2020, entropy separation.

    Example:
        >>> logits = torch.tensor([[20.0, 0.0], [0.0, 0.0]])  # sure, and not sure at all
        >>> round(float(entropy_separation_loss(logits, margin=0.1)), 4)  # -log(2) / 2
        -0.3466
    """
    distance = (entropy(logits) - math.log(logits.shape[1]) / 2).abs()
    return -distance.where(distance > margin, 0).mean()
