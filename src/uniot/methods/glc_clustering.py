"""Label target samples by clustering each class against all others, as GLC and GLC++ do.

References:
    Qu et al., Upcycling Models under Domain and Category Shift, CVPR 2023, arXiv:2303.07110.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.discovery.kmeans import spherical_kmeans
from uniot.methods.dcc_consensus import moved_centres
from uniot.methods.pseudo_labels import evenly_spaced


def one_vs_all_labels(features: Tensor, probabilities: Tensor, n_clusters: int, prior: float = 0.75) -> Tensor:
    """Label each sample by its nearest class, or as unknown if a cluster of the other samples is nearer.

    For each class, the n / n_clusters samples with the largest probability are positive and the others negative. The
    mean direction of the positive samples is the prototype of the class; the negative samples are clustered. A sample
    belongs to the class with the nearest prototype if its cosine to it, multiplied by

        prior + (1 - prior) · mean probability of the positive samples,

    is at least the largest cosine to a negative cluster of that class.

    Args:
        features: unit rows, (n, d).
        probabilities: of each class, (n, c).
        n_clusters: number of negative clusters, K.
        prior: ρ, from 0 to 1.

    Returns:
        Class index per sample, c for unknown, (n,).

    Paper: Qu et al., CVPR 2023, section 3.2, one-vs-all global clustering.
    """
    n, n_classes = probabilities.shape
    positive = probabilities.topk(max(1, n // n_clusters), dim=0)
    scale = prior + (1 - prior) * positive.values.mean(dim=0)
    prototypes = F.normalize(torch.stack([features[places].mean(dim=0) for places in positive.indices.t()]), dim=1)
    cosines = features @ prototypes.t()
    nearest = cosines.argmax(dim=1)
    some = evenly_spaced(features)
    clusters = spherical_kmeans(some.cpu(), min(n_clusters, len(some)), restarts=1)
    centres = torch.from_numpy(clusters.centres).to(features)
    labels = torch.full_like(nearest, n_classes)
    for index in nearest.unique().tolist():
        is_negative = torch.ones(n, dtype=torch.bool, device=features.device)
        is_negative[positive.indices[:, index]] = False
        members = torch.nonzero(nearest == index).flatten()
        to_class = scale[index] * cosines[members, index]
        to_negative = features[members] @ negative_centres(features[is_negative], centres).t()
        labels[members[to_class >= to_negative.amax(dim=1)]] = index
    return labels


def negative_centres(negative: Tensor, centres: Tensor) -> Tensor:
    """Cluster the negative samples of a class by spherical k-means that starts from clusters of all samples.

    Args:
        negative: unit rows, (n, d).
        centres: unit centres of the start, (k, d).

    Returns:
        Unit centres of the clusters that have rows, at most k, (k', d).
    """
    rows = evenly_spaced(negative)
    moved = moved_centres(rows, centres, iterations=10)
    # A cluster that held positive samples alone has no rows left.
    return moved[(rows @ moved.t()).argmax(dim=1).unique()]
