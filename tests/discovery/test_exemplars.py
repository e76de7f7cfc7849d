"""Exemplars: typical ones, the nearest first; doubtful ones, the least sure first."""

from __future__ import annotations

import numpy as np

from uniot.discovery.groups import exemplars


def test_typical_ones_come_by_nearness_and_doubtful_ones_by_confidence():
    members = np.array([10, 11, 12, 13, 14])
    nearness, confidence = np.array([0.1, 0.9, 0.5, 0.7, 0.2]), np.array([0.8, 0.9, 0.4, 0.0, 0.75])
    found = exemplars(members, nearness, confidence, doubtful_below=0.75)
    assert found.typical.tolist() == [11, 14, 10]
    # Row 13 is near the centre, and doubtful all the same.
    assert found.doubtful.tolist() == [13, 12]


def test_confidence_that_is_shown_as_the_limit_is_not_below_it():
    members, confidence = np.array([0, 1]), np.array([0.746, 0.744])
    assert exemplars(members, confidence, confidence, doubtful_below=0.75).doubtful.tolist() == [1]


def test_no_member_is_doubtful_if_all_are_sure():
    found = exemplars(np.array([4, 7]), np.array([0.2, 0.3]), np.array([1.0, 0.99]), doubtful_below=0.75)
    assert found.typical.tolist() == [7, 4]
    assert found.doubtful.tolist() == []


def test_category_without_members_has_no_exemplar():
    none = np.zeros(0, dtype=np.int64)
    found = exemplars(none, none, none, doubtful_below=0.75)
    assert (found.typical.tolist(), found.doubtful.tolist()) == ([], [])
