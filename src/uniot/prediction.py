"""What everything after a method reads: one answer per target sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Prediction:
    """Answers in the order of the samples.

    Attributes:
        nearest: index of the nearest source class, (n,).
        known: whether the sample belongs to it, (n,), bool.
        known_score: from 0 to 1, what speaks for being known by the rule; at least one half iff known, (n,).
        confidence: probability of the answer, (n,): of its class if known, else of being unknown.
        group: private group of an unknown sample, -1 where known or not grouped, (n,).
        group_confidence: how clearly an unknown sample belongs to its group, from 0, on the border to another group,
            to 1, at the group's centre; 0 where there is no group, (n,).
    """

    nearest: np.ndarray
    known: np.ndarray
    known_score: np.ndarray
    confidence: np.ndarray
    group: np.ndarray
    group_confidence: np.ndarray

    @classmethod
    def none(cls) -> Prediction:
        """Answers for no samples."""
        indices = np.zeros(0, dtype=np.int64)
        return cls(indices, np.zeros(0, dtype=bool), np.zeros(0), np.zeros(0), indices, np.zeros(0))

    def rows(self, chosen: slice | np.ndarray) -> Prediction:
        """The answers for some of the samples."""
        return Prediction(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def __len__(self) -> int:
        return len(self.nearest)

    def labels(self, classes: np.ndarray, unknown: object, group_names: Mapping[int, str] | None = None) -> np.ndarray:
        """Class names where known, elsewhere the name of the group or `unknown`, as an array that can hold all."""
        if group_names:
            called = {group: group_names.get(group, str(unknown)) for group in np.unique(self.group).tolist()}
            of_group = np.array([called[group] for group in self.group.tolist()], dtype=str)
            return np.asarray(np.where(self.known, classes.astype(str)[self.nearest], of_group))
        named: np.ndarray = classes[self.nearest]
        if not self.known.all() and isinstance(unknown, str) and named.dtype.kind == "U":
            named = named.astype(np.result_type(named.dtype, np.array(unknown).dtype))
        named = named.copy()
        named[~self.known] = unknown
        return named
