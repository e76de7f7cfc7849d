"""The annotation state: the category of every target sample, the names of groups, and the changes of both.

A category is a group, a source class, or discarded, as one integer (see `uniot.annotations.places`). A group without
samples does not exist; its name is removed together with its last sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from uniot.annotations.annotations import told_rows
from uniot.annotations.places import is_group
from uniot.rejection.answers import Answers


class Placement(NamedTuple):
    """The category of a sample, whether a person assigned it, and whether a person could not say what it is."""

    category: int
    by_hand: bool
    cannot_tell: bool = False


@dataclass(frozen=True)
class Reassignment:
    """Samples that move from one placement to another.

    Attributes:
        rows: of the samples, ascending, (n_rows,).
        before: placement of all of them before the change.
        after: placement of all of them after it.
    """

    rows: np.ndarray
    before: Placement
    after: Placement


class Renaming(NamedTuple):
    """The name of a group before and after a change; empty if it has none."""

    group: int
    before: str
    after: str


@dataclass(frozen=True)
class Change:
    """The difference between two states, which can be inverted; false if it is empty."""

    samples: tuple[Reassignment, ...] = ()
    names: tuple[Renaming, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.samples or self.names)

    def inverse(self) -> Change:
        """Return the change that undoes this one."""
        return Change(
            tuple(Reassignment(one.rows, one.after, one.before) for one in self.samples),
            tuple(Renaming(name.group, name.after, name.before) for name in self.names),
        )

    def categories(self) -> set[int]:
        """Return every category whose samples or name change."""
        moved = {assigned.category for one in self.samples for assigned in (one.before, one.after)}
        return moved | {name.group for name in self.names}

    def to_json(self) -> str:
        """Return the change as text for `from_json`."""
        samples = [[one.rows.tolist(), one.before, one.after] for one in self.samples]
        return json.dumps({"samples": samples, "names": self.names}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Change:
        """Return the change that `to_json` wrote."""
        found = json.loads(text)
        samples = (
            Reassignment(np.array(rows), Placement(*old), Placement(*new)) for rows, old, new in found["samples"]
        )
        return cls(tuple(samples), tuple(Renaming(*name) for name in found["names"]))


@dataclass
class AnnotationState:
    """The category of every sample and the names of the groups.

    Attributes:
        category: of each sample, (n_samples,).
        by_hand: whether a person assigned it, (n_samples,), bool.
        cannot_tell: whether a person looked at it and could not say what it is, (n_samples,), bool; never of a sample
            that a person assigned.
        names: of the groups that have one.
        next_group: number of the next new group; numbers are never used twice.
    """

    category: np.ndarray
    by_hand: np.ndarray
    cannot_tell: np.ndarray
    names: dict[int, str] = field(default_factory=dict)
    next_group: int = 0

    @classmethod
    def initial(cls, category: np.ndarray, answers: Answers | None = None, n_groups: int = 0) -> AnnotationState:
        """Return the state of a run that nobody has labelled.

        Args:
            category: what the run predicted, (n_samples,).
            answers: what a person said before the run was saved; these samples count as assigned by hand.
            n_groups: number of groups that the run found, which may have no sample.
        """
        by_hand, cannot_tell = told_rows(answers or Answers(), len(category))
        return cls(category.copy(), by_hand, cannot_tell, {}, max(n_groups, int(category.max(initial=-1)) + 1))

    def copy(self) -> AnnotationState:
        """Return a copy that later changes do not affect."""
        arrays = (self.category.copy(), self.by_hand.copy(), self.cannot_tell.copy())
        return AnnotationState(*arrays, dict(self.names), self.next_group)

    def members(self, category: int) -> np.ndarray:
        """Return the rows in a category, ascending, (n_members,)."""
        return np.flatnonzero(self.category == category)

    def sizes(self) -> dict[int, int]:
        """Return the number of samples in each category that has any."""
        categories, counts = np.unique(self.category, return_counts=True)
        return dict(zip(categories.tolist(), counts.tolist(), strict=True))

    def apply(self, change: Change) -> None:
        """Apply a change in place."""
        for one in change.samples:
            self.category[one.rows] = one.after.category
            self.by_hand[one.rows] = one.after.by_hand
            self.cannot_tell[one.rows] = one.after.cannot_tell
        for group, _, name in change.names:
            self.names.pop(group, None)
            if name:
                self.names[group] = name
        self.next_group = max(self.next_group, 1 + max(change.categories(), default=-1))


def rename(state: AnnotationState, group: int, name: str) -> Change:
    """Return the change that names a group, or removes its name if `name` is empty."""
    before = state.names.get(group, "")
    return Change(names=() if before == name else (Renaming(group, before, name),))


def move(state: AnnotationState, rows: Sequence[int] | np.ndarray, to: int) -> Change:
    """Return the change that assigns samples to a category by hand."""
    chosen = np.asarray(rows, dtype=np.int64)
    return assign(state, chosen, np.full(len(chosen), to), np.ones(len(chosen), dtype=bool))


def restore(state: AnnotationState, rows: Sequence[int] | np.ndarray, initial: np.ndarray) -> Change:
    """Return the change that gives samples back the category that the run predicted, `initial` (n_samples,)."""
    chosen = np.asarray(rows, dtype=np.int64)
    nobody = np.zeros(len(chosen), dtype=bool)
    return assign(state, chosen, initial[chosen], nobody, cannot_tell=nobody)


def merge(state: AnnotationState, group: int, to: int) -> Change:
    """Return the change that assigns a whole group to another group, a class, or discarded.

    A group without a name takes the name of the group that is merged into it. Merging two groups decides nothing about
    single samples, so which of them were assigned by hand stays; assigning them to a class or discarding them does.
    """
    rows = state.members(group)
    by_hand = state.by_hand[rows] if is_group(to) else np.ones(len(rows), dtype=bool)
    names = []
    if is_group(to) and not state.names.get(to) and state.names.get(group):
        names.append(Renaming(to, "", state.names[group]))
    return assign(state, rows, np.full(len(rows), to), by_hand, names)


def split(state: AnnotationState, rows: Sequence[int] | np.ndarray) -> Change:
    """Return the change that moves some samples of a group into a new group."""
    chosen = np.asarray(rows, dtype=np.int64)
    return assign(state, chosen, np.full(len(chosen), state.next_group), state.by_hand[chosen])


def assign(
    state: AnnotationState,
    rows: np.ndarray,
    category: np.ndarray,
    by_hand: np.ndarray,
    names: Iterable[Renaming] = (),
    cannot_tell: np.ndarray | None = None,
) -> Change:
    """Return the change that assigns a category to each of several samples.

    Args:
        state: before the change.
        rows: of the samples, (n_rows,).
        category: new category of each, (n_rows,).
        by_hand: whether a person decided it, (n_rows,), bool.
        names: renamings that belong to the change.
        cannot_tell: whether a person could not say, (n_rows,), bool; as before the change if None, except of samples
            that a person assigns.

    Returns:
        The change; groups that lose their last sample lose their name in it.
    """
    if cannot_tell is None:
        cannot_tell = state.cannot_tell[rows] & ~by_hand
    before = [state.category[rows], state.by_hand[rows], state.cannot_tell[rows]]
    table = np.stack([*before, category, by_hand, cannot_tell], axis=1).astype(np.int64)
    differs = (table[:, :3] != table[:, 3:]).any(axis=1)
    kinds, kind_of = np.unique(table[differs], axis=0, return_inverse=True)
    changed = rows[differs]
    samples = tuple(
        Reassignment(
            np.sort(changed[kind_of.reshape(-1) == number]),
            Placement(kind[0], bool(kind[1]), bool(kind[2])),
            Placement(kind[3], bool(kind[4]), bool(kind[5])),
        )
        for number, kind in enumerate(kinds.tolist())
    )
    emptied = _emptied(state.sizes(), samples)
    removed = (Renaming(group, name, "") for group, name in sorted(state.names.items()) if group in emptied)
    return Change(samples, (*names, *removed))


def _emptied(sizes: Mapping[int, int], samples: Iterable[Reassignment]) -> set[int]:
    left = dict(sizes)
    for one in samples:
        left[one.before.category] -= len(one.rows)
        left[one.after.category] = left.get(one.after.category, 0) + len(one.rows)
    return {category for category, size in left.items() if size == 0}
