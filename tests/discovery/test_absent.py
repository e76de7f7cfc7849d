"""Absent classes: those that no target sample is labelled with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from uniot.discovery.groups import ABSENT, absence
from uniot.io.predictions import Prediction


def prediction(nearest, known_score) -> Prediction:
    known_score = np.array(known_score, dtype=float)
    none, zeros = np.full(len(known_score), -1), np.zeros(len(known_score))
    return Prediction(np.array(nearest), known_score >= 0.5, known_score, zeros, none, zeros)


def test_absence_is_one_minus_the_highest_known_score_of_a_class():
    target = prediction([0, 0, 0, 0, 1, 1, 2], [0.9, 0.8, 0.7, 0.1, 0.3, 0.2, 0.99])
    assert absence(target, 4) == pytest.approx([0.1, 0.7, 0.01, 1])


def test_class_is_absent_exactly_if_no_sample_has_its_label_however_scores_are_rounded():
    below, above = np.nextafter(0.5, 0), np.nextafter(0.5, 1)
    target = replace(prediction([0, 1], [below, above]), known=np.array([True, False]))
    assert (absence(target, 3) > ABSENT).tolist() == [False, True, True]


def test_without_samples_every_class_is_absent():
    assert absence(Prediction.none(), 2).tolist() == [1, 1]
