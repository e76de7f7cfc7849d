"""Where every sample of the target stands while people name groups, and what one action changes: values, no files.

A group without samples does not exist; its name goes with its last sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from uniot.annotations.places import is_group


class Standing(NamedTuple):
    """Where a sample stands, and whether a person put it there."""

    place: int
    by_hand: bool


@dataclass(frozen=True)
class Piece:
    """Samples that stood in one place and stand in another."""

    rows: np.ndarray
    before: Standing
    after: Standing


class Renaming(NamedTuple):
    """What a group was called and is called; empty is no name."""

    group: int
    before: str
    after: str


@dataclass(frozen=True)
class Change:
    """What an action changes; it can be taken back."""

    pieces: tuple[Piece, ...] = ()
    names: tuple[Renaming, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pieces or self.names)

    def inverse(self) -> Change:
        """The change that takes this one back."""
        return Change(
            tuple(Piece(piece.rows, piece.after, piece.before) for piece in self.pieces),
            tuple(Renaming(name.group, name.after, name.before) for name in self.names),
        )

    def places(self) -> set[int]:
        """Every place that is another after the change."""
        moved = {standing.place for piece in self.pieces for standing in (piece.before, piece.after)}
        return moved | {name.group for name in self.names}

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        pieces = [[piece.rows.tolist(), piece.before, piece.after] for piece in self.pieces]
        return json.dumps({"pieces": pieces, "names": self.names}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Change:
        """What `to_json` wrote."""
        found = json.loads(text)
        pieces = (Piece(np.array(rows), Standing(*old), Standing(*new)) for rows, old, new in found["pieces"])
        return cls(tuple(pieces), tuple(Renaming(*name) for name in found["names"]))


@dataclass
class Labels:
    """The state: place of each sample, names of groups.

    Attributes:
        place: of each sample, see `places`, (n,).
        by_hand: whether a person put it there, (n,), bool.
        names: of the groups that have one.
        next_group: number of the next new group; none is ever given twice.
    """

    place: np.ndarray
    by_hand: np.ndarray
    names: dict[int, str] = field(default_factory=dict)
    next_group: int = 0

    @classmethod
    def start(cls, place: np.ndarray) -> Labels:
        """As the run left it."""
        return cls(place.copy(), np.zeros(len(place), dtype=bool), {}, int(place.max(initial=-1)) + 1)

    def copy(self) -> Labels:
        """The state as it is now, which later changes leave alone."""
        return Labels(self.place.copy(), self.by_hand.copy(), dict(self.names), self.next_group)

    def members(self, place: int) -> np.ndarray:
        """Rows that stand in a place, in order."""
        return np.flatnonzero(self.place == place)

    def sizes(self) -> dict[int, int]:
        """How many samples stand in each place that has any."""
        places, counts = np.unique(self.place, return_counts=True)
        return dict(zip(places.tolist(), counts.tolist(), strict=True))

    def apply(self, change: Change) -> None:
        """Makes a change."""
        for piece in change.pieces:
            self.place[piece.rows] = piece.after.place
            self.by_hand[piece.rows] = piece.after.by_hand
        for group, _, name in change.names:
            self.names.pop(group, None)
            if name:
                self.names[group] = name
        self.next_group = max(self.next_group, 1 + max(change.places(), default=-1))


def rename(labels: Labels, group: int, name: str) -> Change:
    """Gives a group a name, or takes it away where `name` is empty."""
    before = labels.names.get(group, "")
    return Change(names=() if before == name else (Renaming(group, before, name),))


def move(labels: Labels, rows: Sequence[int] | np.ndarray, to: int) -> Change:
    """Puts samples into a place; those already put there by hand stay."""
    chosen = np.asarray(rows, dtype=np.int64)
    return put(labels, chosen, np.full(len(chosen), to), np.ones(len(chosen), dtype=bool))


def put_back(labels: Labels, rows: Sequence[int] | np.ndarray, start: np.ndarray) -> Change:
    """Puts samples where the run had them."""
    chosen = np.asarray(rows, dtype=np.int64)
    return put(labels, chosen, start[chosen], np.zeros(len(chosen), dtype=bool))


def merge(labels: Labels, group: int, to: int) -> Change:
    """Puts a whole group into another group, a class, or aside. A group without a name takes that of the other.

    Which of its samples a person had put into the group stays known where the place is a group again: to merge two
    groups says nothing about one sample. To say which class it is, or to discard it, does.
    """
    rows = labels.members(group)
    by_hand = labels.by_hand[rows] if is_group(to) else np.ones(len(rows), dtype=bool)
    names = []
    if is_group(to) and not labels.names.get(to) and labels.names.get(group):
        names.append(Renaming(to, "", labels.names[group]))
    return put(labels, rows, np.full(len(rows), to), by_hand, names)


def split(labels: Labels, rows: Sequence[int] | np.ndarray) -> Change:
    """Puts some samples of a group into a new one."""
    chosen = np.asarray(rows, dtype=np.int64)
    return put(labels, chosen, np.full(len(chosen), labels.next_group), labels.by_hand[chosen])


def put(
    labels: Labels, rows: np.ndarray, place: np.ndarray, by_hand: np.ndarray, names: Iterable[Renaming] = ()
) -> Change:
    """Puts each sample into a place of its own; groups that lose their last sample lose their name."""
    standings = np.stack([labels.place[rows], labels.by_hand[rows], place, by_hand], axis=1).astype(np.int64)
    moves = (standings[:, 0] != standings[:, 2]) | (standings[:, 1] != standings[:, 3])
    kinds, kind_of = np.unique(standings[moves], axis=0, return_inverse=True)
    moved = rows[moves]
    pieces = tuple(
        Piece(
            np.sort(moved[kind_of.reshape(-1) == number]), Standing(old, bool(old_hand)), Standing(new, bool(new_hand))
        )
        for number, (old, old_hand, new, new_hand) in enumerate(kinds.tolist())
    )
    emptied = _emptied(labels.sizes(), pieces)
    lost = (Renaming(group, name, "") for group, name in sorted(labels.names.items()) if group in emptied)
    return Change(pieces, (*names, *lost))


def _emptied(sizes: Mapping[int, int], pieces: Iterable[Piece]) -> set[int]:
    left = dict(sizes)
    for piece in pieces:
        left[piece.before.place] -= len(piece.rows)
        left[piece.after.place] = left.get(piece.after.place, 0) + len(piece.rows)
    return {place for place, size in left.items() if size == 0}
