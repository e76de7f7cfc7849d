"""Compute the losses, entropies and discrepancies that several methods share."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy H(p) = -Σ_k p_k log p_k of p = softmax(logits) per sample, (n,), in nats.

    Args:
        logits: (n, c).
    """
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def normalised_entropy(logits: Tensor) -> Tensor:
    """Return the entropy divided by its maximum log c per sample, (n,), from 0 to 1; logits: (n, c)."""
    return entropy(logits) / torch.log(torch.tensor(float(max(2, logits.shape[1]))))


def reversed_gradient(x: Tensor, strength: float = 1.0) -> Tensor:
    """Return `x` unchanged; the backward pass multiplies the gradient by -strength.

    Args:
        x: of any shape.
        strength: factor of the reversed gradient.

    Returns:
        The same values, of the same shape.

    References:
        Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, arXiv:1505.07818, section 4.2.
    """
    reversed_: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_


def reversal_strength(step: int, steps: float) -> float:
    """Return 2 / (1 + exp(-10 step/steps)) - 1: from 0 at the first step to two thirds at steps / 6, then towards 1.

    The gradients of an untrained discriminator are noise, so they have little weight at first.

    Args:
        step: number of the step, from zero.
        steps: length of the ramp.

    References:
        Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, arXiv:1505.07818, section 5.2.
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
    """
    source, target = F.softplus(-source_logits), F.softplus(target_logits)
    if source_weights is not None:
        source = source * source_weights.detach()
    if target_weights is not None:
        target = target * target_weights.detach()
    return (source.mean() + target.mean()) / 2


class _Reversal(torch.autograd.Function):
    """Reverse the gradient of an identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def fused_distances(*layers: Tensor) -> Tensor:
    """Compute squared distances between the outer products z_i = a_i ⊗ b_i ⊗ … of several layers.

    The outer products are never formed: <a ⊗ b, a' ⊗ b'> = <a, a'> <b, b'>, so their inner products are products of
    the inner products of the layers.

    Args:
        layers: (n, d_1), (n, d_2), …, rows of the same samples; a single layer gives its own squared distances.

    Returns:
        Squared distances, (n, n).

    References:
        Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016, arXiv:1602.04433,
        section 3.1.
    """
    inner = torch.stack([layer @ layer.t() for layer in layers]).prod(dim=0)
    squares = inner.diagonal()
    # Rounding may give a tiny negative distance between equal rows.
    return (squares[:, None] + squares - 2 * inner).clamp_min(0)


def mean_discrepancy(distances: Tensor, n_source: int, n_kernels: int = 5, factor: float = 2.0) -> Tensor:
    """Compute the squared maximum mean discrepancy (MMD²) between the first `n_source` rows and the others.

    mean k(s, s') + mean k(t, t') - 2 mean k(s, t), the means over all pairs, with k the sum of Gaussian kernels
    exp(-d / h). The middle h is the mean distance between two different rows of both domains together and carries no
    gradient; each other h is `factor` times its neighbour.

    Args:
        distances: squared distances of both domains together, (n, n).
        n_source: number of source rows.
        n_kernels: number of kernels in the sum.
        factor: ratio of two neighbouring bandwidths.

    Returns:
        The biased estimate of MMD², a scalar.

    References:
        Gretton et al., A Kernel Two-Sample Test, JMLR 2012 (the biased estimate).
        Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015, arXiv:1502.02791 (the
        kernels).
    """
    n = len(distances)
    bandwidth = distances.detach().sum() / (n * n - n)
    # Identical rows have a mean distance of zero; any positive bandwidth avoids 0 / 0.
    bandwidth = torch.where(bandwidth > 0, bandwidth, 1)
    kernel = gaussian_kernels(distances, bandwidth, n_kernels, factor)
    source, target = kernel[:n_source], kernel[n_source:]
    return source[:, :n_source].mean() + target[:, n_source:].mean() - 2 * source[:, n_source:].mean()


def gaussian_kernels(distances: Tensor, bandwidth: Tensor, n_kernels: int, factor: float) -> Tensor:
    """Return Σ_i exp(-d / (h factor^i)), of the shape of `distances`; the exponents i are centred on zero.

    Args:
        distances: squared distances d, of any shape.
        bandwidth: h, broadcast to `distances`.
        n_kernels: number of kernels in the sum.
        factor: ratio of two neighbouring bandwidths.
    """
    scales = [factor ** (i - n_kernels // 2) for i in range(n_kernels)]
    return torch.stack([torch.exp(-distances / (bandwidth * scale)) for scale in scales]).sum(dim=0)


def joint_cost(
    source: Tensor,
    target: Tensor,
    source_labels: Tensor,
    target_logits: Tensor,
    feature_weight: float,
    label_weight: float,
) -> Tensor:
    """Compute the cost of moving each source sample, with its label, to each target sample.

    M_ij = α ‖f_i - f_j‖² - λ log p_j(y_i), with p_j the prediction for target sample j.

    Args:
        source: features, (b, d).
        target: features, (b', d).
        source_labels: class index per source sample, (b,).
        target_logits: of the classifier, (b', c).
        feature_weight: α.
        label_weight: λ.

    Returns:
        The cost, (b, b').

    References:
        Damodaran et al., DeepJDOT: Deep Joint Distribution Optimal Transport for Unsupervised Domain Adaptation, ECCV
        2018, arXiv:1803.10081.
    """
    squares = source.square().sum(dim=1)[:, None] + target.square().sum(dim=1)
    # Rounding may give a tiny negative distance between equal rows.
    distances = (squares - 2 * source @ target.t()).clamp_min(0)
    cross_entropies = -F.log_softmax(target_logits, dim=1)[:, source_labels].t()
    return feature_weight * distances + label_weight * cross_entropies
