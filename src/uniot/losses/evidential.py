"""Evidential losses: the evidence for each class is the parameter of a Dirichlet distribution.

References:
    Sensoy et al., Evidential Deep Learning to Quantify Classification Uncertainty, NeurIPS 2018, arXiv:1806.01768.
    Chen et al., Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation, AAAI 2022 (TNT).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Larger evidence changes no decision, and its exponential would overflow.
_LARGEST_LOGIT = 10.0


def evidence(logits: Tensor) -> Tensor:
    """Return the evidence exp(logit) for each class, (n, c), independent of the other classes; logits: (n, c).

    Example:
        >>> evidence(torch.zeros(1, 3))
        tensor([[1., 1., 1.]])
    """
    return logits.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT).exp()


def evidential_uncertainty(evidences: Tensor) -> Tensor:
    """Return u = C / Σ_c (e_c + 1) per sample, (n,), one if there is no evidence; evidences: (n, c).

    Paper: Sensoy et al., NeurIPS 2018, section 3.

    Example:
        >>> evidential_uncertainty(torch.tensor([[0.0, 0.0], [6.0, 0.0]]))
        tensor([1.0000, 0.2500])
    """
    n_classes = evidences.shape[1]
    return n_classes / (evidences.sum(dim=1) + n_classes)


def evidential_loss(evidences: Tensor, labels: Tensor, prior_weight: float) -> Tensor:
    """Compute the expected cross-entropy under the evidence's Dirichlet distribution, plus a penalty on wrong evidence.

    With α = e + 1, S = Σ_c α_c and ψ the digamma function, the mean over samples of

        ψ(S) - ψ(α_y) + w KL(Dir(α') || Dir(1)),   α' = α but for α'_y = 1.

    Args:
        evidences: (n, c).
        labels: (n,).
        prior_weight: w.

    Returns:
        The loss, a scalar.

    Paper: Sensoy et al., NeurIPS 2018, sections 4 and 5.

    Example:
        >>> right, wrong = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 9.0]])
        >>> label = torch.tensor([0])
        >>> bool(evidential_loss(right, label, prior_weight=1.0) < evidential_loss(wrong, label, prior_weight=1.0))
        True
    """
    alpha = evidences + 1
    own = F.one_hot(labels, alpha.shape[1]).bool()
    expected = torch.digamma(alpha.sum(dim=1)) - torch.digamma(alpha[own])
    return (expected + prior_weight * _divergence_from_flat(alpha.masked_fill(own, 1))).mean()


def _divergence_from_flat(alpha: Tensor) -> Tensor:
    """Return KL(Dir(α) || Dir(1)) per row, (n,)."""
    total = alpha.sum(dim=1)
    spread = (alpha - 1) * (torch.digamma(alpha) - torch.digamma(total)[:, None])
    return torch.lgamma(total) - math.lgamma(alpha.shape[1]) - torch.lgamma(alpha).sum(dim=1) + spread.sum(dim=1)


def uncertainty_boundary_loss(uncertainties: Tensor, boundaries: Tensor) -> Tensor:
    """Return the mean of |u - δ|, a scalar: the distance of the uncertainties to their thresholds.

    It is bounded, so features that maximise it gain nothing from extreme evidence in either direction.

    Args:
        uncertainties: u, (n,), between 0 and 1.
        boundaries: thresholds δ, (n,), used without gradient.

    Example:
        >>> round(float(uncertainty_boundary_loss(torch.tensor([0.2, 0.9]), torch.tensor([0.5, 0.5]))), 4)
        0.35
    """
    return (uncertainties - boundaries.detach()).abs().mean()
