"""Estimate the number of private classes.

A photo collection has clusters at every scale: kinds of objects, objects, photos of one object. A score of the unknown
samples alone cannot decide which of these scales the user would call a class, but the known classes can: they show how
large a class is in this collection. The estimates that count cut a hierarchical clustering at the level that
agrees best with the known classes. The silhouette has no such reference: it breaks ties, is reported beside the
estimates, and counts only if fewer than two classes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from uniot.discovery.dendrogram import Dendrogram, mean_silhouettes
from uniot.io.text import plural

# Smaller clusters do not count as groups.
_MIN_GROUP_SIZE = 3
_N_DRAWS = 20
_DRAWN_FRACTION = 0.8
_MIN_DRAWN_ROWS, _ROWS_PER_CLASS = 600, 20
# Every number of groups is tried up to this one, and steps of five per cent beyond.
_MAX_CONSECUTIVE, _STEP_BEYOND = 40, 1.05


@dataclass(frozen=True)
class SeenTarget:
    """The target samples from which private classes are counted: a few thousand, because all pairs are compared.

    Attributes:
        embeddings: (n_samples, n_features), unit rows of a space in which known and unknown classes have one scale.
            If a projection was trained, that is the space before it, because training contracts the known classes only.
        prototypes: nearest cluster prototype of each sample, (n_samples,); None if the method learns none.
        known: whether the sample was predicted as known, (n_samples,).
        nearest: index of the nearest source class, (n_samples,).
        min_relative_size: minimum size of a private group as a fraction of the median known group; smaller ones are
            taken for stray samples of known classes.
    """

    embeddings: np.ndarray
    prototypes: np.ndarray | None
    known: np.ndarray
    nearest: np.ndarray
    min_relative_size: float = 0.0

    def __len__(self) -> int:
        return len(self.known)


@dataclass(frozen=True)
class Evidence:
    """One estimate of the number of private classes.

    Attributes:
        name: name of the estimate.
        estimate: median over the draws.
        interval: 5th and 95th percentile of the draws.
        counts: whether the combined estimate uses it.
        sentence: how it is computed.
    """

    name: str
    estimate: float
    interval: tuple[float, float]
    counts: bool
    sentence: str


@dataclass(frozen=True)
class NumberOfClasses:
    """The estimated number of private classes.

    Attributes:
        estimate: median over the draws of the mean of the estimates that count.
        interval: 5th and 95th percentile of the draws.
        evidence: the single estimates.
    """

    estimate: int
    interval: tuple[int, int]
    evidence: tuple[Evidence, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NumberOfClasses:
        """Return the number that `dataclasses.asdict` converted, possibly by way of JSON."""
        evidence = (Evidence(**(one | {"interval": tuple(one["interval"])})) for one in values["evidence"])
        low, high = values["interval"]
        return cls(values["estimate"], (low, high), tuple(evidence))


def why_ungrouped(n_unknown: int, *, asked_for_none: bool = False) -> str:
    """Return the rest of a sentence that begins with the number of unknown samples, if these form no group.

    Args:
        n_unknown: number of unknown samples, at least 1.
        asked_for_none: whether the user set the number of groups to 0; otherwise it was estimated.
    """
    fit = f"{plural(n_unknown, 'fits', 'fit')} none of your classes well"
    if asked_for_none:
        return f"{fit}; grouping was switched off"
    if n_unknown == 1:
        return f"{fit}; one alone does not show whether there is a new class"
    return f"{fit}; they are too few or too scattered to say whether they form a new class"


def number_of_private_classes(target: SeenTarget, *, seed: int = 0) -> NumberOfClasses:
    """Estimate the number of private classes of a target, which may be zero.

    Args:
        target: known and unknown samples.
        seed: random seed of the draws.

    Returns:
        The estimate with its interval and the evidence behind it.
    """
    if (~target.known).sum() < _MIN_GROUP_SIZE:
        return NumberOfClasses(0, (0, 0))
    n_known_classes = len(np.unique(target.nearest[target.known]))
    estimators: tuple[_Estimator, ...] = _ESTIMATORS if n_known_classes > 1 else (_SILHOUETTE_ALONE,)
    if target.prototypes is None:
        estimators = tuple(one for one in estimators if one.count is not _by_prototypes)
    rng = np.random.default_rng(seed)
    n_rows = max(_MIN_DRAWN_ROWS, _ROWS_PER_CLASS * n_known_classes)
    n_rows = max(2, min(n_rows, int(_DRAWN_FRACTION * len(target))))
    distance = _cosine_distance(target.embeddings)
    rows = (np.sort(rng.choice(len(target), n_rows, replace=False)) for _ in range(_N_DRAWS))
    draws = (_Draw(target, distance, drawn) for drawn in rows)
    counts = np.array([[one.count(draw) for one in estimators] for draw in draws], dtype=np.float64)
    combined = counts[:, [one.counts for one in estimators]].mean(axis=1)
    low, high = _percentiles(combined)
    return NumberOfClasses(
        estimate=round(float(np.median(combined))),
        interval=(int(np.floor(low)), int(np.ceil(high))),
        evidence=tuple(
            Evidence(one.name, float(np.median(column)), _percentiles(column), one.counts, one.sentence)
            for one, column in zip(estimators, counts.T, strict=True)
        ),
    )


class _Draw:
    """A random subset of the target with its pairwise distances."""

    def __init__(self, target: SeenTarget, distance: np.ndarray, rows: np.ndarray) -> None:
        self.embeddings = target.embeddings[rows]
        self.prototypes = None if target.prototypes is None else target.prototypes[rows]
        self.known = target.known[rows]
        self.nearest = target.nearest[rows]
        self.min_relative_size = target.min_relative_size
        self.cosine_distance = distance[np.ix_(rows, rows)]

    def best(self, tree: Dendrogram, numbers: np.ndarray) -> np.ndarray:
        """Return the cut that agrees best with the known classes by V-measure, (n_samples,).

        The silhouette breaks ties. In a draw without a known sample, all cuts are tied.
        """
        agreement = tree.agreement(self.nearest, self.known)[numbers - 1]
        equal = numbers[agreement > agreement.max() - 1e-9]
        if len(equal) > 1:
            scores = mean_silhouettes(self.cosine_distance, tree.order, map(tree.starts, equal))
            equal = equal[[scores.argmax()]]
        return tree.groups(int(equal[0]))

    def n_private(self, groups: np.ndarray) -> int:
        """Return the number of groups in which most samples are unknown."""
        sizes = np.bincount(groups)
        is_private = np.bincount(groups[~self.known], minlength=len(sizes)) > sizes / 2
        known_sizes = sizes[~is_private & (sizes >= _MIN_GROUP_SIZE)]
        smallest = self.min_relative_size * np.median(known_sizes) if len(known_sizes) else 0
        return int((is_private & (sizes >= max(_MIN_GROUP_SIZE, smallest))).sum())


def _by_known_classes(draw: _Draw) -> float:
    """Cut Ward's clustering of all samples at the best agreement with the known classes."""
    return draw.n_private(draw.best(_ward(draw.cosine_distance), _numbers(len(draw.known))))


