"""Decisions of the model about samples that no person placed, after all answers of people."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from uniot.annotations.places import DISCARDED, class_place, is_group
from uniot.rejection.answers import Answers

if TYPE_CHECKING:
    from uniot.io.predictions import Prediction
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState
    from uniot.training.model import AdaptedModel

# Before and after an action, and after the usual answers to the question that is shown.
_KEPT_MODELS = 6


class AnsweredModel:
    """A model after some answers, and what it asks next.

    Args:
        model: the model after the answers.
    """

    def __init__(self, model: AdaptedModel) -> None:
        self.model = model

    @cached_property
    def following(self) -> int | None:
        """Return the row that the next question is about; None if every sample has an answer."""
        rows = self.model.ask(1).tolist()
        return rows[0] if rows else None

    @cached_property
    def expected_change(self) -> float:
        """Return the part of the target that an answer to the next question is expected to move; 0 if there is none."""
        return 0.0 if self.following is None else self.model.expected_change(self.following)

    def prepare(self) -> int | None:
        """Compute the next question and the expected change, which are kept; return the row of the question."""
        _ = self.expected_change
        return self.following


class ModelDecisions:
    """Decides between known and unknown about samples that no person placed.

    Args:
        target: samples to label, with the model of the run.
    """

    def __init__(self, target: TargetSamples) -> None:
        self._target = target
        self._models: OrderedDict[tuple[tuple[int, int, bool], ...], AnsweredModel] = OrderedDict()
        self._lock = Lock()

    def model(self, answers: Answers) -> AdaptedModel | None:
        """Return the model of the run after some answers; None if the target has none."""
        found = self.answered(answers)
        return None if found is None else found.model

    def answered(self, answers: Answers) -> AnsweredModel | None:
        """Return the model of the run after some answers, and what it asks next; None if the target has none.

        Several threads may call it: an answer does not wait until what may follow it is prepared.
        """
        if self._target.model is None:
            return None
        # In the order of the target, so that the result does not depend on which answer came last.
        order = np.argsort(answers.rows, kind="stable")
        answers = Answers(*(part[order] for part in vars(answers).values()))
        key = tuple(zip(*(part.tolist() for part in (answers.rows, answers.classes, answers.moves_line)), strict=True))
        with self._lock:
            found = self._models.get(key)
        if found is None:
            found = AnsweredModel(self._target.model.with_answers(answers))
        with self._lock:
            found = self._models.setdefault(key, found)
            self._models.move_to_end(key)
            if len(self._models) > _KEPT_MODELS:
                self._models.popitem(last=False)
        return found

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
