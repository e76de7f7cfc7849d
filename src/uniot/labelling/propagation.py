"""Spread single labels over a graph of nearest neighbours, and choose the samples to label next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.annotations.places import DISCARDED, is_class
from uniot.discovery.label_order import RUN_WEIGHT, Neighbourhoods, Queued, label_queue, spread_labels, uncertainty

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState


@dataclass(frozen=True)
class _CategoryScores:
    """The scores of categories for the samples of the neighbour graph.

    Attributes:
        categories: (n_categories,).
        scores: (n_graph, n_categories).
        labelled: indices of samples that a person labelled, (n_labelled,).
        discarded: indices of discarded samples, (n_discarded,).
    """

    categories: np.ndarray
    scores: np.ndarray
    labelled: np.ndarray
    discarded: np.ndarray


class LabelPropagation:
    """Propagates single labels over a graph of nearest neighbours, which is cached.

    Args:
        target: features and predictions of the run.
        state: the present state, which the caller changes.
    """

    def __init__(self, target: TargetSamples, state: AnnotationState) -> None:
        self._target, self._state = target, state
        self._neighbourhoods: Neighbourhoods | None = None

    def propagate(self, row: int, category: int) -> np.ndarray:
        """Return the category of each sample after a person has assigned one of them, (n_samples,).

        Samples that a person assigned earlier, and discarded ones, keep their category.
        """
        found = self._scores(row, category)
        graph = self._graph(row)
        best = found.scores.argmax(axis=1)
        keeps = self._state.by_hand | (self._state.category == DISCARDED)
        # Samples whose neighbours are all discarded have a score of 0 for every category.
        keeps |= (found.scores[np.arange(len(best)), best] == 0)[graph.representative]
        after = np.where(keeps, self._state.category, found.categories[best][graph.representative])
        after[row] = category
        return np.asarray(after)

    def next_to_label(self, count: int) -> list[Queued]:
        """Return up to `count` samples to label next, the most informative first."""
        found = self._scores()
        if not len(found.categories):
            return []
        names = self._state.names
        is_named = np.array([is_class(one) or one in names for one in found.categories.tolist()], dtype=bool)
        uncertain = uncertainty(found.scores, is_named)
        uncertain[found.discarded] = 0
        return label_queue(self._graph(), uncertain, found.labelled, count, found.discarded)

    def _graph(self, row: int | None = None) -> Neighbourhoods:
        needed = np.flatnonzero(self._state.by_hand).tolist() + ([] if row is None else [row])
        graph = self._neighbourhoods
        if graph is None or any(graph.index_of(one) is None for one in needed):
            graph = self._neighbourhoods = Neighbourhoods.of(self._target.features, needed)
        return graph

    def _scores(self, row: int | None = None, category: int = DISCARDED) -> _CategoryScores:
        graph, state = self._graph(row), self._state
        now, by_hand = state.category[graph.rows], state.by_hand[graph.rows].copy()
        if row is not None:
            index = graph.index_of(row)
            now[index], by_hand[index] = category, True
        # A sample votes for the run's prediction, unless people have dissolved the predicted group.
        start, existing = self._target.start[graph.rows], set(state.category.tolist())
        vote = np.where([one in existing for one in start.tolist()], start, now)
        vote[now == DISCARDED] = DISCARDED
        categories = np.unique(np.concatenate([now, vote]))
        categories = categories[categories != DISCARDED]
        votes = np.zeros((len(now), len(categories)))
        voting = np.flatnonzero(vote != DISCARDED)
        confidence = self._target.confidence[graph.rows][voting]
        votes[voting, np.searchsorted(categories, vote)[voting]] = RUN_WEIGHT * np.maximum(confidence, 1e-6)
        labelled = np.flatnonzero(by_hand & (now != DISCARDED))
        scores = spread_labels(graph, votes, labelled, np.searchsorted(categories, now[labelled]))
        return _CategoryScores(categories, scores, labelled, np.flatnonzero(now == DISCARDED))
