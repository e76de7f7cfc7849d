"""Group unknown samples: spherical k-means, exemplars of a group, and absent classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uniot.discovery.class_count import NumberOfClasses
from uniot.errors import DataError, SettingsError
from uniot.io.arrays import as_inputs, in_blocks, scaled_rows
from uniot.io.predictions import Prediction

# Similarities are computed in blocks of rows, so that memory does not grow with rows times clusters.
_BLOCK_ENTRIES = 1 << 22
# Rows that are compared with the centres of groups at a time.
_BLOCK_ROWS = 128


@dataclass(frozen=True, eq=False)
class SphericalClusters:
    """Holds clusters of rows by direction; no cluster is empty.

    Attributes:
        centres: unit centre of each cluster, (n_groups, n_features).
        groups: cluster of each row, (n_samples,).
        cosine: cosine similarity of each row to the centre of its cluster, (n_samples,).
    """

    centres: NDArray[np.float32]
    groups: NDArray[np.int64]
    cosine: NDArray[np.float32]

    @property
    def n_groups(self) -> int:
        """Return the number of clusters."""
        return len(self.centres)

    @property
    def objective(self) -> float:
        """Return the mean of `cosine`, which spherical k-means maximises."""
        return float(self.cosine.mean(dtype=np.float64))


def spherical_kmeans(
    features: Any, n_groups: int, *, seed: int = 0, restarts: int = 5, iterations: int = 20
) -> SphericalClusters:
    """Cluster rows by cosine similarity: scikit-learn's k-means on unit rows, with the centres scaled to unit norm.

    Paper: the K-Means of Eq. (16); the reference code uses faiss with 20 iterations, 5 restarts and random starts.

    Args:
        features: rows to cluster, (n_samples, n_features), of any norm except zero.
        n_groups: number of clusters, from 1 to n_samples.
        seed: random seed of the starts.
        restarts: number of starts, of which the best is kept.
        iterations: maximum number of iterations per start.

    Returns:
        The clusters, each with at least one row; equal rows may be in different clusters if there are fewer distinct
        rows than clusters.

    Raises:
        DataError: more clusters than rows, a row of zeros, a value that is not finite, or not a two-dimensional array.
        SettingsError: `n_groups`, `restarts` or `iterations` is below 1.

    References:
        Dhillon and Modha. Concept Decompositions for Large Sparse Text Data Using Clustering. Machine Learning 42,
        2001.
    """
    # Imported here because the command line must start without waiting for scikit-learn.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = scaled_rows(as_inputs(features, "features"), 1.0).numpy()
    zero = np.flatnonzero(~rows.any(axis=1))
    if zero.size:
        raise DataError(
            f"{zero.size} of {len(rows)} rows of features are all zero (first: row {zero[0]}) and have no direction. "
            "Leave these samples out, or check how they were embedded."
        )
    for name, value in (("n_groups", n_groups), ("restarts", restarts), ("iterations", iterations)):
        if value < 1:
            raise SettingsError(f"{name} must be at least 1, but is {value}. Give a positive whole number.")
    if n_groups > len(rows):
        raise DataError(
            f"{n_groups} groups need as many rows, but there are {len(rows)}. Use fewer groups or more rows."
        )
    # Without other starts to make up for a poor one, the centres are drawn greedily.
    start = _start if restarts > 1 else "k-means++"
    kmeans = KMeans(n_groups, init=start, n_init=restarts, max_iter=iterations, tol=0, random_state=seed)
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters; the empty clusters are filled below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Double precision, so that the order in which threads add up does not show in the float32 centres.
        kmeans.fit(rows.astype(np.float64))
    centres = _unit_centres(kmeans.cluster_centers_, rows, kmeans.labels_)
    groups, cosine = _nearest(rows, centres)
    _fill_empty_groups(rows, centres, groups, cosine)
    return SphericalClusters(centres, groups, cosine)


def _start(rows: np.ndarray, n_groups: int, random_state: Any) -> np.ndarray:
    """Draw the initial centres by k-means++, (n_groups, n_features).

    One trial per centre, as published. The greedy variant, scikit-learn's default, finds better clusters, but raises
    the oracle H³ on Office-31 by half a point, so that scores could not be compared with earlier ones.
    """
    from sklearn.cluster import kmeans_plusplus

    return np.asarray(kmeans_plusplus(rows, n_groups, random_state=random_state, n_local_trials=1)[0])


def _unit_centres(means: np.ndarray, rows: np.ndarray, groups: np.ndarray) -> NDArray[np.float32]:
    norm = np.linalg.norm(means, axis=1)
    # Rows that cancel out have no mean direction; their first one stands for them.
    for group in np.flatnonzero(norm < 1e-6):
        means[group], norm[group] = rows[np.argmax(groups == group)], 1.0
    return np.asarray(means / norm[:, None], dtype=np.float32)


def _nearest(rows: np.ndarray, centres: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    groups = np.empty(len(rows), dtype=np.int64)
    cosine = np.empty(len(rows), dtype=np.float32)
    step = max(1, _BLOCK_ENTRIES // len(centres))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        similarity = rows[block] @ centres.T
        groups[block] = similarity.argmax(axis=1)
        cosine[block] = similarity.max(axis=1)
    return groups, np.clip(cosine, -1.0, 1.0)


def _fill_empty_groups(rows: np.ndarray, centres: np.ndarray, groups: np.ndarray, cosine: np.ndarray) -> None:
    """Move into each empty cluster the row with the lowest cosine whose own cluster keeps another row, in place."""
    sizes = np.bincount(groups, minlength=len(centres))
    lowest_first = iter(np.argsort(cosine, kind="stable"))
    for group in np.flatnonzero(sizes == 0):
        row = next(row for row in lowest_first if sizes[groups[row]] > 1)
        sizes[groups[row]] -= 1
        groups[row], cosine[row], centres[group] = group, 1.0, rows[row]


@dataclass(frozen=True)
class LabelledFeatures:
    """Holds the features of labelled samples.

    Attributes:
        features: unit rows, (n_samples, n_features).
        classes: class index of each sample, (n_samples,).
        rows: row of each sample in the source, (n_samples,); -1 for the mean of a class, which is no sample.
    """

    features: np.ndarray
    classes: np.ndarray
    rows: np.ndarray

    def none(self) -> LabelledFeatures:
        """Return the same with no samples."""
        return LabelledFeatures(self.features[:0], self.classes[:0], self.rows[:0])


@dataclass(frozen=True)
class Exemplars:
    """Lists the exemplars of a class or group, as rows of the target.

    Attributes:
        typical: members nearest to the centre, the nearest first.
        doubtful: members with the lowest confidence, the lowest first; none of them is typical.
    """

    typical: np.ndarray
    doubtful: np.ndarray


def exemplars(members: np.ndarray, nearness: np.ndarray, confidence: np.ndarray, count: int = 16) -> Exemplars:
    """Select typical and doubtful members of a class or group. Paper: the typical ones are those of Fig. S5 and S6.

    Args:
        members: rows of the target, (n_members,).
        nearness: similarity of each member to the centre or prototype, (n_members,).
        confidence: confidence of each member, (n_members,).
        count: maximum number of each kind; if members are few, typical ones are selected first.

    Returns:
        The exemplars, at most `count` of each kind.
    """
    near_first = np.argsort(-nearness, kind="stable")[:count]
    unsure_first = np.argsort(confidence, kind="stable")
    doubtful = unsure_first[~np.isin(unsure_first, near_first)][:count]
    return Exemplars(members[near_first], members[doubtful])


# A single sample that resembles a class by accident must not make the class present.
_N_CLEAREST = 3


def absence(target: Prediction, n_classes: int) -> np.ndarray:
    """Estimate how likely each source class is absent from the target.

    The estimate is 1 minus the mean known score of the three target samples with the highest known scores among those
    nearest to the class; missing samples count as 0.

    Args:
        target: predictions for the target.
        n_classes: number of source classes.

    Returns:
        Scores from 0 to 1, (n_classes,); a class with more than 0.5 is reported as absent.
    """
    clearest = np.zeros((n_classes, _N_CLEAREST))
    for index in range(n_classes):
        largest = np.sort(target.known_score[target.nearest == index])[::-1][:_N_CLEAREST]
        clearest[index, : len(largest)] = largest
    return np.asarray(1 - clearest.mean(axis=1))


@dataclass(frozen=True)
class PrivateGroups:
    """Holds the groups of the unknown samples.

    Attributes:
        group: group of each unknown sample, (n_samples,); the largest group is 0.
        centres: unit rows, (n_groups, n_features).
        number: estimated number of private classes with its interval and evidence.
    """

    group: np.ndarray
    centres: np.ndarray
    number: NumberOfClasses

    @property
    def n_groups(self) -> int:
        """Return the number of groups."""
        return len(self.centres)

    def nearest(self, features: np.ndarray) -> np.ndarray:
        """Return the group with the nearest centre for each row of features, (n_samples,)."""
        return np.asarray(self._cosines(features).argmax(axis=1))

    def _cosines(self, features: np.ndarray) -> np.ndarray:
        """Return the cosine of each row and each centre, (n_samples, n_groups), independent of the other rows."""
        centres = torch.from_numpy(self.centres)
        return np.asarray(in_blocks(lambda rows: rows @ centres.t(), torch.from_numpy(features), _BLOCK_ROWS).numpy())

    def confidence(self, features: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Return how clearly each sample belongs to its group: 1 at the centre, 0 if another centre is as near.

        The confidence is 1 minus the ratio of the cosine distances to the own centre and to the nearest other centre;
        with a single group, it is the cosine to the centre.

        Args:
            features: unit rows, (n_samples, n_features).
            group: group of each sample, (n_samples,), -1 for none.

        Returns:
            Confidences from 0 to 1, (n_samples,); 0 without a group.
        """
        confidence = np.zeros(len(features))
        grouped = group >= 0
        if not grouped.any():
            return confidence
        distance = np.clip(1 - self._cosines(features[grouped]), 0, None).astype(np.float64)
        rows, own_group = np.arange(len(distance)), group[grouped]
        own = distance[rows, own_group]
        distance[rows, own_group] = np.inf
        other = distance.min(axis=1) if self.n_groups > 1 else np.ones(len(own))
        confidence[grouped] = np.clip(1 - own / np.maximum(other, 1e-12), 0, 1)
        return confidence


def private_groups(features: np.ndarray, number: int | NumberOfClasses, *, seed: int = 0) -> PrivateGroups:
    """Group the unknown samples by spherical k-means.

    Paper: none (the paper clusters the truly private samples with their true number of classes).

    Args:
        features: unit rows of the unknown samples, (n_samples, n_features).
        number: number of groups, given or estimated.
        seed: random seed of the k-means starts.

    Returns:
        The groups, the largest first. Without unknown samples, or if the number is 0, there is no group and every
        sample has -1.
    """
    estimated = number if isinstance(number, NumberOfClasses) else NumberOfClasses(number, (number, number))
    n_groups = min(estimated.estimate, len(features))
    if n_groups == 0:
        return PrivateGroups(np.full(len(features), -1), np.zeros((0, features.shape[1]), np.float32), estimated)
    clusters = spherical_kmeans(features, n_groups, seed=seed)
    sizes = np.bincount(clusters.groups, minlength=len(clusters.centres))
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return PrivateGroups(rank[clusters.groups], clusters.centres[order], estimated)
