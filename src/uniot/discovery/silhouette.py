"""The silhouette: how much nearer samples are to their own group than to the next one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

# Mean distances below this are zero up to rounding.
_NO_DISTANCE = 1e-9


def mean_silhouettes(distance: np.ndarray, order: np.ndarray, cuts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the mean silhouette of several groupings of the same samples, (n_cuts,).

    The silhouette of a sample is (b − a) / max(a, b), with its mean distance a to the rest of its group and b to the
    nearest other group. It is 0 for a sample alone in its group, and in a single group.

    Args:
        distance: (n_samples, n_samples), symmetric, with a zero diagonal.
        order: samples in an order in which every group is contiguous, (n_samples,).
        cuts: where each group begins in that order, (n_groups,), one array per grouping.

    References:
        Rousseeuw. Silhouettes: A graphical aid to the interpretation and validation of cluster analysis. Journal of
        Computational and Applied Mathematics 20, 1987.
    """
    n_samples = len(order)
    # The distances of a sample to a group add up to the difference of two rows, however many groups there are.
    summed = np.zeros((n_samples + 1, n_samples))
    np.cumsum(distance[np.ix_(order, order)], axis=0, out=summed[1:])
    return np.array([_mean_silhouette(summed, starts) for starts in cuts])


def _mean_silhouette(summed: np.ndarray, starts: np.ndarray) -> float:
    if len(starts) == 1:
        return 0.0
    n_samples = summed.shape[1]
    ends = np.append(starts[1:], n_samples)
    sizes = ends - starts
    group, samples = np.repeat(np.arange(len(starts)), sizes), np.arange(n_samples)
    sums = summed[ends] - summed[starts]
    own = sums[group, samples] / np.maximum(sizes - 1, 1)[group]
    sums /= sizes[:, None]
    sums[group, samples] = np.inf
    nearest = sums.min(axis=0)
    larger = np.maximum(own, nearest)
    score = (nearest - own) / np.maximum(larger, _NO_DISTANCE)
    score[(sizes[group] == 1) | (larger <= _NO_DISTANCE)] = 0
    return float(score.mean())
