"""The actions of the labelling page, and the change that each makes to the annotations.

Actions come from a browser: types, ranges and lengths are validated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from uniot.annotations.annotations import told_rows
from uniot.annotations.places import DISCARDED, as_text, class_index, class_place, from_text, is_class, is_group
from uniot.errors import DataError
from uniot.io.text import counted
from uniot.labelling.names import MAX_NAME_LENGTH, clean_name
from uniot.labelling.state import AnnotationState, Change, Renaming, assign, merge, move, rename, restore, split
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN

if TYPE_CHECKING:
    from uniot.labelling.decisions import ModelDecisions
    from uniot.labelling.gallery import GalleryOrder
    from uniot.labelling.propagation import LabelPropagation
    from uniot.labelling.samples import TargetSamples

MAX_ROWS = 5000

Number = Annotated[StrictInt, Field(ge=0, le=2**53)]  # JavaScript counts exactly up to 2**53
Rows = Annotated[list[Number], Field(min_length=1, max_length=MAX_ROWS)]
CategoryText = Annotated[str, Field(max_length=40)]
# Combining characters count one by one here; `clean_name` counts composed letters.
NameText = Annotated[str, Field(max_length=8 * MAX_NAME_LENGTH)]


class Request(BaseModel):
    """The body of a request: immutable, without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NameGroup(Request):
    """Name a group; an empty name removes its name."""

    kind: Literal["name"]
    group: Number
    name: NameText


class MergeGroup(Request):
    """Move a whole group to another category."""

    kind: Literal["merge"]
    group: Number
    to: CategoryText


class SplitGroup(Request):
    """Split a group in two."""

    kind: Literal["split"]
    group: Number


class MoveSamples(Request):
    """Move samples to another category, or to a new group (`new`)."""

    kind: Literal["move"]
    rows: Rows
    to: CategoryText


class PutBackSamples(Request):
    """Give samples back the category that the run predicted."""

    kind: Literal["put-back"]
    rows: Rows


class LabelSample(Request):
    """Label one sample and propagate the label to similar samples."""

    kind: Literal["label"]
    row: Number
    label: Annotated[NameText, Field(min_length=1)]


class AnswerQuestion(Request):
    """Say whether a sample is of a source class: its name, the label of unknown samples, or None for "cannot tell"."""

    kind: Literal["answer"]
    row: Number
    answer: Annotated[NameText, Field(min_length=1)] | None


class ForgetAnswers(Request):
    """Withdraw the answers about single samples that were given since the run was made; names of groups stay."""

    kind: Literal["forget"]


class Undo(Request):
    """Undo an action, which must be the last one that is not undone."""

    kind: Literal["undo"]
    of: Number


class Redo(Request):
    """Redo an action, which must be the last one that was undone."""

    kind: Literal["redo"]
    of: Number


Edit = NameGroup | MergeGroup | SplitGroup | MoveSamples | PutBackSamples | LabelSample | AnswerQuestion | ForgetAnswers
Action = Annotated[Edit | Undo | Redo, Field(discriminator="kind")]


@dataclass(frozen=True)
class Effect:
    """The effect of an action.

    Attributes:
        change: of the annotation state.
        text: description for people, without a capital and a full stop.
        show: category to show afterwards if the present one no longer exists.
    """

    change: Change
    text: str
    show: int | None = None


