"""Answers of a person about samples of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Answers:
    """What a person said about some target samples, in the order of the answers.

    Attributes:
        rows: rows of the target, each at most once, (n_answers,).
        classes: index of a source class, `UNKNOWN` or `CANNOT_TELL` per row, (n_answers,).
    """

    rows: np.ndarray = field(default_factory=_no_rows)
    classes: np.ndarray = field(default_factory=_no_rows)

    def __len__(self) -> int:
        return len(self.rows)

    def told(self, rows: Sequence[int] | np.ndarray, classes: Sequence[int] | np.ndarray) -> Answers:
        """Return these answers and newer ones; the last answer about a sample replaces those before."""
        given = self.by_row
        for row, answer in zip(np.asarray(rows).tolist(), np.asarray(classes).tolist(), strict=True):
            given.pop(row, None)
            given[row] = answer
        return Answers(np.array(list(given), dtype=np.int64), np.array(list(given.values()), dtype=np.int64))

    @property
    def by_row(self) -> dict[int, int]:
        """Return the answer by row, in the order of the answers."""
        return dict(zip(self.rows.tolist(), self.classes.tolist(), strict=True))

    @property
    def decided(self) -> Answers:
        """Return the answers without those that say "cannot tell"."""
        said = self.classes != CANNOT_TELL
        return Answers(self.rows[said], self.classes[said])

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
