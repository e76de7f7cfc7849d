"""The silhouette: how much nearer samples are to their own group than to the next one."""

from __future__ import annotations

import numpy as np


def mean_silhouette(distance: np.ndarray, groups: np.ndarray, n_groups: int) -> float:
    """Mean over samples of (b − a) / max(a, b); a sample alone in its group counts zero, and so does a single group.

    Args:
        distance: (n, n), zero diagonal.
        groups: (n,), from 0.
        n_groups: how many groups.
    """
    if n_groups == 1:
        return 0.0
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
