from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.errors import DataError, UndefinedScoreWarning
from uniot.metrics.accuracy import h_score
from uniot.metrics.ranking import best_threshold_h_score

# Few distinct values, so that ties are common; all common and all private occur as well.
targets = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["a", "b"]), st.integers(-2, 2)),
    min_size=1,
    max_size=25,
)


def tried_thresholds(y_true, nearest, known_score):
    """The definition: H at every threshold, from nothing rejected to everything rejected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedScoreWarning)
        return max(
            h_score(y_true, np.where(known_score >= threshold, nearest, "unknown"), source_classes=["a", "b"])
            for threshold in [*known_score, np.inf]
        )


@given(targets)
def test_no_threshold_has_a_larger_h_score_and_one_has_it(rows):
    y_true, nearest, known_score = (np.array(column) for column in zip(*rows, strict=True))
    best = best_threshold_h_score(y_true, nearest, known_score, source_classes=["a", "b"])
    assert best == pytest.approx(tried_thresholds(y_true, nearest, known_score))
    assert 0 <= best <= 1


def test_the_best_threshold_by_hand():
    # Above 0.6: half of a, all of b, no private row let in; accuracy 0.75 and recall 1.
    truth, nearest, known_score = ["a", "a", "b", "x"], ["a", "b", "b", "a"], [0.9, 0.8, 0.7, 0.6]
    found = best_threshold_h_score(truth, nearest, known_score, source_classes=["a", "b"])
    assert found == pytest.approx(2 * 0.75 / 1.75)


def test_without_private_rows_nothing_is_rejected():
    assert best_threshold_h_score(["a", "a", "b"], ["a", "b", "b"], [0.1, 0.9, 0.2]) == pytest.approx(0.75)


def test_without_common_rows_everything_is_rejected():
    assert best_threshold_h_score(["x", "y"], ["a", "b"], [0.9, 0.8], source_classes=["a", "b"]) == 1


def test_rows_and_known_scores_are_as_many():
    with pytest.raises(DataError, match="known_score"):
        best_threshold_h_score(["a", "a"], ["a", "a"], [0.1])
