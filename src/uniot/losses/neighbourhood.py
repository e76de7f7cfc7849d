"""Neighbourhood losses: samples agree with their nearest neighbours and differ from the others.

References:
    Saito et al., Universal Domain Adaptation through Self-Supervision, NeurIPS 2020, arXiv:2002.07953 (DANCE).
    Chen et al., Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation, AAAI 2022 (TNT).
    Lu et al., MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain Adaptation, AAAI 2024,
    arXiv:2312.07871.
    Qu et al., GLC++: Source-Free Universal Domain Adaptation through Global-Local Clustering and Contrastive Affinity
    Learning, arXiv:2403.14410.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.losses.entropies import entropy


def neighbourhood_clustering_loss(
    target: Tensor, class_logits: Tensor, to_remembered: Tensor, temperature: float = 0.05
) -> Tensor:
    """Compute the entropy of each target sample's similarities to class prototypes, batch and memory.

    p_ij ∝ exp(z_i · f_j / τ) over all f_j but the sample itself; the loss is the mean of H(p_i).

    Args:
        target: unit rows, (n, d).
        class_logits: cosines to the class prototypes divided by the temperature, (n, c).
        to_remembered: cosines to stored target samples that are not in this batch, (n, m).
        temperature: τ.

    Returns:
        The loss, a scalar.

    Paper: Saito et al., NeurIPS 2020, neighbourhood clustering.

    Example:
        >>> target = torch.eye(3)[:2]  # two orthogonal samples
        >>> loss = neighbourhood_clustering_loss(target, torch.zeros(2, 3), torch.zeros(2, 0))
        >>> round(float(loss), 4)  # log 4: three prototypes and the other sample, all equally similar
        1.3863
    """
    n = len(target)
    is_other = ~torch.eye(n, dtype=torch.bool, device=target.device)
    to_others = (target @ target.t())[is_other].view(n, n - 1)
    alike = torch.cat([to_others, to_remembered], dim=1) / temperature
    return entropy(torch.cat([class_logits, alike], dim=1)).mean()


@dataclass(frozen=True)
class IndexedFeatures:
    """Unit features of samples of one domain, with the ids of the samples.

    Attributes:
        features: unit rows, (n, d).
        ids: sample id per row, (n,), unique over both domains.
    """

    features: Tensor
    ids: Tensor


@torch.no_grad()
def mutual_neighbours(
    anchors: IndexedFeatures, own: IndexedFeatures, other: IndexedFeatures, n_neighbours: int
) -> Tensor:
    """Find the mutual nearest neighbours of anchors in a domain.

    Row j of `other` is a neighbour of anchor i if it is among the `n_neighbours` most similar to i in `other`, and
    fewer than `n_neighbours` other samples of `own` are more similar to j than i is. A sample is never its own
    neighbour.

    Args:
        anchors: n rows.
        own: rows of the anchors' domain.
        other: m rows of the domain that is searched, which may be the same.
        n_neighbours: largest rank of a neighbour, in both directions.

    Returns:
        Whether each row is a mutual neighbour of each anchor, (n, m).

    Example:
        >>> one = IndexedFeatures(torch.eye(2), torch.tensor([0, 1]))
        >>> other = IndexedFeatures(torch.eye(2).flip(0), torch.tensor([2, 3]))
        >>> mutual_neighbours(one, one, other, n_neighbours=1)
        tensor([[False,  True],
                [ True, False]])
    """
    similarity = anchors.features @ other.features.t()
    similarity.masked_fill_(anchors.ids[:, None] == other.ids, -torch.inf)
    best, chosen = similarity.topk(min(n_neighbours, similarity.shape[1]), dim=1)
    rivals = other.features[chosen.flatten()] @ own.features.t()
    # Only other samples compete with the anchor: neither the anchor itself nor the chosen one.
    rivals.masked_fill_(other.ids[chosen.flatten()][:, None] == own.ids, -torch.inf)
    rivals.masked_fill_(anchors.ids.repeat_interleave(chosen.shape[1])[:, None] == own.ids, -torch.inf)
    nearer = (rivals > best.flatten()[:, None]).sum(dim=1).view_as(chosen)
    is_mutual = (nearer < n_neighbours) & best.isfinite()
    return torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, chosen, is_mutual)


def neighbour_contrastive_loss(logits: Tensor, positives: Tensor, hidden: Tensor) -> Tensor:
    """Compute the mean of -log p over the positives of each row, then over the rows that have any; zero if none has.

    Args:
        logits: similarities divided by a temperature, (n, m); p is their softmax.
        positives: mask of the positives, (n, m), none of them hidden.
        hidden: mask of entries excluded from the softmax, (n, m).

    Returns:
        The loss, a scalar.

    Example:
        >>> positives, hidden = torch.tensor([[True, False]]), torch.tensor([[False, False]])
        >>> round(float(neighbour_contrastive_loss(torch.zeros(1, 2), positives, hidden)), 4)  # log 2
        0.6931
    """
    counts = positives.sum(dim=1)
    # A batch may have no neighbours at all; a mean over nothing would be NaN.
    if not bool(counts.any()):
        return logits.sum() * 0
    log_p = logits.masked_fill(hidden, -torch.inf).log_softmax(dim=1)
    of_rows = -log_p.masked_fill(~positives, 0).sum(dim=1) / counts.clamp_min(1)
    return of_rows[counts > 0].mean()


def neighbour_sets(cosines: Tensor, is_self: Tensor, ratio: float = 0.875) -> Tensor:
    """Return which samples are neighbours of each anchor, (n, m), bool: cosine above `ratio` times that of the nearest.

    An anchor is not its own neighbour. If even the nearest has no positive cosine, there are no neighbours.

    Args:
        cosines: of the anchors to m samples, (n, m).
        is_self: whether a sample is the anchor itself, (n, m), bool.
        ratio: from 0 to 1.

    Example:
        >>> cosines = torch.tensor([[1.0, 0.9, 0.8, 0.1]])
        >>> neighbour_sets(cosines, torch.tensor([[True, False, False, False]]))
        tensor([[False,  True,  True, False]])
    """
    others = cosines.masked_fill(is_self, -torch.inf)
    return others > ratio * others.amax(dim=1, keepdim=True)


def jaccard(sets: Tensor, others: Tensor) -> Tensor:
    """Return |A ∩ B| / |A ∪ B| of each pair of sets, (n, k), and 0 for two empty sets.

    Args:
        sets: membership of m elements, (n, m), bool.
        others: (k, m), bool.

    Example:
        >>> jaccard(torch.tensor([[True, True, False]]), torch.tensor([[False, True, True]]))
        tensor([[0.3333]])
    """
    a, b = sets.float(), others.float()
    shared = a @ b.t()
    return shared / (a.sum(dim=1, keepdim=True) + b.sum(dim=1) - shared).clamp_min(1)


def neighbourhood_invariance_loss(
    cosines: Tensor, is_self: Tensor, neighbours: Tensor, weights: Tensor, scale: float = 10
) -> Tensor:
    """Return the mean over anchors of Σ_j -w_ij log p_ij / |N_i| over the neighbours j, with p_ij ∝ exp(s cos_ij).

    As in the authors' code, p_i is normalised over all m samples, and the anchor itself counts with a cosine of -1.

    Args:
        cosines: of the anchors to the stored samples, (n, m).
        is_self: whether a sample is the anchor itself, (n, m), bool.
        neighbours: N_i, (n, m), bool; an anchor without neighbours has no loss.
        weights: w, (n, m).
        scale: s.

    Paper: Lu et al., AAAI 2024, confidence-guided invariant feature learning.

    Example:
        >>> is_self = torch.tensor([[False, False]])
        >>> neighbours = torch.tensor([[True, False]])
        >>> loss = neighbourhood_invariance_loss(torch.zeros(1, 2), is_self, neighbours, torch.ones(1, 2))
        >>> round(float(loss), 4)  # log 2
        0.6931
    """
    log_p = (scale * cosines.masked_fill(is_self, -1)).log_softmax(dim=1)
    costs = -(log_p * weights * neighbours).sum(dim=1)
    return (costs / neighbours.sum(dim=1).clamp_min(1)).mean()


def contrastive_affinity_loss(features: Tensor, batch: Tensor, neighbours: Tensor, n_skipped: int) -> Tensor:
    """Compute the mean of the cosines to k hard negatives minus those to the k nearest stored samples, both summed.

    The samples of the batch are ranked by their cosine to a sample, without the sample itself. The first `n_skipped`
    are probably of its class; the k that follow are its hard negatives.

    Args:
        features: (n, d).
        batch: the same rows without gradient, (n, d).
        neighbours: stored features of the nearest other samples, (n, k, d).
        n_skipped: expected number of samples of one class in a batch.

    Returns:
        The loss, a scalar.

    Paper: Qu et al., GLC++, contrastive affinity learning.

    Example:
        >>> features, neighbours = torch.eye(3), torch.eye(3)[:, None]
        >>> float(contrastive_affinity_loss(features, features, neighbours, n_skipped=1))
        -1.0
    """
    anchors = F.normalize(features, dim=1)
    positive = (anchors[:, None] * F.normalize(neighbours, dim=2)).sum(dim=2)
    cosines = anchors @ F.normalize(batch, dim=1).t()
    is_self = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    # The sample itself comes last, and is cut off.
    ranked = cosines.masked_fill(is_self, -torch.inf).sort(dim=1, descending=True).values[:, :-1]
    negative = ranked[:, n_skipped : n_skipped + neighbours.shape[1]]
    return (negative.sum(dim=1) - positive.sum(dim=1)).mean()
