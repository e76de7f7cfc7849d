from __future__ import annotations

import warnings
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from uniot.errors import DataError
from uniot.metrics.grouping import adjusted_rand, hungarian_accuracy, normalized_mutual_information, purity

SCORES = [normalized_mutual_information, hungarian_accuracy, adjusted_rand, purity]
rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=40)


@pytest.mark.filterwarnings("ignore:The number of unique classes is greater")
@given(rows)
def test_equal_to_scikit_learn(pairs):
    y_true, groups = zip(*pairs, strict=True)
    assert normalized_mutual_information(y_true, groups) == pytest.approx(
        normalized_mutual_info_score(y_true, groups), abs=1e-9
    )
    assert adjusted_rand(y_true, groups) == pytest.approx(adjusted_rand_score(y_true, groups), abs=1e-9)


# Recorded with the project's own implementations, which scikit-learn's replaced (evaluation/grouping.py at commit
# e5a5af0): NMI, adjusted Rand index, purity and Hungarian accuracy for the seeds 0 to 3 of `noisy_groups`.
RECORDED = (
    (0.39446435467721597, 0.3236965397597684, 0.645, 0.615),
    (0.44157572638367165, 0.36930706353039316, 0.67, 0.64),
    (0.4466865567955827, 0.3984737736920374, 0.685, 0.655),
    (0.4259414274584109, 0.37309738143229526, 0.675, 0.645),
)


def noisy_groups(seed: int):
    rng = np.random.default_rng(seed)
    y_true = rng.integers(0, 7, 200)
    return y_true, np.where(rng.random(200) < 0.6, y_true, rng.integers(0, 9, 200))


@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_the_recorded_ones(seed):
    pair = noisy_groups(seed)
    found = [score(*pair) for score in (normalized_mutual_information, adjusted_rand, purity, hungarian_accuracy)]
    assert found == pytest.approx(RECORDED[seed], rel=1e-5)


def test_many_groups_for_few_rows_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert normalized_mutual_information(np.arange(30), np.arange(30)) == pytest.approx(1)
        assert adjusted_rand(np.arange(30), np.arange(30)) == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_hungarian_accuracy_is_the_best_of_every_naming(pairs):
    y_true, groups = (np.array(column) for column in zip(*pairs, strict=True))
    best = max(np.mean(np.array(naming)[groups] == y_true) for naming in permutations(range(4)))
    assert hungarian_accuracy(y_true, groups) == pytest.approx(best)


@pytest.mark.parametrize("score", SCORES)
@given(pairs=rows, names=st.permutations(range(7)), order=st.randoms(use_true_random=False))
def test_names_of_groups_and_order_of_rows_do_not_matter(score, pairs, names, order):
    y_true, groups = zip(*pairs, strict=True)
    shuffled = order.sample(pairs, len(pairs))
    renamed_true, renamed = [f"class {c}" for c, _ in shuffled], [names[g] for _, g in shuffled]
    assert score(renamed_true, renamed) == pytest.approx(score(y_true, groups), abs=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_the_true_classes_under_other_names_score_one(score):
    assert score(["a", "b", "b", "c"], [9, 4, 4, 0]) == pytest.approx(1.0)


def test_three_groups_for_two_classes_worked_by_hand():
    y_true, groups = ["a", "a", "b", "b"], [0, 0, 1, 2]
    # Entropies ln 2 and 1.5 ln 2; the groups tell the class, so the information is ln 2.
    assert normalized_mutual_information(y_true, groups) == pytest.approx(2 / 2.5)
    assert hungarian_accuracy(y_true, groups) == 0.75
    assert purity(y_true, groups) == 1
    assert purity(["a", "a", "b", "b", "b"], [0, 0, 0, 1, 1]) == pytest.approx(4 / 5)
    # Of 6 pairs 2 share a class, 1 a group, 1 both; by chance 1/3.
    assert adjusted_rand(y_true, groups) == pytest.approx((1 - 1 / 3) / (3 / 2 - 1 / 3))


def test_one_class_follows_the_convention_of_scikit_learn():
    assert normalized_mutual_information(["a", "a"], [3, 3]) == 1.0
    assert normalized_mutual_information(["a", "a"], [0, 1]) == 0.0
    assert normalized_mutual_information(["a", "b"], [0, 0]) == 0.0
    assert normalized_mutual_information(["a"], [0]) == 1.0
    assert adjusted_rand(["a"], [0]) == 1.0
    assert adjusted_rand(["a", "b"], [0, 1]) == 1.0
    assert adjusted_rand(["a", "a"], [0, 1]) == 0.0


def test_every_row_its_own_group_needs_no_table_of_rows_by_rows_for_nmi():
    n = 100_000
    score = normalized_mutual_information(np.arange(n), np.arange(n)[::-1].copy())
    assert score == pytest.approx(1.0)


@pytest.mark.parametrize("score", SCORES)
def test_unusable_groups_are_told_why(score):
    with pytest.raises(DataError, match="y_true has 2 rows, groups has 1"):
        score(["a", "b"], [0])
    with pytest.raises(DataError, match="y_true is empty"):
        score([], [])
    with pytest.raises(DataError, match="groups holds 0.5 in row 0. Give text or whole numbers"):
        score(["a"], [0.5])
