"""Exemplars: the nearest first, the least sure apart from them."""

from __future__ import annotations

import numpy as np

from uniot.discovery.groups import exemplars


def test_typical_ones_are_the_nearest_and_doubtful_ones_the_least_sure():
    members = np.array([10, 11, 12, 13, 14])
    found = exemplars(members, np.array([0.1, 0.9, 0.5, 0.7, 0.2]), np.array([0.3, 0.9, 0.4, 0.0, 0.1]), count=2)
    assert found.typical.tolist() == [11, 13]
    # Row 13 is the least sure of all, and typical already.
    assert found.doubtful.tolist() == [14, 10]


def test_few_members_are_all_typical():
    found = exemplars(np.array([4, 7]), np.array([0.2, 0.3]), np.array([0.1, 0.1]))
    assert found.typical.tolist() == [7, 4]
    assert found.doubtful.tolist() == []


def test_nobody_has_no_exemplar():
    none = np.zeros(0, dtype=np.int64)
    assert exemplars(none, none, none).typical.tolist() == []
