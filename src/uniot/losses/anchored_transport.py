"""Joint transport with anchors for unknown samples, the loss of UniJDOT.

References:
    Mussard et al., Deep Joint Distribution Optimal Transport for Universal Domain Adaptation on Time Series,
    arXiv:2503.11217.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def anchored_joint_cost(
    source: Tensor,
    target: Tensor,
    anchors: Tensor,
    source_labels: Tensor,
    target_logits: Tensor,
    unknown: Tensor,
    feature_weight: float,
    label_weight: float,
) -> Tensor:
    """Compute the cost of moving source samples to known target samples, and anchors to unknown ones.

    C = α D + λ L. Between a source sample and a known target sample, D is the distance of their features, and L that of
    the one-hot label and the prediction. Between an anchor and an unknown sample, L is the distance of the prediction
    to even probabilities. All other entries are the largest of these, each for D and for L, without gradient.

    Args:
        source: features, (b, d).
        target: features, (b', d).
        anchors: positions to which unknown samples may be moved, (k, d).
        source_labels: class index per source sample, (b,).
        target_logits: of the classifier, (b', c).
        unknown: whether each target sample is taken for unknown, (b',).
        feature_weight: α.
        label_weight: λ.

    Returns:
        The cost, (b + k, b').

    Example:
        >>> source, target, anchors = torch.zeros(1, 1), torch.tensor([[1.0], [2.0]]), torch.tensor([[5.0]])
        >>> logits, unknown = torch.zeros(2, 2), torch.tensor([False, True])
        >>> anchored_joint_cost(source, target, anchors, torch.tensor([0]), logits, unknown, 1.0, 0.0)
        tensor([[1., 3.],
                [3., 3.]])
    """
    p = target_logits.softmax(dim=1)
    labels = F.one_hot(source_labels, p.shape[1]).to(p)
    even = torch.full((len(anchors), p.shape[1]), 1 / p.shape[1]).to(p)
    features = _filled(torch.cat([source, anchors]), target, len(source), unknown)
    predictions = _filled(torch.cat([labels, even]), p, len(source), unknown)
    return feature_weight * features + label_weight * predictions


def _filled(left: Tensor, right: Tensor, n_source: int, unknown: Tensor) -> Tensor:
    """Return Euclidean distances, (b + k, b'); pairs that do not fit have the largest distance of those that do."""
    # The other mode cancels digits of small distances.
    distances = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
    fits = fitting_pairs(n_source, len(left) - n_source, unknown)
    largest = distances.detach().where(fits, 0).max() if distances.numel() else 0.0
    return distances.where(fits, largest)


def fitting_pairs(n_source: int, n_anchors: int, unknown: Tensor) -> Tensor:
    """Return which pairs may be moved, (b + k, b'): source samples to known samples, anchors to unknown ones.

    Example:
        >>> fitting_pairs(1, 1, torch.tensor([False, True]))
        tensor([[ True, False],
                [False,  True]])
    """
    is_anchor = torch.arange(n_source + n_anchors, device=unknown.device) >= n_source
    return is_anchor[:, None] == unknown


def anchored_transport_loss(cost: Tensor, plan: Tensor, n_source: int, unknown: Tensor) -> Tensor:
    """Return half the sum of γ C over the pairs that fit, a scalar.

    Args:
        cost: C, `anchored_joint_cost`, (b + k, b').
        plan: γ, without gradient, (b + k, b').
        n_source: b.
        unknown: whether each target sample is taken for unknown, (b',).

    Example:
        >>> cost, unknown = torch.tensor([[2.0, 9.0], [9.0, 4.0]]), torch.tensor([False, True])
        >>> float(anchored_transport_loss(cost, torch.full((2, 2), 0.25), 1, unknown))
        0.75
    """
    fits = fitting_pairs(n_source, len(cost) - n_source, unknown)
    return (cost * plan.detach()).where(fits, 0).sum() / 2
