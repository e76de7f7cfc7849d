"""Adversarial losses: gradient reversal, domain discriminators, and the boundary of OSBP.

References:
    Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, arXiv:1505.07818 (DANN).
    Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018, arXiv:1804.10427 (OSBP).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def reversed_gradient(x: Tensor, strength: float = 1.0) -> Tensor:
    """Return `x` unchanged; the backward pass multiplies the gradient by -strength.

    Args:
        x: of any shape.
        strength: factor of the reversed gradient.

    Returns:
        The same values, of the same shape.

    References:
        Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, arXiv:1505.07818, section 4.2.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> reversed_gradient(x, strength=0.5).sum().backward()
        >>> x.grad
        tensor([-0.5000, -0.5000])
    """
    reversed_: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_


class _Reversal(torch.autograd.Function):
    """Reverse the gradient of an identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reversal_strength(step: int, steps: float) -> float:
    """Return 2 / (1 + exp(-10 step/steps)) - 1: from 0 at the first step to two thirds at steps / 6, then towards 1.

    The gradients of an untrained discriminator are noise, so they have little weight at first.

    Args:
        step: number of the step, from zero.
        steps: length of the ramp.

    References:
        Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, arXiv:1505.07818, section 5.2.

    Example:
        >>> reversal_strength(0, 1000), round(reversal_strength(500, 1000), 4)
        (0.0, 0.9866)
    """
    # tanh equals the formula and avoids its cancellation near zero.
    return math.tanh(5 * step / steps)


def domain_loss(
    source_logits: Tensor,
    target_logits: Tensor,
    source_weights: Tensor | None = None,
    target_weights: Tensor | None = None,
) -> Tensor:
    """Compute the cross-entropy of a domain discriminator, D(x) = sigmoid(logit): 1 for the source, 0 for the target.

    ½ mean(w_s · -log D(x_s)) + ½ mean(w_t · -log(1 - D(x_t)))

    Each domain has half of the weight, whatever its number of samples in the batch. The means are over samples, not
    over weights, so weights of mean one do not change the scale of the loss.

    Args:
        source_logits: output of the discriminator, (b,).
        target_logits: (b',).
        source_weights: (b,), used without gradient; None for weights of one.
        target_weights: (b',), the same.

    Returns:
        The loss, a scalar.

    Example:
        >>> round(float(domain_loss(torch.zeros(4), torch.zeros(6))), 4)  # log 2: the domains cannot be told apart
        0.6931
    """
    source, target = F.softplus(-source_logits), F.softplus(target_logits)
    if source_weights is not None:
        source = source * source_weights.detach()
    if target_weights is not None:
        target = target * target_weights.detach()
    return (source.mean() + target.mean()) / 2


def unknown_boundary_loss(logits: Tensor, boundary: float = 0.5) -> Tensor:
    """Compute the mean of -t log p(unknown) - (1 - t) log(1 - p(unknown)), smallest if p(unknown) = t for every sample.

    Args:
        logits: (n, c + 1), unknown last.
        boundary: t.

    Returns:
        The loss, a scalar.

    Paper: Saito et al., ECCV 2018, section 3.

    Example:
        >>> round(float(unknown_boundary_loss(torch.zeros(1, 2))), 4)  # p(unknown) = t = 0.5
        0.6931
    """
    log_p = logits.log_softmax(dim=1)
    log_unknown, log_known = log_p[:, -1], log_p[:, :-1].logsumexp(dim=1)
    return -(boundary * log_unknown + (1 - boundary) * log_known).mean()
