"""Losses of deep clustering: pseudo-labels, balanced clusters, and clusters that agree between views or neighbours.

The loss of SwAV, `swapped_code_loss`, is L_local of UniOT and stands there.

References:
    Caron et al., Deep Clustering for Unsupervised Learning of Visual Features, ECCV 2018, arXiv:1807.05520.
    Huang et al., Deep Semantic Clustering by Partition Confidence Maximisation, CVPR 2020 (PICA).
    Van Gansbeke et al., SCAN: Learning to Classify Images without Labels, ECCV 2020, arXiv:2005.12320.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def pseudo_label_loss(
    logits: Tensor, other_logits: Tensor, labels: Tensor, cluster_weights: Tensor | None = None
) -> Tensor:
    """Return the mean cross-entropy of two views with the pseudo-label of their sample.

    Args:
        logits: of one view, (n, k).
        other_logits: of another view, (n, k).
        labels: cluster per sample, (n,).
        cluster_weights: weight of the samples of each cluster, (k,); None for equal weights.

    Example:
        >>> round(float(pseudo_label_loss(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 1]))), 4)  # log 3
        1.0986
    """
    views = torch.cat([logits, other_logits])
    return F.cross_entropy(views, torch.cat([labels, labels]), weight=cluster_weights)


def cluster_imbalance_loss(logits: Tensor) -> Tensor:
    """Return log k − H(p̄) of the mean p̄ of the softmax over all rows (n, k): zero if the clusters are equally large.

    Example:
        >>> logits = torch.tensor([[50.0, 0.0], [50.0, 0.0]])  # both samples in one of two clusters
        >>> round(float(cluster_imbalance_loss(logits)), 4)  # log 2
        0.6931
    """
    log_mean = torch.logsumexp(F.log_softmax(logits, dim=1), dim=0) - math.log(len(logits))
    return math.log(logits.shape[1]) + (log_mean.exp() * log_mean).sum()


def partition_uncertainty_loss(logits: Tensor, other_logits: Tensor) -> Tensor:
    """Return the mean cross-entropy that distinguishes each cluster from all others by the samples that it holds.

    The logits of a cluster are the cosines of its column in the softmax of one view to all columns of the other.

    Args:
        logits: of one view, (n, k).
        other_logits: of another view, (n, k).

    Example:
        >>> sure = 50 * torch.eye(3)
        >>> bool(partition_uncertainty_loss(sure, sure) < partition_uncertainty_loss(sure * 0, sure * 0))
        True
    """
    columns, others = (F.normalize(F.softmax(rows, dim=1), dim=0) for rows in (logits, other_logits))
    return F.cross_entropy(columns.t() @ others, torch.arange(logits.shape[1], device=logits.device))


def neighbour_consistency_loss(logits: Tensor, neighbour_logits: Tensor) -> Tensor:
    """Return −mean log ⟨p, p'⟩ of the softmaxes of samples and neighbours, (n, k); zero if both are sure and agree.

    Example:
        >>> round(float(neighbour_consistency_loss(torch.zeros(1, 4), torch.zeros(1, 4))), 4)  # log 4
        1.3863
    """
    both = F.log_softmax(logits, dim=1) + F.log_softmax(neighbour_logits, dim=1)
    return -torch.logsumexp(both, dim=1).mean()
