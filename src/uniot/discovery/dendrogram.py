"""Cluster hierarchically, and compute the V-measure and the silhouette of all cuts of the tree.

scikit-learn scores one grouping at a time. Here thousands of cuts of one tree are scored per target, each from the one
before: counting with scikit-learn's functions takes three times as long, with equal results (tested).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Entropies of a few thousand samples are exact to this; the smallest that is not zero is far larger.
_NO_ENTROPY = 1e-9
# Mean distances below this are zero up to rounding.
_NO_DISTANCE = 1e-9


@dataclass(frozen=True)
class Dendrogram:
    """A hierarchical clustering: leaves are merged two by two until one group is left.

    Attributes:
        merges: the two nodes that each step merges, (n_leaves - 1, 2), the closest first. Node i < n_leaves is a leaf,
            node n_leaves + s is what step s makes.
        leaf: leaf that each sample is in, (n_samples,).
    """

    merges: np.ndarray
    leaf: np.ndarray

    @classmethod
    def fit(cls, distance: np.ndarray, method: str, leaf: np.ndarray | None = None) -> Dendrogram:
        """Cluster by the distances between leaves.

        Args:
            distance: condensed, (n_leaves (n_leaves - 1) / 2,), as returned by SciPy's `squareform`.
            method: of SciPy's `linkage`, such that later merges are never closer: "ward" or "average".
            leaf: leaf that each sample is in, (n_samples,); one sample per leaf if None.

        Returns:
            The tree.
        """
        # Imported here, because SciPy takes half a second, and predictions do without it.
        from scipy.cluster.hierarchy import linkage

        merges = linkage(distance, method)[:, :2].astype(np.int64)
        return cls(merges, np.arange(len(merges) + 1) if leaf is None else leaf)

    @property
    def n_leaves(self) -> int:
        """Return the number of leaves, which is the largest number of groups."""
        return len(self.merges) + 1

    @property
    def order(self) -> np.ndarray:
        """Return the samples in an order in which every group of every cut is contiguous, (n_samples,)."""
        return self._layout[0]

    def starts(self, n_groups: int) -> np.ndarray:
        """Return the place in `order` where each group of a cut begins, (n_groups,)."""
        return np.append(0, 1 + np.flatnonzero(self._layout[1] >= self.n_leaves - n_groups))

    def groups(self, n_groups: int) -> np.ndarray:
        """Return the group of each sample in a cut, (n_samples,), numbered along `order`."""
        groups = np.empty(len(self.leaf), dtype=np.int64)
        groups[self.order] = np.repeat(np.arange(n_groups), np.diff(self.starts(n_groups), append=len(self.leaf)))
        return groups

    def agreement(self, classes: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return the V-measure of every cut against the classes of the known samples, (n_leaves,).

        Entry g - 1 is that of g groups: the mutual information of classes and groups over the mean of their entropies;
        1 if both entropies are zero.

        Args:
            classes: class index of each sample, (n_samples,).
            known: whether the sample counts, (n_samples,).

        References:
            Rosenberg and Hirschberg. V-Measure: A Conditional Entropy-Based External Cluster Evaluation Measure.
            EMNLP-CoNLL 2007.
        """
        n_known = int(known.sum())
        if n_known == 0:
            return np.ones(self.n_leaves)
        # How many samples of each class a node has.
        counts: list[dict[int, int]] = [{} for _ in range(self.n_leaves)]
        for leaf, index in zip(self.leaf[known].tolist(), classes[known].tolist(), strict=True):
            counts[leaf][index] = counts[leaf].get(index, 0) + 1
        sizes = [sum(count.values()) for count in counts]
        # Entropies follow from sums of x log x over sizes, to which a merge makes few changes.
        whole = np.arange(1, n_known + 1)
        x_log_x = [0.0, *(whole * np.log(whole)).tolist()]
        of_groups = [sum(x_log_x[size] for size in sizes)]
        of_both = [sum(x_log_x[size] for count in counts for size in count.values())]
        for one, other in self.merges.tolist():
            fewer, merged = sorted((counts[one], counts[other]), key=len)
            change = 0.0
            for index, size in fewer.items():
                before = merged.get(index, 0)
                merged[index] = before + size
                change += x_log_x[before + size] - x_log_x[before] - x_log_x[size]
            counts.append(merged)
            sizes.append(sizes[one] + sizes[other])
            of_groups.append(of_groups[-1] + x_log_x[sizes[-1]] - x_log_x[sizes[one]] - x_log_x[sizes[other]])
            of_both.append(of_both[-1] + change)
        of_classes = sum(x_log_x[size] for size in counts[-1].values())
        sums = (of_classes, of_groups, of_both)
        class_entropy, group_entropy, joint_entropy = (np.log(n_known) - np.array(sum_) / n_known for sum_ in sums)
        either = class_entropy + group_entropy
        shared = 2 * (either - joint_entropy) / np.maximum(either, _NO_ENTROPY)
        return np.asarray(np.where(either < _NO_ENTROPY, 1.0, shared)[::-1])

    @cached_property
    def _layout(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `order`, and the step that merges each sample with the next, (n_samples - 1,); -1 within a leaf."""
        first, last = list(range(self.n_leaves)), list(range(self.n_leaves))
        following, merged_at = [-1] * self.n_leaves, [-1] * self.n_leaves
        for step, (left, right) in enumerate(self.merges.tolist()):
            following[last[left]], merged_at[last[left]] = first[right], step
            first.append(first[left])
            last.append(last[right])
        leaves = [first[-1]]
        while following[leaves[-1]] >= 0:
            leaves.append(following[leaves[-1]])
        place = np.empty(self.n_leaves, dtype=np.int64)
        place[leaves] = np.arange(self.n_leaves)
        order = np.argsort(place[self.leaf], kind="stable")
        ordered = self.leaf[order]
        return order, np.where(ordered[1:] == ordered[:-1], -1, np.array(merged_at)[ordered[:-1]])


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