class EffectBuilder:
    """Computes the effect of actions on the present state without changing it.

    Args:
        target: samples to label.
        state: the present state, which the caller changes.
        order: similarity of samples and groups.
        propagation: of single labels.
        decisions: of the model about samples that no person placed.
    """

    def __init__(
        self,
        target: TargetSamples,
        state: AnnotationState,
        order: GalleryOrder,
        propagation: LabelPropagation,
        decisions: ModelDecisions,
    ):
        self._target, self._state, self._order = target, state, order
        self._propagation, self._decisions = propagation, decisions
        self._noun = target.noun

    def effect(self, action: Edit) -> Effect:
        """Return the effect of an action.

        Raises:
            DataError: the action is impossible, for example because there is no such group.
        """
        if isinstance(action, NameGroup | MergeGroup | SplitGroup):
            group = self.category(as_text(action.group))
            if isinstance(action, NameGroup):
                return self._name(group, clean_name(action.name))
            return (
                self._split(group) if isinstance(action, SplitGroup) else self._merge(group, self.category(action.to))
            )
        if isinstance(action, LabelSample):
            return self._label(int(self._rows([action.row])[0]), clean_name(action.label))
        if isinstance(action, AnswerQuestion):
            return self.answer_effect({int(self._rows([action.row])[0]): self._target.answer_index(action.answer)})
        if isinstance(action, ForgetAnswers):
            return self._forget()
        rows = self._rows(action.rows)
        several = self._counted(len(rows))
        if isinstance(action, PutBackSamples):
            change = restore(self._state, rows, self._target.start)
            return Effect(change, f"{several} put back where the run had {'it' if len(rows) == 1 else 'them'}")
        if action.to == "new":
            new = self._state.next_group
            return Effect(move(self._state, rows, new), f"{several} moved to new group {new}", new)
        to = self.category(action.to)
        return self._moved(move(self._state, rows, to), several, to, "moved to")

    def affected(self, action: Edit) -> set[int]:
        """Return the categories that must not have changed; a class or the discarded samples may have grown."""
        if isinstance(action, NameGroup | SplitGroup):
            return {action.group}
        if isinstance(action, MergeGroup):
            return {action.group, *_group_in(action.to)}
        if isinstance(action, ForgetAnswers):
            return set()
        rows = self._rows([action.row] if isinstance(action, LabelSample | AnswerQuestion) else action.rows)
        left = set(self._state.category[rows].tolist())
        return left | (_group_in(action.to) if isinstance(action, MoveSamples) else set())

    def import_effect(self, labels: Mapping[int, str | None]) -> Effect:
        """Return the effect of labels that were made elsewhere.

        A label that is the name of a class or group means that one. Any other label becomes a group: an unnamed group
        of which most samples have the label and the rest have another one, or else a new group.

        Args:
            labels: label by row of the target; None if the sample is discarded.
        """
        after, by_hand = self._state.category.copy(), self._state.by_hand.copy()
        names: list[Renaming] = []
        new_group = self._state.next_group
        rows_of: dict[str | None, list[int]] = {}
        for row, label in labels.items():
            rows_of.setdefault(label, []).append(row)
        for label, rows in rows_of.items():
            self._check_name(label or "")
            category = DISCARDED if label is None else self._category_named(label)
            if category is None and label is not None:
                category = self._whole_group(rows, labels)
                if category is None:
                    category, new_group = new_group, new_group + 1
                names.append(Renaming(category, self._state.names.get(category, ""), label))
            moved = np.array(rows)[after[rows] != category]
            after[moved], by_hand[moved] = category, True
        change = assign(self._state, np.arange(len(after)), after, by_hand, names)
        n_labels = counted(len(rows_of) - (None in rows_of), "label")
        return Effect(change, f"{self._counted(len(labels))} imported with {n_labels}")

    def answer_effect(self, answers: Mapping[int, int]) -> Effect:
        """Return the effect of answers: these samples are placed by hand, and the others follow the model.

        Args:
            answers: index of a source class, `UNKNOWN` or `CANNOT_TELL` by row of the target.
        """
        after, rows = self._state.copy(), np.array(list(answers), dtype=np.int64)
        said = np.array(list(answers.values()), dtype=np.int64)
        after.by_hand[rows], after.cannot_tell[rows] = said != CANNOT_TELL, said == CANNOT_TELL
        of_class = said > UNKNOWN
        after.category[rows[of_class]] = class_place(0) - said[of_class]
        told = self._target.annotations(self._state).answers.told(rows, said).marked_as(self._target.given)
        unsure = rows[said == CANNOT_TELL]
        self._decisions.release(after, unsure[self._state.by_hand[unsure]], told)
        self._decisions.follow(self._state, after, told)
        names = {CANNOT_TELL: "cannot tell", UNKNOWN: self._target.unknown}
        only = names.get(int(said[0])) or self._target.classes[int(said[0])] if len(said) == 1 else ""
        what = f"{self._counted(1)} answered “{only}”" if only else f"{self._counted(len(rows))} answered"
        if not only and len(unsure):
            what = f"{what}, {len(unsure):,} of them “cannot tell”"
        return Effect(self._difference(after), f"{what}{self._others(after, rows)}")

    def _forget(self) -> Effect:
        after, kept = self._state.copy(), self._target.continued
        now = self._target.annotations(self._state).answers.by_row
        changed = np.array([row for row, said in kept.by_row.items() if now.get(row) != said], dtype=np.int64)
        after.by_hand[:], after.cannot_tell[:] = told_rows(kept, len(after.category))
        after.category[changed] = self._target.start[changed]
        answers = self._target.annotations(after).answers
        self._decisions.release(after, np.flatnonzero(self._state.by_hand & ~after.by_hand), answers)
        self._decisions.follow(self._state, after, answers)
        is_forgotten = self._state.by_hand | self._state.cannot_tell
        is_forgotten[np.setdiff1d(kept.rows, changed)] = False
        text = f"answers about {self._counted(int(is_forgotten.sum()))} forgotten"
        if len(kept):
            text += f"; labels of {self._counted(len(kept))} stay, because this run was made with them"
        return Effect(self._difference(after), text + self._others(after, np.zeros(0, dtype=np.int64)))

    def _difference(self, after: AnnotationState, names: Sequence[Renaming] = ()) -> Change:
        rows = np.arange(len(after.category))
        return assign(self._state, rows, after.category, after.by_hand, names, after.cannot_tell)

    def _others(self, after: AnnotationState, rows: np.ndarray) -> str:
        """Return how many samples changed between known and unknown besides some, as the rest of a sentence."""
        before, now = self._state.category < DISCARDED, after.category < DISCARDED
        before[rows] = now[rows]
        found, lost = int((now & ~before).sum()), int((before & ~now).sum())
        parts = [f"{count:,} now {word}" for count, word in ((found, "known"), (lost, "unknown")) if count]
        return f"; of the others, {' and '.join(parts)}" if parts else ""

    def title(self, category: int) -> str:
        """Return what a category is called in a sentence."""
        if category == DISCARDED:
            return "discarded"
        if is_class(category):
            return f"class “{self._target.classes[class_index(category)]}”"
        name = self._state.names.get(category)
        return f"group {category} “{name}”" if name else self._target.group_title(category)

    def category(self, text: str) -> int:
        """Return the category of a text such as `group-3`, `class-0` or `discarded`.

        Raises:
            DataError: there is no such category.
        """
        category = from_text(text)
        n_classes = len(self._target.classes)
        if is_class(category) and class_index(category) >= n_classes:
            known = counted(n_classes, "known class", "known classes")
            raise DataError(f"there is no {text}: this run has {known}. Reload the page.")
        if is_group(category) and not (self._state.category == category).any():
            raise DataError(f"there is no group {category}, or it has no {self._noun}s left. Choose another group.")
        return category

    def _name(self, group: int, name: str) -> Effect:
        self._check_name(name)
        change = rename(self._state, group, name)
        if not name:
            return Effect(change, f"the name of group {group} removed")
        shared = [other for other, known in self._state.names.items() if known == name and other != group]
        text = f"{self._target.group_title(group)} named “{name}”"
        if self._target.class_named(name) is not None:
            text += f", which is a known class: its {self._noun}s count as that class"
        elif shared:
            text += f", like group {shared[0]}: both are one class"
        return Effect(change, text)

    def _label(self, row: int, name: str) -> Effect:
        self._check_name(name)
        if not name:
            raise DataError("the label is empty. Type one, or discard the sample.")
        known = self._category_named(name)
        category = self._state.next_group if known is None else known
        names = [Renaming(category, "", name)] if known is None else []
        after = self._state.copy()
        after.category = self._propagation.propagate(row, category)
        after.by_hand[row], after.cannot_tell[row] = True, False
        self._decisions.follow(self._state, after, self._target.annotations(after).answers)
        n_others = int((after.category != self._state.category).sum()) - int(self._state.category[row] != category)
        others = f"; {counted(n_others, f'similar {self._noun}')} moved with it" if n_others else ""
        return Effect(self._difference(after, names), f"{self._counted(1)} labelled “{name}”{others}")

    def _counted(self, number: int) -> str:
        return counted(number, self._noun)

    def _check_name(self, name: str) -> None:
        if name and self._target.is_unknown(name):
            raise DataError(
                f"“{name}” is the word of this run for {self._noun}s of no known class. Choose another name."
            )

    def _category_named(self, name: str) -> int | None:
        """Return the class or the first group with this name; None if there is none."""
        known = self._target.class_named(name)
        groups = (group for group, other in self._state.names.items() if other == name)
        return min(groups, default=None) if known is None else class_place(known)

    def _whole_group(self, rows: Sequence[int], labels: Mapping[int, str | None]) -> int | None:
        """Return the largest unnamed group of which most samples are in `rows` and all are labelled; None if none."""
        groups, counts = np.unique(self._state.category[list(rows)], return_counts=True)
        whole = [
            (count, -group)
            for group, count in zip(groups.tolist(), counts.tolist(), strict=True)
            if is_group(group) and group not in self._state.names
            if 2 * count > len(members := self._state.members(group).tolist()) and labels.keys() >= set(members)
        ]
        return -max(whole)[1] if whole else None

    def _merge(self, group: int, to: int) -> Effect:
        if group == to:
            raise DataError(f"group {group} cannot be merged into itself. Choose another group.")
        whole = f"{self.title(group)} with its {self._counted(len(self._state.members(group)))}"
        return self._moved(merge(self._state, group, to), whole, to, "merged into")

    def _moved(self, change: Change, what: str, to: int, verb: str) -> Effect:
        if to == DISCARDED:
            return Effect(change, f"{what} discarded")
        return Effect(change, f"{what} {verb if is_group(to) else 'marked as'} {self.title(to)}", to)

    def _split(self, group: int) -> Effect:
        if len(self._state.members(group)) < 2:
            raise DataError(f"group {group} has a single {self._noun} and cannot be split.")
        half = self._order.smaller_half(group)
        text = f"{self.title(group)} split: {self._counted(len(half))} moved to new group {self._state.next_group}"
        return Effect(split(self._state, half), text)

    def _rows(self, rows: Sequence[int]) -> np.ndarray:
        chosen = np.unique(np.asarray(rows, dtype=np.int64))
        n_samples = len(self._target.names)
        if len(chosen) and chosen[-1] >= n_samples:
            raise DataError(f"there is no {self._noun} {chosen[-1]}: this run has {n_samples}. Reload the page.")
        return chosen


def _group_in(text: str) -> set[int]:
    """Return the group that samples are moved to; empty if they go to a class, a new group, or are discarded."""
    category = DISCARDED if text == "new" else from_text(text)
    return {category} if is_group(category) else set()
