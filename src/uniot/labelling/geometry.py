"""What looks alike: centres of groups, typical samples, similar places, and how a group falls in two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from uniot.annotations.places import class_index, class_place, is_class, is_group
from uniot.clustering import spherical_kmeans
from uniot.labelling.state import Labels
from uniot.labelling.target import Target

Order = Literal["typical", "doubtful"]

# Two centres are found as well from a thousand samples; all of a large group would keep the page waiting.
_ROWS_TO_SPLIT = 1000


class Geometry:
    """Remembers centres until a place changes.

    Args:
        target: features and prototypes.
        labels: the present state, which somebody else changes.
    """

    def __init__(self, target: Target, labels: Labels) -> None:
        self._target, self._labels = target, labels
        self._centres: dict[int, np.ndarray] = {}
        self._faces: dict[int, int] = {}
        self._anchors: dict[int, np.ndarray] = {}

    def forget(self, places: Iterable[int]) -> None:
        """To be called with places that have changed."""
        for place in places:
            self._centres.pop(place, None)
            self._faces.pop(place, None)

    def face(self, group: int) -> int:
        """The sample nearest to the centre of a group."""
        if group not in self._faces:
            rows = self._labels.members(group)
            self._faces[group] = int(rows[(self._target.features[rows] @ self._centre(group)).argmax()])
        return self._faces[group]

    def ordered(self, place: int, order: Order) -> np.ndarray:
        """Rows of a place, the nearest to its centre first or last; discarded ones by number.

        The centre here is that of the group when it was first looked at, so that the order of the others stays when
        some samples leave.
        """
        rows = self._labels.members(place)
        if is_group(place) or is_class(place):
            if place not in self._anchors and len(rows):
                self._anchors[place] = self._centre(place)
            nearness = self._target.features[rows] @ self._anchors[place] if len(rows) else np.zeros(0)
            rows = rows[np.argsort(-nearness, kind="stable")]
        return rows if order == "typical" else rows[::-1]

    def similar(self, place: int) -> list[tuple[int, float]]:
        """Every other group and every class with its cosine to a group or class, the most similar first."""
        groups = [group for group in self._labels.sizes() if is_group(group)]
        places = [*groups, *(class_place(index) for index in range(len(self._target.classes)))]
        centres = np.stack([self._centre(other) for other in places])
        cosines = centres @ self._centre(place)
        order = np.argsort(-cosines, kind="stable")
        return [(places[number], float(cosines[number])) for number in order if places[number] != place]

    def smaller_half(self, group: int) -> np.ndarray:
        """Rows of the smaller of the two groups that spherical k-means makes of one with at least two samples."""
        rows = self._labels.members(group)
        rng = np.random.default_rng(group)
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[rng.permutation(len(rows))[:_ROWS_TO_SPLIT]] = True
        found = spherical_kmeans(self._target.features[rows[chosen]], 2, seed=0)
        half = np.zeros(len(rows), dtype=np.int64)
        half[chosen] = found.groups
        half[~chosen] = (self._target.features[rows[~chosen]] @ found.centres.T).argmax(axis=1)
        return np.asarray(rows[half == np.bincount(half).argmin()])

    def _centre(self, place: int) -> np.ndarray:
        if is_class(place):
            return np.asarray(self._target.prototypes[class_index(place)])
        if place not in self._centres:
            mean = self._target.features[self._labels.members(place)].mean(axis=0)
            self._centres[place] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return self._centres[place]
