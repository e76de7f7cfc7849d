"""Classes gather evidence each on its own, and little evidence in all is uncertainty."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Beyond it evidence changes no decision, and its exponential would leave the range of numbers.
_LARGEST_LOGIT = 10.0


def evidence(logits: Tensor) -> Tensor:
    """exp(logit), (n, c): what speaks for each class, whatever speaks for the others."""
    return logits.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT).exp()


def uncertainty(evidences: Tensor) -> Tensor:
    """u = C / Σ_c (e_c + 1), (n,), one where there is no evidence at all.

    Paper: Sensoy et al., Evidential Deep Learning to Quantify Classification Uncertainty, NeurIPS 2018, section 3.
    """
    n_classes = evidences.shape[1]
    return n_classes / (evidences.sum(dim=1) + n_classes)


def evidential_loss(evidences: Tensor, labels: Tensor, prior_weight: float) -> Tensor:
    """Cross-entropy expected under the Dirichlet distribution of the evidence, and a penalty on misleading evidence.

    With α = e + 1, S = Σ_c α_c and ψ the digamma function, the mean over samples of

        ψ(S) - ψ(α_y) + w KL(Dir(α') || Dir(1)),   α' = α but for α'_y = 1.

    Args:
        evidences: (n, c).
        labels: (n,).
        prior_weight: w.

    Paper: Sensoy et al., NeurIPS 2018, sections 4 and 5.
    """
    alpha = evidences + 1
    own = F.one_hot(labels, alpha.shape[1]).bool()
    expected = torch.digamma(alpha.sum(dim=1)) - torch.digamma(alpha[own])
    return (expected + prior_weight * _divergence_from_flat(alpha.masked_fill(own, 1))).mean()


def uncertainty_boundary_loss(uncertainties: Tensor, boundaries: Tensor) -> Tensor:
    """Mean of |u - δ|: how far the uncertainties are from their boundaries, on either side.

    It is bounded, so features that are to make it large gain nothing by leaving all evidence, or all doubt, behind.

    Args:
        uncertainties: u, (n,), between 0 and 1.
        boundaries: δ, (n,), without gradient.
    """
    return (uncertainties - boundaries.detach()).abs().mean()


def _divergence_from_flat(alpha: Tensor) -> Tensor:
    """KL(Dir(α) || Dir(1)) of each row, (n,)."""
    total = alpha.sum(dim=1)
    spread = (alpha - 1) * (torch.digamma(alpha) - torch.digamma(total)[:, None])
    return torch.lgamma(total) - math.lgamma(alpha.shape[1]) - torch.lgamma(alpha).sum(dim=1) + spread.sum(dim=1)
