from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from uniot.errors import DataError, UndefinedScoreWarning
from uniot.metrics.ranking import auroc, oscr


def swept_oscr(is_common, is_right, known_score):
    """The definition: one threshold after another, trapezia between them."""
    points = [(0.0, 0.0)]
    for threshold in sorted(set(known_score), reverse=True):
        kept = known_score >= threshold
        points.append(((kept & ~is_common).sum() / (~is_common).sum(), (kept & is_right).sum() / is_common.sum()))
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


# Few distinct values, so that ties are common.
targets = st.lists(
    st.tuples(st.sampled_from(["a", "b", "unknown"]), st.sampled_from(["a", "b"]), st.integers(-2, 2)),
    min_size=2,
    max_size=25,
).filter(lambda rows: 0 < sum(true == "unknown" for true, _, _ in rows) < len(rows))


@given(targets)
def test_oscr_is_the_area_of_the_sweep_ties_included(rows):
    y_true, nearest, known_score = (np.array(column) for column in zip(*rows, strict=True))
    common = y_true != "unknown"
    swept = swept_oscr(common, common & (y_true == nearest), known_score)
    assert oscr(y_true, nearest, known_score) == pytest.approx(swept)


@given(targets)
def test_auroc_equals_scikit_learn(rows):
    y_true, _, known_score = (np.array(column) for column in zip(*rows, strict=True))
    common = y_true != "unknown"
    assert auroc(common, known_score) == pytest.approx(roc_auc_score(common, known_score))


@given(targets)
def test_only_the_order_of_known_score_matters(rows):
    y_true, nearest, known_score = (np.array(column) for column in zip(*rows, strict=True))
    assert oscr(y_true, nearest, np.exp(known_score) - 3) == pytest.approx(oscr(y_true, nearest, known_score))


@given(targets)
def test_oscr_is_at_most_auroc_and_equal_where_every_nearest_class_is_right(rows):
    y_true, nearest, known_score = (np.array(column) for column in zip(*rows, strict=True))
    area = auroc(y_true != "unknown", known_score)
    assert oscr(y_true, nearest, known_score) <= area + 1e-12
    right = np.where(y_true == "unknown", "a", y_true)
    assert oscr(y_true, right, known_score) == pytest.approx(area)


def test_oscr_worked_by_hand():
    # From the top: a right; owl; b taken for a; b right; elk. CCR is 1/3 at the owl and 2/3 at the elk.
    y_true = ["a", "owl", "b", "b", "elk"]
    nearest = ["a", "a", "a", "b", "b"]
    known_score = [0.9, 0.8, 0.7, 0.6, 0.5]
    assert oscr(y_true, nearest, known_score, source_classes=["a", "b"]) == pytest.approx((1 / 3 + 2 / 3) / 2)


def test_a_tie_counts_half():
    assert auroc([True, False], [1.0, 1.0]) == 0.5
    assert oscr(["a", "unknown"], ["a", "a"], [1.0, 1.0]) == 0.5


def test_infinite_known_score_and_tensors_are_ordered_like_any_other():
    assert auroc([1, 1, 0], [np.inf, 0.0, -np.inf]) == 1.0
    assert auroc(torch.tensor([True, False]), torch.tensor([0.7, 0.1], requires_grad=True)) == 1.0
    assert auroc(torch.tensor([True, False]), torch.tensor([0.7, 0.1], dtype=torch.bfloat16)) == 1.0


def test_one_kind_of_row_has_no_ranking_and_says_so():
    with pytest.warns(UndefinedScoreWarning, match="AUROC is undefined; 0.5 is returned: it compares common with"):
        assert auroc([True, True], [0.1, 0.2]) == 0.5
    with pytest.warns(UndefinedScoreWarning, match="OSCR is undefined; 0.5 is returned: no row of y_true is private"):
        assert oscr(["a", "b"], ["a", "a"], [0.1, 0.2]) == 0.5
    with pytest.warns(UndefinedScoreWarning, match="OSCR is undefined; 0 is returned: no true label is a source"):
        assert oscr(["unknown"], ["a"], [0.1]) == 0.0


@pytest.mark.parametrize(
    ("is_common", "known_score", "words"),
    [
        ([True, False], [0.1, np.nan], r"1 of 2 values of known_score are NaN \(first: row 1\)"),
        ([True, False], [0.1], "is_common has 2 rows, known_score has 1"),
        ([True, False], ["a", "b"], "known_score must be numbers"),
        ([True, False], [[0.1], [0.2]], r"known_score has shape \(2, 1\)"),
        ([], [], "is_common is empty"),
        ([0, 2], [0.1, 0.2], "is_common must be true or false for each row"),
        (["a", "b"], [0.1, 0.2], "is_common must be true or false for each row"),
    ],
)
def test_unusable_rankings_are_told_why(is_common, known_score, words):
    with pytest.raises(DataError, match=words):
        auroc(is_common, known_score)


def test_nearest_must_be_a_source_class():
    with pytest.raises(DataError, match=r"nearest holds 'unknown', but must name a source class.*predicted as known"):
        oscr(["a", "owl"], ["a", "unknown"], [1.0, 0.0], source_classes=["a"])
    with pytest.raises(DataError, match="nearest holds 'owl', neither a source class"):
        oscr(["a", "owl"], ["a", "owl"], [1.0, 0.0], source_classes=["a"])
