"""Constrained rejection: reject a fraction of the target while the source is not rejected, the losses of CoLOR.

References:
    Chaudhari et al., Open-Set Domain Adaptation Under Background Distribution Shift: Challenges and A Provably
    Efficient Solution, TMLR 2025, arXiv:2512.01152.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def false_rejection_losses(source_logits: Tensor) -> Tensor:
    """Return mean(-log(1 - p)) of each head over the source, (h,), with p the probability of a rejection.

    Args:
        source_logits: log-odds of a rejection by each head, (b, h), with gradients.

    Example:
        >>> false_rejection_losses(torch.zeros(3, 2))  # log 2
        tensor([0.6931, 0.6931])
    """
    return F.softplus(source_logits).sum(dim=0) / max(1, len(source_logits))


def rejection_rates(target_logits: Tensor, sharpness: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return the fraction of the target that each head rejects, and its differentiable version, (h,) each.

    Args:
        target_logits: log-odds of a rejection by each head, (b', h).
        sharpness: the log-odds are multiplied by it in the differentiable version.

    Example:
        >>> rejection_rates(torch.tensor([[1.0], [-1.0]]))
        (tensor([0.5000]), tensor([0.5000]))
    """
    n = max(1, len(target_logits))
    hard = (target_logits > 0).to(target_logits).sum(dim=0) / n
    return hard, (sharpness * target_logits).sigmoid().sum(dim=0) / n


def rejection_lagrangian(source_losses: Tensor, rates: Tensor, least_rates: Tensor, multipliers: Tensor) -> Tensor:
    """Return Σ_h source_loss_h + λ_h (α_h - rate_h), a scalar, whose minimum in the weights is sought.

    Args:
        source_losses: `false_rejection_losses`, (h,).
        rates: differentiable fraction of the target that each head rejects, (h,).
        least_rates: α, the fraction that it has to reject, (h,).
        multipliers: λ, not negative, without gradient, (h,).

    Example:
        >>> one = torch.ones(1)
        >>> float(rejection_lagrangian(one, 0.25 * one, 0.5 * one, 2 * one))
        1.5
    """
    return (source_losses + multipliers.detach() * (least_rates - rates)).sum()
