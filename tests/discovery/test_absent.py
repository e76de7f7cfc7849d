"""Absent classes: by the three target samples that are clearest about a class."""

from __future__ import annotations

import numpy as np
import pytest

from uniot.discovery.groups import absence
from uniot.io.predictions import Prediction


def prediction(nearest, known_score) -> Prediction:
    known_score = np.array(known_score, dtype=float)
    none, zeros = np.full(len(known_score), -1), np.zeros(len(known_score))
    return Prediction(np.array(nearest), known_score >= 0.5, known_score, zeros, none, zeros)


def test_absence_is_read_off_the_three_clearest_samples():
    target = prediction([0, 0, 0, 0, 1, 1, 2], [0.9, 0.8, 0.7, 0.1, 0.3, 0.2, 0.99])
    # Class 1 has two unsure samples, class 2 a single sure one, class 3 none: worked by hand.
    expected = [1 - 2.4 / 3, 1 - 0.5 / 3, 1 - 0.99 / 3, 1]
    assert absence(target, 4) == pytest.approx(expected)


def test_without_samples_every_class_is_absent():
    assert absence(Prediction.none(), 2).tolist() == [1, 1]
