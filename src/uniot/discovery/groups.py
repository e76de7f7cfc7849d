"""Groups among the samples that were called unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from uniot.clustering import spherical_kmeans

_MOST_GROUPS = 50
_ROWS_TO_JUDGE = 1500
_ROWS_PER_GROUP = 3


@dataclass(frozen=True)
class PrivateGroups:
    """Groups of the unknown samples.

    Attributes:
        group: (n,), from 0, the largest group first.
        centres: (k, d), unit rows.
        silhouettes: mean silhouette of each number of groups that was tried.
    """

    group: np.ndarray
    centres: np.ndarray
    silhouettes: Mapping[int, float] = field(default_factory=dict)

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return len(self.centres)

    def nearest(self, features: np.ndarray) -> np.ndarray:
        """Group whose centre is nearest to each feature, (m,)."""
        return np.asarray((features @ self.centres.T).argmax(axis=1))


def private_groups(features: np.ndarray, n_groups: int | None = None, *, seed: int = 0) -> PrivateGroups:
    """Groups unit features of unknown samples; the number is that of the best silhouette unless it is given.

    No unknown sample: no group. Too few to compare, or no number with a positive silhouette: one group.

    Args:
        features: (n, d), unit rows.
        n_groups: how many groups; estimated if None.
        seed: decides the random starts.

    Paper: none (the paper clusters the truly private samples with their true number of classes).
    """
    n = len(features)
    if n == 0 or n_groups == 0:
        return PrivateGroups(np.full(n, -1), np.zeros((0, features.shape[1]), np.float32))
    silhouettes: dict[int, float] = {}
    if n_groups is None:
        silhouettes = _silhouettes(features, seed)
        best = max(silhouettes, key=lambda k: silhouettes[k], default=1)
        n_groups = best if silhouettes.get(best, 0) > 0 else 1
    clusters = spherical_kmeans(features, min(n_groups, n), seed=seed)
    sizes = np.bincount(clusters.groups, minlength=len(clusters.centres))
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return PrivateGroups(rank[clusters.groups], clusters.centres[order], silhouettes)


def _silhouettes(features: np.ndarray, seed: int) -> dict[int, float]:
    """Mean silhouette by cosine distance for each number of groups worth trying."""
    if len(features) > _ROWS_TO_JUDGE:
        chosen = np.random.default_rng(seed).choice(len(features), _ROWS_TO_JUDGE, replace=False)
        features = features[np.sort(chosen)]
    distance = 1 - features @ features.T
    np.fill_diagonal(distance, 0)
    found = {}
    for k in range(2, min(_MOST_GROUPS, len(features) // _ROWS_PER_GROUP) + 1):
        groups = spherical_kmeans(features, k, seed=seed, restarts=2).groups
        found[k] = mean_silhouette(distance, groups, k)
    return found


def mean_silhouette(distance: np.ndarray, groups: np.ndarray, n_groups: int) -> float:
    """Mean over samples of (b − a) / max(a, b); a sample alone in its group counts zero.

    Args:
        distance: (n, n), zero diagonal.
        groups: (n,), from 0.
        n_groups: how many groups.
    """
    members = np.eye(n_groups, dtype=distance.dtype)[groups]
    sizes = members.sum(axis=0)
    sums = distance @ members
    rows = np.arange(len(groups))
    own_size = sizes[groups]
    own = sums[rows, groups] / np.maximum(own_size - 1, 1)
    others = sums / np.maximum(sizes, 1)
    others[:, sizes == 0] = np.inf
    others[rows, groups] = np.inf
    nearest = others.min(axis=1)
    larger = np.maximum(own, nearest)
    score = np.where(
        (own_size > 1) & np.isfinite(nearest) & (larger > 0), (nearest - own) / np.maximum(larger, 1e-12), 0
    )
    return float(score.mean())
