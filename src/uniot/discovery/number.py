"""How many private classes there are, from several pieces of evidence on many draws of the samples.

A collection of photographs has groups at every scale: kinds of things, things, pictures of one thing. No score of the
unknown samples alone can tell which of them people would call a class. The known classes can: they are what this person
calls classes, in this very collection. What counts here is therefore read off where it is right about them. The
silhouette, which has no such measure, decides between answers that are equally right, is told beside them, and counts
by itself only where nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import squareform

from uniot.discovery.dendrogram import Dendrogram
from uniot.discovery.silhouette import mean_silhouettes

# Fewer samples than this are not called a group.
_FEWEST_MEMBERS = 3
_DRAWS = 20
_SHARE_OF_A_DRAW = 0.8
_ROWS_OF_A_DRAW, _ROWS_PER_CLASS = 600, 20
# Numbers of groups are tried one by one up to this, and then in steps of some per cent.
_EVERY_NUMBER_TO, _STEP_BEYOND = 40, 1.05


@dataclass(frozen=True)
class SeenTarget:
    """Some samples of the target, as the counting sees them: a few thousand, for all pairs are compared.

    Attributes:
        embeddings: (n, d) unit rows of a space in which known and unknown classes have one scale. Where a projection
            was trained that is the space before it: it has pulled the known classes together and nothing else.
        prototypes: learnt cluster prototype nearest to each, (n,); None where the method learns none.
        known: whether the sample was called known, (n,).
        nearest: index of its nearest source class, (n,).
        least_part: how large a private group is at least, as a part of the median known one; smaller ones are taken for
            stray samples of known classes.
    """

    embeddings: np.ndarray
    prototypes: np.ndarray | None
    known: np.ndarray
    nearest: np.ndarray
    least_part: float = 0.0

    def __len__(self) -> int:
        return len(self.known)


@dataclass(frozen=True)
class Evidence:
    """What one way of counting says.

    Attributes:
        name: of the way.
        estimate: median over the draws.
        interval: from the 5th to the 95th percentile of the draws.
        counts: whether the answer rests on it.
        sentence: what it rests on.
    """

    name: str
    estimate: float
    interval: tuple[float, float]
    counts: bool
    sentence: str


@dataclass(frozen=True)
class NumberOfClasses:
    """How many private classes there are.

    Attributes:
        estimate: the mean of the pieces of evidence that count, of each draw; of these the median.
        interval: from the 5th to the 95th percentile of the draws.
        evidence: what each piece says.
    """

    estimate: int
    interval: tuple[int, int]
    evidence: tuple[Evidence, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NumberOfClasses:
        """What `dataclasses.asdict` made of one, perhaps by way of JSON."""
        evidence = (Evidence(**(one | {"interval": tuple(one["interval"])})) for one in values["evidence"])
        low, high = values["interval"]
        return cls(values["estimate"], (low, high), tuple(evidence))


def number_of_private_classes(target: SeenTarget, *, seed: int = 0) -> NumberOfClasses:
    """Counts the private classes of a target; there may be none.

    Args:
        target: samples, known and unknown.
        seed: decides the draws.
    """
    if (~target.known).sum() < _FEWEST_MEMBERS:
        return NumberOfClasses(0, (0, 0))
    comparable = len(np.unique(target.nearest[target.known])) > 1
    without = _by_prototypes if target.prototypes is None else None
    ways = [way for way in (_WAYS if comparable else (_SILHOUETTE_ALONE,)) if way.count is not without]
    rng = np.random.default_rng(seed)
    n_rows = max(_ROWS_OF_A_DRAW, _ROWS_PER_CLASS * len(np.unique(target.nearest[target.known])))
    n_rows = max(2, min(n_rows, int(_SHARE_OF_A_DRAW * len(target))))
    distance = _cosine_distance(target.embeddings)
    rows = (np.sort(rng.choice(len(target), n_rows, replace=False)) for _ in range(_DRAWS))
    draws = (_Draw(target, distance, some) for some in rows)
    counts = np.array([[way.count(draw) for way in ways] for draw in draws], dtype=np.float64)
    together = counts[:, [way.counts for way in ways]].mean(axis=1)
    low, high = _percentiles(together)
    return NumberOfClasses(
        estimate=round(float(np.median(together))),
        interval=(int(np.floor(low)), int(np.ceil(high))),
        evidence=tuple(
            Evidence(way.name, float(np.median(column)), _percentiles(column), way.counts, way.sentence)
            for way, column in zip(ways, counts.T, strict=True)
        ),
    )


class _Draw:
    """Some rows of the target, with the distances between them."""

    def __init__(self, target: SeenTarget, distance: np.ndarray, rows: np.ndarray) -> None:
        self.embeddings = target.embeddings[rows]
        self.prototypes = None if target.prototypes is None else target.prototypes[rows]
        self.known = target.known[rows]
        self.nearest = target.nearest[rows]
        self.least_part = target.least_part
        self.cosine_distance = distance[np.ix_(rows, rows)]

    def numbers(self, n_rows: int) -> np.ndarray:
        """Numbers of groups worth trying for so many rows."""
        most = max(2, n_rows // _FEWEST_MEMBERS)
        beyond = _EVERY_NUMBER_TO * _STEP_BEYOND ** np.arange(1, 200)
        numbers = np.concatenate([np.arange(2, _EVERY_NUMBER_TO + 1), beyond[beyond <= most].astype(np.int64)])
        return numbers[numbers <= most]

    def best(self, tree: Dendrogram, numbers: np.ndarray) -> np.ndarray:
        """Return the cut that agrees best with the known classes, (n,); of several, that with the best silhouette.

        A draw of few samples may hold no known one: all cuts are then equal.
        """
        agreement = tree.agreement(self.nearest, self.known)[numbers - 1]
        equal = numbers[agreement > agreement.max() - 1e-9]
        if len(equal) > 1:
            scores = mean_silhouettes(self.cosine_distance, tree.order, map(tree.starts, equal))
            equal = equal[[scores.argmax()]]
        return tree.groups(int(equal[0]))

    def private(self, groups: np.ndarray) -> int:
        """Groups most of whose members are unknown."""
        sizes = np.bincount(groups)
        is_private = np.bincount(groups[~self.known], minlength=len(sizes)) > sizes / 2
        known_sizes = sizes[~is_private & (sizes >= _FEWEST_MEMBERS)]
        fewest = max(_FEWEST_MEMBERS, self.least_part * np.median(known_sizes)) if len(known_sizes) else _FEWEST_MEMBERS
        return int((is_private & (sizes >= fewest)).sum())


def _by_known_classes(draw: _Draw) -> float:
    """All samples as a tree (Ward), cut where its branches agree best with the known classes."""
    tree = _ward(draw.cosine_distance)
    return draw.private(draw.best(tree, draw.numbers(len(draw.known))))


def _by_prototypes(draw: _Draw) -> float:
    """The occupied cluster prototypes, joined until they agree best with the known classes."""
    assert draw.prototypes is not None
    occupied, member_of, sizes = np.unique(draw.prototypes, return_inverse=True, return_counts=True)
    if len(occupied) < 2:
        return draw.private(member_of)
    sums = np.zeros((len(occupied), draw.embeddings.shape[1]))
    np.add.at(sums, member_of, draw.embeddings)
    means = sums / sizes[:, None]
    squares = (means**2).sum(axis=1)
    apart = np.clip(squares[:, None] + squares - 2 * means @ means.T, 0, None)
    # By how much the spread within groups grows when two are joined.
    cost = np.sqrt(2 * apart * sizes[:, None] * sizes / (sizes[:, None] + sizes))
    np.fill_diagonal(cost, 0)
    tree = Dendrogram.fit(squareform(cost, checks=False), "average", member_of)
    return draw.private(draw.best(tree, np.arange(1, len(occupied) + 1)))


def _by_silhouette(draw: _Draw) -> float:
    """The number of groups of the unknown samples with the best silhouette."""
    distance = draw.cosine_distance[np.ix_(~draw.known, ~draw.known)]
    if len(distance) < 2 * _FEWEST_MEMBERS:
        return float(len(distance) >= _FEWEST_MEMBERS)
    numbers = draw.numbers(len(distance))
    tree = _ward(distance)
    scores = mean_silhouettes(distance, tree.order, map(tree.starts, numbers))
    best = int(scores.argmax())
    return float(numbers[best]) if scores[best] > 0 else 1.0


@dataclass(frozen=True)
class _Way:
    """A way of counting."""

    name: str
    count: Callable[[_Draw], float]
    counts: bool
    sentence: str


_WAYS = (
    _Way(
        "known classes",
        _by_known_classes,
        True,
        "All samples are joined step by step, up to where the groups agree best with the known classes; counted are "
        "the groups that are mostly unknown.",
    ),
    _Way(
        "cluster prototypes",
        _by_prototypes,
        True,
        "The learnt cluster prototypes that have samples are joined in the same way, up to where they agree best with "
        "the known classes.",
    ),
    _Way(
        "silhouette",
        _by_silhouette,
        False,
        "The number of groups of the unknown samples with the best silhouette. It does not know how large a class is "
        "and is often several times too high, so it is only told.",
    ),
)
_SILHOUETTE_ALONE = _Way(
    "silhouette",
    _by_silhouette,
    True,
    "The number of groups of the unknown samples with the best silhouette. With fewer than two known classes there is "
    "nothing to compare it with; it is often several times too high.",
)


def _cosine_distance(embeddings: np.ndarray) -> np.ndarray:
    """Cosine distances between unit rows, (n, n)."""
    distance: np.ndarray = embeddings @ embeddings.T
    np.subtract(1, distance, out=distance)
    np.clip(distance, 0, None, out=distance)
    np.fill_diagonal(distance, 0)
    return distance


def _ward(cosine_distance: np.ndarray) -> Dendrogram:
    """Ward's clustering by the Euclidean distances between unit rows."""
    return Dendrogram.fit(np.sqrt(2 * squareform(cosine_distance, checks=False)), "ward")


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, (5, 95))
    return float(low), float(high)
