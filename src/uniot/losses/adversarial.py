"""A discriminator learns to tell the domains apart while the features learn to look the same to it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def reversed_gradient(x: Tensor, strength: float = 1.0) -> Tensor:
    """The same values; the gradient that comes back is multiplied by minus the strength.

    Paper: Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, section 4.2.
    """
    reversed_: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_


def reversal_strength(step: int, steps: float) -> float:
    """2 / (1 + exp(-10 step/steps)) - 1: from 0 at the first step towards 1, two thirds of it after a sixth of `steps`.

    An untrained discriminator's gradients are noise, so the features hear little of it at first.

    Paper: Ganin et al., JMLR 2016, section 5.2.
    """
    # Equal to the formula, and without its cancellation near zero.
    return math.tanh(5 * step / steps)


def domain_loss(
    source_logits: Tensor,
    target_logits: Tensor,
    source_weights: Tensor | None = None,
    target_weights: Tensor | None = None,
) -> Tensor:
    """½ mean(w_s · -log D(x_s)) + ½ mean(w_t · -log(1 - D(x_t))), with D(x) = sigmoid(logit): source is 1, target is 0.

    Each domain counts for half, however many samples it has in the batch. The means are over samples, not over
    weights, so weights that have mean one keep the loss at its scale.

    Args:
        source_logits: (b,), of the discriminator.
        target_logits: (b',).
        source_weights: (b,), without gradient; one each if left out.
        target_weights: (b',), the same.
    """
    source, target = F.softplus(-source_logits), F.softplus(target_logits)
    if source_weights is not None:
        source = source * source_weights.detach()
    if target_weights is not None:
        target = target * target_weights.detach()
    return (source.mean() + target.mean()) / 2


class _Reversal(torch.autograd.Function):
    """Identity with its gradient turned round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None
