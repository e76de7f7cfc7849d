"""Answers of a person about samples of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import numpy as np

from uniot.errors import DataError
from uniot.io.text import listed

UNKNOWN = -1
"""The sample is of none of the source classes."""
CANNOT_TELL = -2
"""The person looked at the sample and could not say."""


def _no_rows() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


def _no_marks() -> np.ndarray:
    return np.zeros(0, dtype=bool)


@dataclass(frozen=True)
class Answers:
    """What a person said about some target samples, in the order of the answers.

    Attributes:
        rows: rows of the target, each at most once, (n_answers,).
        classes: index of a source class, `UNKNOWN` or `CANNOT_TELL` per row, (n_answers,).
        inferred: whether the answer follows from answers about other samples, (n_answers,), bool; none by default.
        moves_line: whether the answer says something about the line between known and unknown, (n_answers,), bool; by
            default all that are not inferred. The others fix the label of their sample and nothing else.
    """

    rows: np.ndarray = field(default_factory=_no_rows)
    classes: np.ndarray = field(default_factory=_no_rows)
    inferred: np.ndarray = field(default_factory=_no_marks)
    moves_line: np.ndarray = field(default_factory=_no_marks)

    def __post_init__(self) -> None:
        if len(self.inferred) != len(self.rows):
            object.__setattr__(self, "inferred", np.zeros(len(self.rows), dtype=bool))
        if len(self.moves_line) != len(self.rows):
            object.__setattr__(self, "moves_line", ~self.inferred)

    def __len__(self) -> int:
        return len(self.rows)

    def told(self, rows: Sequence[int] | np.ndarray, classes: Sequence[int] | np.ndarray) -> Answers:
        """Return these answers and newer ones; the last answer about a sample replaces those before."""
        latest = {row: place for place, row in enumerate(np.asarray(rows).tolist())}
        # In the order in which each sample was last spoken of.
        places = np.array(sorted(latest.values()), dtype=np.int64)
        newer = Answers(np.asarray(rows, np.int64)[places], np.asarray(classes, np.int64)[places])
        return self._some(~np.isin(self.rows, newer.rows))._joined(newer)

    def marked_as(self, given: Answers) -> Answers:
        """Return the same answers; those that are among `given`, with the same class, are inferred if they are there.

        Args:
            given: answers that a run was made with.
        """
        of_row = {row: place for place, row in enumerate(given.rows.tolist())}
        found = np.array([of_row.get(row, -1) for row in self.rows.tolist()], dtype=np.int64)
        same = found >= 0
        same[same] = given.classes[found[same]] == self.classes[same]
        inferred, moves_line = self.inferred.copy(), self.moves_line.copy()
        inferred[same], moves_line[same] = given.inferred[found[same]], given.moves_line[found[same]]
        return replace(self, inferred=inferred, moves_line=moves_line)

    @property
    def by_row(self) -> dict[int, int]:
        """Return the answer by row, in the order of the answers."""
        return dict(zip(self.rows.tolist(), self.classes.tolist(), strict=True))

    def is_same_as(self, other: Answers) -> bool:
        """Return whether both say the same, in any order."""
        return self.by_row == other.by_row and set(self.evidence.by_row) == set(other.evidence.by_row)

    @property
    def decided(self) -> Answers:
        """Return the answers without those that say "cannot tell"."""
        return self._some(self.classes != CANNOT_TELL)

    @property
    def evidence(self) -> Answers:
        """Return the answers that say something about the line between known and unknown."""
        return self._some((self.classes != CANNOT_TELL) & self.moves_line)

    @property
    def by_people(self) -> Answers:
        """Return the answers that a person gave, without "cannot tell" and what follows from answers about others."""
        return self._some((self.classes != CANNOT_TELL) & ~self.inferred)

    @property
    def of_classes(self) -> Answers:
        """Return the answers that name a class."""
        return self._some(self.classes > UNKNOWN)

    def without_evidence(self) -> Answers:
        """Return the same answers, none of which moves the line: told samples have their labels, others stay."""
        return replace(self, moves_line=np.zeros(len(self), dtype=bool))

    def _some(self, chosen: np.ndarray) -> Answers:
        return Answers(self.rows[chosen], self.classes[chosen], self.inferred[chosen], self.moves_line[chosen])

    def _joined(self, other: Answers) -> Answers:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Answers(*(np.concatenate(pair) for pair in pairs))

    def check(self, n_target: int, n_classes: int) -> None:
        """Raise DataError if a row or a class does not exist."""
        if len(self.rows) and not (self.rows.min() >= 0 and self.rows.max() < n_target):
            raise DataError(
                f"the answers are about rows {self.rows.min()} to {self.rows.max()}, and the target has rows 0 to "
                f"{n_target - 1}. Give rows of the target that was fitted."
            )
        if len(self.classes) and not (self.classes.min() >= CANNOT_TELL and self.classes.max() < n_classes):
            raise DataError(
                f"the answers name classes {self.classes.min()} to {self.classes.max()}, and there are {n_classes}. "
                "Give the index of a class, UNKNOWN or CANNOT_TELL."
            )


def answer_index(answer: object, classes: np.ndarray, unknown: str | int) -> int:
    """Return the index of an answer: of a class, `UNKNOWN`, or `CANNOT_TELL` for None.

    Args:
        answer: a class, the unknown label, or None.
        classes: source classes, text or integers, (n_classes,).
        unknown: label of unknown samples.

    Raises:
        DataError: there is no such class; the message offers the most similar one.
    """
    if answer is None:
        return CANNOT_TELL
    plain = answer.item() if isinstance(answer, np.generic) else answer
    names: list[object] = classes.tolist()
    if plain == unknown and type(plain) is type(unknown):
        return UNKNOWN
    if plain in names and not isinstance(plain, bool):
        return names.index(plain)
    raise DataError(
        f'{no_such_class(plain, names)} Answer {unknown!r} for none of the classes, None for "cannot tell".'
    )


def no_such_class(name: object, classes: Sequence[object]) -> str:
    """Return a sentence that there is no such class, with the most similar one or a list of them."""
    similar = get_close_matches(str(name), [str(known) for known in classes], n=1)
    offered = f"Did you mean {similar[0]!r}?" if similar else f"The classes are {listed(classes)}."
    return f"there is no class {str(name)[:80]!r}. {offered}"
