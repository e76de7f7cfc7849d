"""The cost of transporting features and labels together, used by DeepJDOT, JUMBOT and TS-POT."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


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

    Example:
        >>> source, target = torch.tensor([[0.0]]), torch.tensor([[0.0], [2.0]])
        >>> labels, logits = torch.tensor([0]), torch.zeros(2, 2)
        >>> joint_cost(source, target, labels, logits, feature_weight=1.0, label_weight=0.0)
        tensor([[0., 4.]])
    """
    squares = source.square().sum(dim=1)[:, None] + target.square().sum(dim=1)
    # Rounding may give a tiny negative distance between equal rows.
    distances = (squares - 2 * source @ target.t()).clamp_min(0)
    cross_entropies = -F.log_softmax(target_logits, dim=1)[:, source_labels].t()
    return feature_weight * distances + label_weight * cross_entropies
