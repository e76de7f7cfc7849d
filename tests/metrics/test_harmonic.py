from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from uniot.discovery.kmeans import spherical_kmeans
from uniot.errors import DataError, UndefinedScoreWarning
from uniot.metrics.accuracy import common_accuracy, h3_score, h_score, harmonic_mean, unknown_recall

# The five rows of the day that were called unknown, and their groups.
CALLED_TRUE, CALLED_GROUPS = ["cat", "owl", "owl", "elk", "elk"], [0, 0, 0, 1, 1]


def test_h_is_the_harmonic_mean_of_eq_s1(day):
    assert h_score(**day) == pytest.approx(2 / (6 / 5 + 3 / 2))
    assert h_score(**day, average="instance") == pytest.approx(2 / (4 / 3 + 3 / 2))


def test_perfect_prediction_scores_one_and_giving_up_scores_nothing():
    y_true = ["a", "b", "owl"]
    assert h_score(y_true, ["a", "b", "unknown"], source_classes=["a", "b"]) == 1.0
    assert h_score(y_true, ["unknown"] * 3, source_classes=["a", "b"]) == 0.0
    assert h_score(y_true, ["a", "b", "a"], source_classes=["a", "b"]) == 0.0


def test_a_part_of_zero_gives_zero_without_a_division():
    with np.errstate(all="raise"):
        assert harmonic_mean(0.0, 1.0, 1.0) == 0.0
        assert harmonic_mean(0.0, 0.0) == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_harmonic_mean_lies_between_the_smallest_part_and_the_mean(parts):
    assert min(parts) - 1e-9 <= harmonic_mean(*parts) <= np.mean(parts) + 1e-9


def test_without_private_rows_h_is_the_common_accuracy_and_says_so():
    given = (["a", "a", "b"], ["a", "unknown", "b"])
    with pytest.warns(
        UndefinedScoreWarning, match="H-score: the accuracy on common classes is used instead: no row of"
    ):
        assert h_score(*given) == common_accuracy(*given) == 0.75


def test_forgotten_source_classes_are_named_in_the_warning():
    with pytest.warns(UndefinedScoreWarning, match="If private rows carry the names of their classes, give source"):
        h_score(["a", "owl"], ["a", "unknown"])


def test_without_common_rows_h_is_the_unknown_recall_and_says_so():
    given = (["owl", "elk"], ["unknown", "a"])
    with pytest.warns(
        UndefinedScoreWarning, match="H-score: the scores of the private rows are used instead: no true label"
    ):
        assert h_score(*given, source_classes=["a"]) == unknown_recall(*given, source_classes=["a"]) == 0.5


def test_oracle_h3_is_eq_16_on_the_truly_private_rows(day, features_of_day):
    # Owls and elks separate perfectly, so NMI is 1.
    score = h3_score(**day, oracle=True, features=features_of_day)
    assert score == pytest.approx(3 / (6 / 5 + 3 / 2 + 1))
    assert h3_score(**day, oracle=True, features=features_of_day, average="instance") == pytest.approx(
        3 / (4 / 3 + 3 / 2 + 1)
    )


def test_oracle_groups_are_drawn_from_the_seed(day, features_of_day, monkeypatch):
    seeds = []

    def recorded(features, n_groups, *, seed):
        seeds.append(seed)
        return spherical_kmeans(features, n_groups, seed=seed)

    monkeypatch.setattr("uniot.discovery.kmeans.spherical_kmeans", recorded)
    for seed in (0, 7):
        h3_score(**day, oracle=True, features=features_of_day, seed=seed)
    assert seeds == [0, 7]


def test_oracle_h3_reads_features_of_private_rows_only(day, features_of_day):
    other = features_of_day.copy()
    other[:4] = 7.0
    assert h3_score(**day, oracle=True, features=other) == h3_score(**day, oracle=True, features=features_of_day)
    tensor = torch.tensor(features_of_day, requires_grad=True)
    assert h3_score(**day, oracle=True, features=tensor) == h3_score(**day, oracle=True, features=features_of_day)


def test_honest_h3_scores_the_groups_of_rows_called_unknown(day, groups_of_day):
    nmi = normalized_mutual_info_score(CALLED_TRUE, CALLED_GROUPS)
    assert h3_score(**day, groups=groups_of_day) == pytest.approx(3 / (6 / 5 + 3 / 2 + 1 / nmi))


def test_a_wrongly_rejected_common_row_lowers_the_honest_h3(day, groups_of_day):
    clean = day | {"y_pred": ["cat", "cat", "dog", *day["y_pred"][3:]]}
    assert common_accuracy(**clean) == common_accuracy(**day)
    assert h3_score(**clean, groups=groups_of_day) > h3_score(**day, groups=groups_of_day)


