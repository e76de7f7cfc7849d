"""Labelled samples as discovery sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of labelled samples.

    Attributes:
        features: (m, d), unit rows.
        classes: index of the class of each, (m,).
        rows: which sample of the source each is, (m,).
    """

    features: np.ndarray
    classes: np.ndarray
    rows: np.ndarray

    def none(self) -> LabelledFeatures:
        """The same without any sample."""
        return LabelledFeatures(self.features[:0], self.classes[:0], self.rows[:0])