def _by_prototypes(draw: _Draw) -> float:
    """Merge the occupied cluster prototypes up to the best agreement with the known classes."""
    assert draw.prototypes is not None
    occupied, prototype, sizes = np.unique(draw.prototypes, return_inverse=True, return_counts=True)
    if len(occupied) < 2:
        return draw.n_private(prototype)
    sums = np.zeros((len(occupied), draw.embeddings.shape[1]))
    np.add.at(sums, prototype, draw.embeddings)
    means = sums / sizes[:, None]
    squares = (means**2).sum(axis=1)
    apart = np.clip(squares[:, None] + squares - 2 * means @ means.T, 0, None)
    # Ward's cost: the increase of the variance within groups if two are merged.
    cost = np.sqrt(2 * apart * sizes[:, None] * sizes / (sizes[:, None] + sizes))
    np.fill_diagonal(cost, 0)
    tree = Dendrogram.fit(_condensed(cost), "average", prototype)
    return draw.n_private(draw.best(tree, np.arange(1, len(occupied) + 1)))


def _by_silhouette(draw: _Draw) -> float:
    """Return the number of groups of the unknown samples with the best silhouette."""
    distance = draw.cosine_distance[np.ix_(~draw.known, ~draw.known)]
    if len(distance) < 2 * _MIN_GROUP_SIZE:
        return float(len(distance) >= _MIN_GROUP_SIZE)
    numbers, tree = _numbers(len(distance)), _ward(distance)
    scores = mean_silhouettes(distance, tree.order, map(tree.starts, numbers))
    best = int(scores.argmax())
    return float(numbers[best]) if scores[best] > 0 else 1.0


@dataclass(frozen=True)
class _Estimator:
    name: str
    count: Callable[[_Draw], float]
    counts: bool
    sentence: str


_ESTIMATORS = (
    _Estimator(
        "known classes",
        _by_known_classes,
        True,
        "All samples are merged step by step until the groups agree best with the known classes. The estimate is the "
        "number of groups in which most samples are unknown.",
    ),
    _Estimator(
        "cluster prototypes",
        _by_prototypes,
        True,
        "The learnt cluster prototypes that have samples are merged in the same way, until they agree best with the "
        "known classes.",
    ),
    _Estimator(
        "silhouette",
        _by_silhouette,
        False,
        "The number of groups of the unknown samples with the best silhouette. It does not use the known classes and "
        "is often several times too high, so it is shown but not counted.",
    ),
)
_SILHOUETTE_ALONE = _Estimator(
    "silhouette",
    _by_silhouette,
    True,
    "The number of groups of the unknown samples with the best silhouette. Fewer than two classes are known, so there "
    "is nothing to compare it with; it is often several times too high.",
)


def _ward(cosine_distance: np.ndarray) -> Dendrogram:
    """Cluster by Ward's method with the Euclidean distances between unit rows."""
    return Dendrogram.fit(np.sqrt(2 * _condensed(cosine_distance)), "ward")


def _condensed(distance: np.ndarray) -> np.ndarray:
    """Return the upper triangle of a distance matrix (n, n) without its diagonal, (n (n - 1) / 2,)."""
    # Imported here for the same reason as in `Dendrogram.fit`.
    from scipy.spatial.distance import squareform

    condensed: np.ndarray = squareform(distance, checks=False)
    return condensed


def _numbers(n_samples: int) -> np.ndarray:
    """Return the numbers of groups to try."""
    largest = max(2, n_samples // _MIN_GROUP_SIZE)
    beyond = (_MAX_CONSECUTIVE * _STEP_BEYOND ** np.arange(1, 200)).astype(np.int64)
    numbers = np.concatenate([np.arange(2, _MAX_CONSECUTIVE + 1), beyond])
    return np.asarray(numbers[numbers <= largest])


def _cosine_distance(embeddings: np.ndarray) -> np.ndarray:
    """Return cosine distances between unit rows, (n_samples, n_samples)."""
    distance: np.ndarray = embeddings @ embeddings.T
    np.subtract(1, distance, out=distance)
    np.clip(distance, 0, None, out=distance)
    np.fill_diagonal(distance, 0)
    return distance


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, (5, 95))
    return float(low), float(high)
