from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.benchmark.significance import MIN_PAIRS, holm_corrected, sign_flip_p_value

differences = st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=MIN_PAIRS, max_size=9)


def p_value_by_counting(values: list[float]) -> float:
    """The definition, one choice of signs after another."""
    means = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    seen = abs(sum(values))
    return sum(mean >= seen - 1e-9 * sum(map(abs, values)) for mean in means) / len(means)


def test_always_better_is_as_unlikely_as_all_signs_alike():
    assert sign_flip_p_value([1.0, 2.0, 0.5, 3.0, 1.5, 0.1]) == 2 / 2**6
    assert sign_flip_p_value([-4.0] * 10) == 2 / 2**10


def test_one_small_loss_among_six_is_worked_by_hand():
    # The sum seen is 19; only all plus (21) and the loss alone (19) reach it, on either side.
    assert sign_flip_p_value([-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == 4 / 64


@given(differences)
def test_p_value_is_the_share_of_signs_that_reach_the_mean(values):
    # Sums within rounding of the border may fall on either side of it.
    values = [round(value, 1) for value in values]
    assert sign_flip_p_value(values) == p_value_by_counting(values)


@given(differences, st.floats(0.01, 100))
def test_p_value_knows_neither_the_side_nor_the_unit(values, unit):
    values = [round(value, 1) for value in values]
    expected = sign_flip_p_value(values)
    assert sign_flip_p_value([-value for value in values]) == expected
    assert sign_flip_p_value([unit * value for value in values]) == expected


def test_methods_that_never_differ_are_alike():
    assert sign_flip_p_value([0.0] * 8) == 1.0
    assert sign_flip_p_value([0.0] * 30) == 1.0


def test_few_pairs_have_no_p_value_because_none_could_be_small():
    assert sign_flip_p_value([1.0] * (MIN_PAIRS - 1)) is None
    assert 2 / 2 ** (MIN_PAIRS - 1) > 0.05 >= 2 / 2**MIN_PAIRS


def test_drawn_signs_agree_with_all_signs(monkeypatch):
    values = np.random.default_rng(3).normal(0.3, 1, 18).tolist()
    exact = sign_flip_p_value(values)
    monkeypatch.setattr("uniot.benchmark.significance._MOST_EXACT_PAIRS", 10)
    drawn = sign_flip_p_value(values)
    assert drawn != exact
    # Five standard errors of 100 000 draws.
    assert drawn == pytest.approx(exact, abs=5 * (exact * (1 - exact) / 100_000) ** 0.5)


def test_drawn_p_value_is_never_zero_and_repeats():
    values = [1.0] * 60
    assert sign_flip_p_value(values) == 1 / 100_001
    noisy = np.random.default_rng(0).normal(0.2, 1, 40).tolist()
    assert sign_flip_p_value(noisy) == sign_flip_p_value(noisy) != sign_flip_p_value(noisy, seed=1)


def test_few_of_the_p_values_of_equal_methods_are_small():
    generator = np.random.default_rng(0)
    p_values = [sign_flip_p_value(generator.normal(size=9).tolist()) for _ in range(2000)]
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.015)


def test_holm_multiplies_the_smallest_most():
    # 4 · 0.005 = 0.02; 3 · 0.01 = 0.03; 2 · 0.03 = 0.06; 0.04 rises to the one before.
    assert holm_corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_what_was_not_tested():
    assert holm_corrected([None, 0.02, None, 0.5]) == [None, 0.04, None, 0.5]
    assert holm_corrected([]) == []


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_holm_keeps_the_order_and_never_makes_a_p_value_smaller(p_values):
    corrected = holm_corrected(p_values)
    pairs = [(p, c) for p, c in zip(p_values, corrected, strict=True) if p is not None]
    assert all(p <= c <= 1 for p, c in pairs)
    in_order = [c for _, c in sorted(pairs)]
    assert in_order == sorted(in_order)
