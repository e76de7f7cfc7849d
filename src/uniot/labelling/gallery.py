"""The order of the gallery: typical samples of a group, similar groups, and the two halves of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from uniot.annotations.places import class_index, class_place, is_class, is_group
from uniot.discovery.kmeans import spherical_kmeans

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState

Order = Literal["typical", "doubtful"]

# A thousand samples suffice to find two centres; k-means on all of a large group would keep the page waiting.
_MAX_ROWS_TO_SPLIT = 1000


class GalleryOrder:
    """Orders the samples of a category by similarity, and categories too; caches centres until `forget`.

    Args:
        target: features and class means.
        state: the present state, which the caller changes.
    """

    def __init__(self, target: TargetSamples, state: AnnotationState) -> None:
        self._target, self._state = target, state
        self._centres: dict[int, np.ndarray] = {}
        self._exemplars: dict[int, int] = {}
        self._first_centres: dict[int, np.ndarray] = {}

    def forget(self, categories: Iterable[int]) -> None:
        """Drop what is cached about categories that have changed."""
        for category in categories:
            self._centres.pop(category, None)
            self._exemplars.pop(category, None)

    def exemplar(self, group: int) -> int:
        """Return the row of the sample nearest to the centre of a group."""
        if group not in self._exemplars:
            rows = self._state.members(group)
            self._exemplars[group] = int(rows[(self._target.features[rows] @ self._centre(group)).argmax()])
        return self._exemplars[group]

    def ordered(self, category: int, order: Order) -> np.ndarray:
        """Return the rows of a category, nearest to its centre first or last; discarded ones by number, (n_members,).

        The centre is that of the group when it was first shown, so that the remaining samples keep their order when
        some are moved away.
        """
        rows = self._state.members(category)
        if is_group(category) or is_class(category):
            if category not in self._first_centres and len(rows):
                self._first_centres[category] = self._centre(category)
            cosines = self._target.features[rows] @ self._first_centres[category] if len(rows) else np.zeros(0)
            rows = rows[np.argsort(-cosines, kind="stable")]
        return rows if order == "typical" else rows[::-1]

    def class_members(self, index: int, count: int, leave_out: int) -> list[int]:
        """Return up to `count` samples of a source class: those that a person placed there first, then typical ones.

        Args:
            index: of the class.
            count: number of samples.
            leave_out: a row that is not returned.
        """
        rows = self._state.members(class_place(index))
        rows = rows[rows != leave_out]
        cosines = self._target.features[rows] @ self._target.prototypes[index]
        return [int(row) for row in rows[np.lexsort((-cosines, ~self._state.by_hand[rows]))][:count]]

    def similar(self, category: int) -> list[tuple[int, float]]:
        """Return every other group and class with its cosine to a group or class, the most similar first."""
        groups = [group for group in self._state.sizes() if is_group(group)]
        others = [*groups, *(class_place(index) for index in range(len(self._target.classes)))]
        cosines = np.stack([self._centre(other) for other in others]) @ self._centre(category)
        order = np.argsort(-cosines, kind="stable")
        return [(others[number], float(cosines[number])) for number in order if others[number] != category]

    def smaller_half(self, group: int) -> np.ndarray:
        """Return the rows of the smaller of two parts into which spherical k-means splits a group, (n_rows,)."""
        rows = self._state.members(group)
        rng = np.random.default_rng(group)
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[rng.permutation(len(rows))[:_MAX_ROWS_TO_SPLIT]] = True
        found = spherical_kmeans(self._target.features[rows[chosen]], 2, seed=0)
        half = np.zeros(len(rows), dtype=np.int64)
        half[chosen] = found.groups
        half[~chosen] = (self._target.features[rows[~chosen]] @ found.centres.T).argmax(axis=1)
        return np.asarray(rows[half == np.bincount(half).argmin()])

    def _centre(self, category: int) -> np.ndarray:
        if is_class(category):
            return np.asarray(self._target.prototypes[class_index(category)])
        if category not in self._centres:
            mean = self._target.features[self._state.members(category)].mean(axis=0)
            self._centres[category] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return self._centres[category]
