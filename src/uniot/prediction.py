"""What everything after a method reads: one answer per target sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Prediction:
    """Answers in the order of the samples.

    Attributes:
        nearest: index of the nearest source class, (n,).
        known: whether the sample belongs to it, (n,), bool.
        confidence: from 0 to 1, at least one half iff known, (n,).
        group: private group of an unknown sample, -1 where known or not grouped, (n,).
    """

    nearest: np.ndarray
    known: np.ndarray
    confidence: np.ndarray
    group: np.ndarray

    @classmethod
    def none(cls) -> Prediction:
        """Answers for no samples."""
        indices = np.zeros(0, dtype=np.int64)
        return cls(indices, np.zeros(0, dtype=bool), np.zeros(0), indices)

    def __len__(self) -> int:
        return len(self.nearest)

    def labels(self, classes: np.ndarray, unknown: object) -> np.ndarray:
        """Class names where known, `unknown` elsewhere, as an array that can hold both."""
        named: np.ndarray = classes[self.nearest]
        if not self.known.all() and isinstance(unknown, str) and named.dtype.kind == "U":
            named = named.astype(np.result_type(named.dtype, np.array(unknown).dtype))
        named = named.copy()
        named[~self.known] = unknown
        return named
