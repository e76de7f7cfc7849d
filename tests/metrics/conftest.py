from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def day():
    """A small target worked by hand: two common classes, two private ones, three of ten rows wrong.

    cat 2 of 3 right, dog 1 of 1, so common accuracy is 5/6 by class and 3/4 by row. Four of six private rows
    are called unknown (2/3), and four of five unknown rows are private (4/5). Seven of ten rows are right.
    """
    return {
        "y_true": ["cat", "cat", "cat", "dog", "owl", "owl", "owl", "elk", "elk", "elk"],
        "y_pred": ["cat", "cat", "unknown", "dog", "unknown", "unknown", "dog", "unknown", "unknown", "cow"],
        "source_classes": ["cat", "dog", "cow"],
    }


@pytest.fixture
def groups_of_day():
    """Groups of the five rows called unknown: cat and both owls in 0, the elks in 1; -1 where known."""
    return [-1, -1, 0, -1, 0, 0, -1, 1, 1, -1]


@pytest.fixture
def features_of_day():
    """Owls and elks point to different corners, so k-means finds them whatever the seed."""
    corner = {"cat": (1, 0, 0), "dog": (0, 0, 0), "owl": (0, 1, 0), "elk": (0, 0, 1)}
    names = ["cat"] * 3 + ["dog"] + ["owl"] * 3 + ["elk"] * 3
    return np.array([corner[name] for name in names], dtype=float)