def test_groups_of_known_rows_and_names_of_groups_do_not_matter(day, groups_of_day):
    expected = h3_score(**day, groups=groups_of_day)
    renamed = [{-1: 5, 0: 12, 1: 3}[group] for group in groups_of_day]
    words = [{-1: "", 0: "first", 1: "second"}[group] for group in groups_of_day]
    assert h3_score(**day, groups=renamed) == pytest.approx(expected)
    assert h3_score(**day, groups=words) == pytest.approx(expected)


@given(st.permutations(range(10)))
def test_h_and_honest_h3_are_blind_to_the_order_of_rows(order):
    y_true = np.array(["cat", "cat", "cat", "dog", "owl", "owl", "owl", "elk", "elk", "elk"])
    y_pred = np.array(["cat", "dog", "unknown", "dog", *["unknown"] * 5, "cat"])
    groups = np.array([-1, -1, 0, -1, 0, 1, 2, 1, 1, -1])
    source = ["cat", "dog"]
    assert h_score(y_true[order], y_pred[order], source_classes=source) == pytest.approx(
        h_score(y_true, y_pred, source_classes=source)
    )
    assert h3_score(y_true[order], y_pred[order], groups=groups[order], source_classes=source) == pytest.approx(
        h3_score(y_true, y_pred, groups=groups, source_classes=source)
    )


def test_honest_h3_is_zero_where_nothing_is_called_unknown(day):
    known = day | {"y_pred": ["cat"] * 10}
    assert h3_score(**known, groups=[-1] * 10) == 0.0


def test_one_private_class_gives_an_oracle_nmi_of_one():
    # Common accuracy 1, recall 1/2, NMI 1.
    score = h3_score(["a", "owl", "owl"], ["a", "unknown", "a"], source_classes=["a"], oracle=True, features=np.eye(3))
    assert score == pytest.approx(3 / (1 + 2 + 1))


def test_without_private_rows_h3_is_the_common_accuracy_in_both_variants():
    given = (["a", "b"], ["a", "unknown"])
    with pytest.warns(UndefinedScoreWarning, match="H³-score: the accuracy on common classes is used instead"):
        assert h3_score(*given, groups=[-1, 0]) == 0.5
    with pytest.warns(UndefinedScoreWarning, match="H³-score: the accuracy on common classes is used instead"):
        assert h3_score(*given, oracle=True, features=np.eye(2)) == 0.5


def test_without_common_rows_h3_is_the_mean_of_the_other_two():
    with pytest.warns(UndefinedScoreWarning, match="H³-score: the scores of the private rows are used instead"):
        score = h3_score(["owl", "elk"], ["unknown", "a"], source_classes=["a"], groups=[0, -1])
    assert score == pytest.approx(2 / (2 + 1))


@pytest.mark.parametrize("inputs", [{"groups": [-1, 0]}, {"oracle": True, "features": np.eye(2)}])
def test_h3_needs_the_names_of_private_classes(inputs):
    with pytest.raises(
        DataError, match="1 of 1 private rows are only called 'unknown' in the true labels, but H³ and NMI"
    ):
        h3_score(["a", "unknown"], ["a", "unknown"], **inputs)


def test_h3_says_which_input_is_missing(day):
    with pytest.raises(DataError, match="H³ scores the groups .* but none were given. Give groups"):
        h3_score(**day)
    with pytest.raises(DataError, match="H³ with oracle=True clusters features, but none were given"):
        h3_score(**day, oracle=True)


def test_rows_called_unknown_without_a_group_stay_together(day, groups_of_day):
    without = [-1 if group == 0 else group for group in groups_of_day]
    assert h3_score(**day, groups=without) == h3_score(**day, groups=groups_of_day)


def test_groups_of_other_rows_are_refused(day, groups_of_day):
    with pytest.raises(DataError, match="y_pred has 10 rows, groups has 9"):
        h3_score(**day, groups=groups_of_day[1:])


def test_features_of_the_wrong_rows_are_refused(day, features_of_day):
    with pytest.raises(DataError, match="y_true has 10 rows, features has 9"):
        h3_score(**day, oracle=True, features=features_of_day[1:])
    features_of_day[5] = 0.0
    with pytest.raises(DataError, match="all zero"):
        h3_score(**day, oracle=True, features=features_of_day)


def test_no_warning_on_ordinary_data(day, groups_of_day, features_of_day):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        h_score(**day)
        h3_score(**day, groups=groups_of_day)
        h3_score(**day, oracle=True, features=features_of_day)
