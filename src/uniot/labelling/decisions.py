"""What the model decides about samples that no person placed, after all that people said."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from uniot.discovery.annotations import DISCARDED, class_place, is_group

if TYPE_CHECKING:
    from uniot.io.predictions import Prediction
    from uniot.labelling.state import AnnotationState
    from uniot.labelling.target import Target
    from uniot.rejection.answers import Answers
    from uniot.training.model import AdaptedModel

# Before and after an action, and what the next question would change.
_KEPT_MODELS = 4


class ModelDecisions:
    """Decides between known and unknown about samples that no person placed.

    Args:
        target: samples to label, with the model of the run.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._models: OrderedDict[tuple[tuple[int, int], ...], AdaptedModel] = OrderedDict()

    def model(self, answers: Answers) -> AdaptedModel | None:
        """Return the model of the run after some answers; None if the target has none."""
        if self._target.model is None:
            return None
        key = tuple(answers.by_row.items())
        if key not in self._models:
            self._models[key] = self._target.model.with_answers(answers)
            if len(self._models) > _KEPT_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]

    def release(self, state: AnnotationState, rows: np.ndarray, answers: Answers) -> None:
        """Give samples that a person placed in a class or discarded back to the model, in place; `follow` comes next.

        Samples in groups stay there.

        Args:
            state: which is changed.
            rows: samples that a person placed, (n_rows,).
            answers: what people have said, without these samples.
        """
        model, rows = self.model(answers), rows[state.category[rows] <= DISCARDED]
        if model is None:
            state.category[rows] = self._target.start[rows]
        else:
            state.category[rows] = class_place(0) - model.target.nearest[rows]

    def follow(self, before: AnnotationState, after: AnnotationState, answers: Answers) -> None:
        """Move samples that no person placed to where the model has them after some answers, in place.

        A sample that becomes known goes to its nearest class, one that becomes unknown to a group, and one in the class
        that the model had it in goes to the class that the model has it in now. The others stay: the model does not
        decide between groups, and a sample in a group with the name of a class is known by that name. A sample that a
        person calls unknown leaves its class.

        Args:
            before: the state before the action.
            after: the state with what the person did, which is changed.
            answers: what people have said, the action included.
        """
        model = self.model(answers)
        if model is None:
            return
        prediction, said = model.target, answers.decided
        known, is_free = prediction.known, after.category != DISCARDED
        is_free[said.rows] = False
        known_groups = [group for group, name in after.names.items() if self._target.class_named(name) is not None]
        is_known = (after.category < DISCARDED) | np.isin(after.category, known_groups)
        joining = np.flatnonzero(is_known & ~known & (is_free | after.by_hand))
        becomes_known = np.flatnonzero(~is_known & known & is_free)
        stayed = before.category[becomes_known] < DISCARDED
        nearest = class_place(0) - prediction.nearest[becomes_known]
        after.category[becomes_known] = np.where(stayed, before.category[becomes_known], nearest)
        after.category[joining] = self._groups(joining, before, after, prediction, known_groups)
        earlier = self.model(self._target.annotations(before).answers)
        if earlier is not None:
            followed = is_free & known & (after.category == class_place(0) - earlier.target.nearest)
            after.category[followed] = class_place(0) - prediction.nearest[followed]

    def _groups(
        self,
        rows: np.ndarray,
        before: AnnotationState,
        after: AnnotationState,
        prediction: Prediction,
        known_groups: list[int],
    ) -> np.ndarray:
        """Return the group that each unknown sample joins, (n_rows,): that of before, of the model, or the nearest."""
        others = np.delete(np.arange(len(after.category)), rows)
        existing = [group for group in np.unique(after.category[others]).tolist() if is_group(group)]
        existing = [group for group in existing if group not in known_groups]
        # A group of the run that is empty because its samples became known; people have not dissolved it.
        own = self._target.start
        placed = after.by_hand | (after.category >= 0)
        empty = [
            group
            for group in range(self._target.n_groups)
            if group not in known_groups and not placed[others][own[others] == group].any()
        ]
        usable = [*existing, *empty]
        if not usable:
            return np.full(len(rows), after.next_group)
        wanted = np.where(before.category[rows] >= 0, before.category[rows], prediction.group[rows])
        wanted = np.where(np.isin(wanted, usable), wanted, prediction.group[rows])
        missing = ~np.isin(wanted, usable)
        if missing.any():
            features, near = self._target.features, existing or usable
            means = np.stack([self._mean(after, group) for group in near])
            wanted[missing] = np.array(near)[(features[rows[missing]] @ means.T).argmax(axis=1)]
        return np.asarray(wanted)

    def _mean(self, state: AnnotationState, group: int) -> np.ndarray:
        members = state.members(group)
        if not len(members) and self._target.model is not None:
            return np.asarray(self._target.model.groups.centres[group])
        mean = self._target.features[members].mean(axis=0)
        return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12))
