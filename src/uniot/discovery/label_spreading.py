"""A few labels of single samples, spread to what looks like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

# The constants were chosen on Office-31 and PACS with the class splits of seeds 0 and 1; see docs/labelling.md.
_N_NEIGHBOURS = 10
_TEMPERATURE = 0.1
_RETENTION = 0.8  # fraction of a score that comes from the neighbours
_N_ITERATIONS = 15
# Weight of the run's own answer for a sample beside the label that a person gave to one.
RUN_WEIGHT = 0.01
# How far a sample speaks for others: at a cosine of 1 - 0.15 it settles 1/e of what it would settle at 1.
_REACH = 0.15
# A graph of more samples would keep a page waiting; the others follow the nearest sample in it.
_MOST_SAMPLES = 3000


@dataclass(frozen=True)
class Neighbourhoods:
    """Which samples are near each other.

    Attributes:
        rows: samples in the graph, (m,), ascending; all of them if they are few.
        features: theirs, unit rows, (m, d).
        representative: for each of all samples, the index into `rows` of the sample that it follows, (n,).
        graph: symmetrically normalised weights between neighbours, (m, m).
    """

    rows: np.ndarray
    features: np.ndarray
    representative: np.ndarray
    graph: sparse.csr_matrix

    @classmethod
    def of(cls, features: np.ndarray, include: Sequence[int] = (), seed: int = 0) -> Neighbourhoods:
        """Build the graph.

        Args:
            features: unit rows, (n, d).
            include: samples that must be in the graph.
            seed: decides which others are, if there are too many samples.
        """
        n_samples = len(features)
        rows = np.arange(n_samples)
        if n_samples > _MOST_SAMPLES:
            drawn = np.random.default_rng(seed).permutation(n_samples)[:_MOST_SAMPLES]
            rows = np.unique(np.concatenate([drawn, np.asarray(include, dtype=np.int64)]))
        inner = features[rows]
        representative = np.empty(n_samples, dtype=np.int64)
        for start in range(0, n_samples, _MOST_SAMPLES):
            block = slice(start, start + _MOST_SAMPLES)
            representative[block] = (features[block] @ inner.T).argmax(axis=1)
        representative[rows] = np.arange(len(rows))
        return cls(rows, inner, representative, _graph(inner))

    @property
    def scale(self) -> float:
        """How many of all samples one in the graph stands for."""
        return len(self.representative) / max(1, len(self.rows))

    @cached_property
    def coverage(self) -> np.ndarray:
        """How far each sample speaks for each other one, from 0 to 1, (m, m)."""
        return np.asarray(np.exp((np.minimum(self.features @ self.features.T, 1) - 1) / _REACH))

    def index_of(self, row: int) -> int | None:
        """Return the index into `rows` of a sample; None if it is not in the graph."""
        index = int(np.searchsorted(self.rows, row))
        return index if index < len(self.rows) and self.rows[index] == row else None


def spread_labels(
    neighbourhoods: Neighbourhoods, votes: np.ndarray, labelled: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Return scores of every label for every sample in the graph, (m, n_labels); the label with the largest is meant.

    A score is a weighted mean over the neighbours' scores and the sample's own vote, iterated; a sample that a person
    labelled has that label whatever its neighbours say.

    Args:
        neighbourhoods: which samples are near each other.
        votes: what the run says of each sample, (m, n_labels), non-negative; `RUN_WEIGHT` times a probability.
        labelled: indices into the graph of samples that a person labelled, (k,).
        labels: theirs, (k,).

    References: Zhou et al., Learning with Local and Global Consistency, NeurIPS 2003.
    """
    own = votes.copy()
    own[labelled] = 0
    own[labelled, labels] = 1
    scores = own
    for _ in range(_N_ITERATIONS):
        scores = _RETENTION * (neighbourhoods.graph @ scores) + (1 - _RETENTION) * own
    scores[labelled] = 0
    scores[labelled, labels] = 1
    return np.asarray(scores)


def uncertainty(scores: np.ndarray, is_named: np.ndarray) -> np.ndarray:
    """Return how open the label of each sample is, (m,): 0 if one label has all, 1 if two are even or it has no name.

    Args:
        scores: of `spread_labels`, (m, n_labels).
        is_named: whether each label is the name of a class; a group without a name settles nothing, (n_labels,), bool.
    """
    if scores.shape[1] == 1:
        return np.asarray(np.where(is_named[scores.argmax(axis=1)], 0.0, 1.0))
    second, first = np.partition(scores, -2, axis=1)[:, -2:].T
    margin = (first - second) / np.maximum(first, 1e-300)
    return np.asarray(np.where(is_named[scores.argmax(axis=1)], 1 - margin, 1.0))


def _graph(features: np.ndarray) -> sparse.csr_matrix:
    n_samples = len(features)
    n_neighbours = min(_N_NEIGHBOURS, n_samples - 1)
    if n_neighbours < 1:
        return sparse.csr_matrix((n_samples, n_samples))
    cosines = features @ features.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argpartition(-cosines, n_neighbours - 1, axis=1)[:, :n_neighbours]
    weights = np.exp((np.take_along_axis(cosines, nearest, axis=1).astype(np.float64) - 1) / _TEMPERATURE)
    one_way = sparse.csr_matrix(
        (weights.ravel(), (np.repeat(np.arange(n_samples), n_neighbours), nearest.ravel())), (n_samples, n_samples)
    )
    both_ways = one_way.maximum(one_way.T)
    degree = np.asarray(both_ways.sum(axis=1)).ravel()
    inverse = sparse.diags(1 / np.sqrt(np.maximum(degree, 1e-300)))
    return sparse.csr_matrix(inverse @ both_ways @ inverse)
