"""Groups among the samples that were called unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.clustering import spherical_kmeans
from uniot.discovery.number import NumberOfClasses


@dataclass(frozen=True)
class PrivateGroups:
    """Groups of the unknown samples.

    Attributes:
        group: (n,), from 0, the largest group first.
        centres: (k, d), unit rows.
        number: how many private classes there are, with an interval and what it rests on.
    """

    group: np.ndarray
    centres: np.ndarray
    number: NumberOfClasses

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return len(self.centres)

    def nearest(self, features: np.ndarray) -> np.ndarray:
        """Group whose centre is nearest to each feature, (m,)."""
        return np.asarray((features @ self.centres.T).argmax(axis=1))

    def confidence(self, features: np.ndarray, group: np.ndarray) -> np.ndarray:
        """How clearly each feature belongs to its group, (m,): 1 at the centre, 0 where another is as near.

        One less the ratio of the distances to the group's own centre and to the nearest other; where there is one
        group alone, the cosine to its centre. 0 where `group` is -1.
        """
        sure = np.zeros(len(features))
        grouped = group >= 0
        if not grouped.any():
            return sure
        distance = np.clip(1 - features[grouped] @ self.centres.T, 0, None).astype(np.float64)
        rows, own_group = np.arange(len(distance)), group[grouped]
        own = distance[rows, own_group]
        distance[rows, own_group] = np.inf
        other = distance.min(axis=1) if self.n_groups > 1 else np.ones(len(own))
        sure[grouped] = np.clip(1 - own / np.maximum(other, 1e-12), 0, 1)
        return sure


def private_groups(features: np.ndarray, number: int | NumberOfClasses, *, seed: int = 0) -> PrivateGroups:
    """Groups unit features of unknown samples by spherical k-means, the largest group first.

    Where there is no unknown sample, or the number is 0, there is no group and every sample has -1.

    Args:
        features: (n, d), unit rows.
        number: how many groups, given or counted.
        seed: decides the random starts.

    Paper: none (the paper clusters the truly private samples with their true number of classes).
    """
    counted = number if isinstance(number, NumberOfClasses) else NumberOfClasses(number, (number, number))
    n_groups = min(counted.estimate, len(features))
    if n_groups == 0:
        return PrivateGroups(np.full(len(features), -1), np.zeros((0, features.shape[1]), np.float32), counted)
    clusters = spherical_kmeans(features, n_groups, seed=seed)
    sizes = np.bincount(clusters.groups, minlength=len(clusters.centres))
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return PrivateGroups(rank[clusters.groups], clusters.centres[order], counted)
