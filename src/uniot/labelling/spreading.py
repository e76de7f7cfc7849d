"""Where samples go by the labels that a person gave to single ones, and which to ask for next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.annotations.places import DISCARDED, is_class
from uniot.discovery import RUN_WEIGHT, Neighbourhoods, Queued, label_queue, spread_labels, uncertainty
from uniot.labelling.state import Labels
from uniot.labelling.target import Target


@dataclass(frozen=True)
class _Spread:
    """Scores of every place for every sample in the graph, with who was labelled by hand and who was put aside."""

    places: np.ndarray
    scores: np.ndarray
    by_hand: np.ndarray
    aside: np.ndarray


class Spreader:
    """Spreads labels over the neighbourhoods of a target; remembers the neighbourhoods.

    Args:
        target: features and what the run says.
        labels: the present state, which somebody else changes.
    """

    def __init__(self, target: Target, labels: Labels) -> None:
        self._target, self._labels = target, labels
        self._neighbourhoods: Neighbourhoods | None = None

    def places_after(self, row: int, place: int) -> np.ndarray:
        """Return the place of each sample once a person has put one of them somewhere, (n,).

        Samples that a person put somewhere, and discarded ones, stay.
        """
        spread = self._spread(row, place)
        graph = self._graph(row)
        best = spread.scores.argmax(axis=1)
        found = spread.places[best][graph.representative]
        stays = self._labels.by_hand | (self._labels.place == DISCARDED)
        # What only discarded samples are near to has no score at all.
        stays |= (spread.scores[np.arange(len(best)), best] == 0)[graph.representative]
        after = np.where(stays, self._labels.place, found)
        after[row] = place
        return np.asarray(after)

    def queue(self, count: int) -> list[Queued]:
        """Return the samples to label next, the most useful first; none that is settled by itself and by others."""
        spread = self._spread()
        if not len(spread.places):
            return []
        names = self._labels.names
        is_named = np.array([is_class(place) or place in names for place in spread.places.tolist()], dtype=bool)
        open_labels = uncertainty(spread.scores, is_named)
        open_labels[spread.aside] = 0
        return label_queue(self._graph(), open_labels, spread.by_hand, count, spread.aside)

    def _graph(self, row: int | None = None) -> Neighbourhoods:
        wanted = np.flatnonzero(self._labels.by_hand).tolist() + ([] if row is None else [row])
        graph = self._neighbourhoods
        if graph is None or any(graph.index_of(one) is None for one in wanted):
            graph = self._neighbourhoods = Neighbourhoods.of(self._target.features, wanted)
        return graph

    def _spread(self, row: int | None = None, place: int = DISCARDED) -> _Spread:
        graph, labels = self._graph(row), self._labels
        now, by_hand = labels.place[graph.rows], labels.by_hand[graph.rows].copy()
        if row is not None:
            index = graph.index_of(row)
            now[index], by_hand[index] = place, True
        # The run's own answer, unless people have dissolved the group that it gave.
        start, existing = self._target.start[graph.rows], set(labels.place.tolist())
        says = np.where([one in existing for one in start.tolist()], start, now)
        says[now == DISCARDED] = DISCARDED
        places = np.unique(np.concatenate([now, says]))
        places = places[places != DISCARDED]
        votes = np.zeros((len(now), len(places)))
        votes_for = np.searchsorted(places, says)
        voting = np.flatnonzero(says != DISCARDED)
        weight = self._target.confidence[graph.rows]
        votes[voting, votes_for[voting]] = RUN_WEIGHT * np.maximum(weight[voting], 1e-6)
        labelled = np.flatnonzero(by_hand & (now != DISCARDED))
        scores = spread_labels(graph, votes, labelled, np.searchsorted(places, now[labelled]))
        return _Spread(places, scores, labelled, np.flatnonzero(now == DISCARDED))
