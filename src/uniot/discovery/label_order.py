"""Spread labels of single samples to their neighbours, and order the samples by what labelling them settles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

# The constants were chosen on Office-31 and PACS with the class splits of seeds 0 and 1; see docs/labelling.md.
_N_NEIGHBOURS = 10
_TEMPERATURE = 0.1
_NEIGHBOUR_WEIGHT = 0.8  # fraction of a score that comes from the neighbours
_N_ITERATIONS = 15
# Weight of the run's prediction for a sample, relative to a label that a person gave.
RUN_WEIGHT = 0.01
# Cosine distance at which the coverage of another sample falls to 1/e.
_REACH = 0.15
# A larger graph would make the labelling page slow; the other samples follow the nearest one in the graph.
_MAX_SAMPLES = 3000


@dataclass(frozen=True)
class Neighbourhoods:
    """A graph that connects samples with their nearest neighbours.

    Attributes:
        rows: samples in the graph, ascending, (n_nodes,); all samples if they are few.
        features: unit rows of these samples, (n_nodes, n_features).
        representative: index into `rows` of the sample that each sample follows, (n_samples,).
        graph: symmetrically normalised weights between neighbours, (n_nodes, n_nodes).
    """

    rows: np.ndarray
    features: np.ndarray
    representative: np.ndarray
    graph: sparse.csr_matrix

    @classmethod
    def of(cls, features: np.ndarray, include: Sequence[int] = (), seed: int = 0) -> Neighbourhoods:
        """Build the graph.

        Args:
            features: unit rows, (n_samples, n_features).
            include: samples that must be in the graph.
            seed: random seed by which the others are drawn if there are too many samples.

        Returns:
            The graph of all samples, or of some thousand of them.
        """
        n_samples = len(features)
        rows = np.arange(n_samples)
        if n_samples > _MAX_SAMPLES:
            drawn = np.random.default_rng(seed).permutation(n_samples)[:_MAX_SAMPLES]
            rows = np.unique(np.concatenate([drawn, np.asarray(include, dtype=np.int64)]))
        inner = features[rows]
        representative = np.empty(n_samples, dtype=np.int64)
        for start in range(0, n_samples, _MAX_SAMPLES):
            block = slice(start, start + _MAX_SAMPLES)
            representative[block] = (features[block] @ inner.T).argmax(axis=1)
        representative[rows] = np.arange(len(rows))
        return cls(rows, inner, representative, _graph(inner))

    @property
    def scale(self) -> float:
        """Return the number of samples per node of the graph."""
        return len(self.representative) / max(1, len(self.rows))

    @cached_property
    def coverage(self) -> np.ndarray:
        """Return how well each node represents each other node, from 0 to 1, (n_nodes, n_nodes)."""
        return np.asarray(np.exp((np.minimum(self.features @ self.features.T, 1) - 1) / _REACH))

    def index_of(self, row: int) -> int | None:
        """Return the index into `rows` of a sample; None if it is not in the graph."""
        index = int(np.searchsorted(self.rows, row))
        return index if index < len(self.rows) and self.rows[index] == row else None


def spread_labels(
    neighbourhoods: Neighbourhoods, votes: np.ndarray, labelled: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Propagate labels over the graph.

    A score is the weighted mean of the neighbours' scores and the node's own vote, iterated; a node that a person
    labelled keeps its label.

    Args:
        neighbourhoods: graph of nearest neighbours.
        votes: prediction of the run for each node, `RUN_WEIGHT` times a probability, (n_nodes, n_labels).
        labelled: nodes that a person labelled, (n_labelled,).
        labels: labels of these nodes, (n_labelled,).

    Returns:
        Score of each label for each node, (n_nodes, n_labels).

    References:
        Zhou, Bousquet, Lal, Weston and Schölkopf. Learning with Local and Global Consistency. NeurIPS 2003.
    """
    own = votes.copy()
    own[labelled] = 0
    own[labelled, labels] = 1
    scores = own
    for _ in range(_N_ITERATIONS):
        scores = _NEIGHBOUR_WEIGHT * (neighbourhoods.graph @ scores) + (1 - _NEIGHBOUR_WEIGHT) * own
    scores[labelled] = 0
    scores[labelled, labels] = 1
    return np.asarray(scores)


def uncertainty(scores: np.ndarray, is_named: np.ndarray) -> np.ndarray:
    """Return the uncertainty of each node's label: 1 minus the relative margin between the two best labels.

    Args:
        scores: scores from `spread_labels`, (n_nodes, n_labels).
        is_named: whether the label is a named class or group, (n_labels,); samples of an unnamed one are uncertain.

    Returns:
        Uncertainties from 0 to 1, (n_nodes,).
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


# Sums of the same numbers in another order differ by less.
_ROUNDING = 1e-5


class Queued(NamedTuple):
    """A sample in the labelling queue.

    Attributes:
        row: row of the target.
        settles: expected number of other samples whose label it settles.
    """

    row: int
    settles: float


def label_queue(
    neighbourhoods: Neighbourhoods,
    uncertain: np.ndarray,
    done: np.ndarray,
    count: int,
    skipped: np.ndarray | None = None,
) -> list[Queued]:
    """Order samples by how many uncertain samples each of them represents.

    Greedy facility location: the gain of a node is the uncertainty that it covers and that no labelled or earlier node
    covers already. The second of two similar samples therefore comes late.

    Args:
        neighbourhoods: graph of nearest neighbours.
        uncertain: uncertainty of each node, from 0 to 1, (n_nodes,).
        done: nodes that a person labelled, (n_done,); they cover their neighbourhoods.
        count: maximum length of the queue.
        skipped: nodes to leave out, (n_skipped,); they cover nothing.

    Returns:
        The queue, the most useful sample first.

    References:
        Wei, Iyer and Bilmes. Submodularity in Data Subset Selection and Active Learning. ICML 2015.
    """
    coverage = neighbourhoods.coverage
    covered = coverage[done].max(axis=0) if len(done) else np.zeros(len(coverage), dtype=coverage.dtype)
    barred = np.concatenate([done, np.zeros(0, dtype=np.int64) if skipped is None else skipped]).astype(np.int64)
    weights = uncertain.astype(coverage.dtype)
    gains = np.maximum(coverage - covered, 0) @ weights
    gains[barred] = -1
    queue: list[Queued] = []
    while len(queue) < count:
        best = int(gains.argmax())
        if gains[best] < 0:
            break
        # Gains only shrink while the queue grows, so the largest one is final as soon as it is up to date.
        gain = float(np.maximum(coverage[best] - covered, 0) @ weights)
        if gain < gains[best] * (1 - _ROUNDING):
            gains[best] = gain
            continue
        own = float(weights[best] * (1 - covered[best]))
        queue.append(Queued(int(neighbourhoods.rows[best]), max(0.0, gain - own) * neighbourhoods.scale))
        covered = np.maximum(covered, coverage[best])
        gains[best] = -1
    return queue
