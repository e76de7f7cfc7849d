"""Estimates of the private share: by hand, on the arrays of the authors' code, and on mixtures that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiers import examples
from uniot.errors import DataError
from uniot.rejection import (
    best_bin_share,
    bootstrap_interval,
    class_shares,
    dedpul_share,
    fit_double_tilt,
    pulse_share,
)
from uniot.rejection.private_share import density_ratios, resampled

# What top_bin_estimator, BBE_estimate_multiclass, estimate_diff and dedpul of acmi-lab/Open-Set-Label-Shift
# (src/core_utils.py and src/MPE_methods/dedpul.py, commit 7ef682a) return for the arrays of `arrays`; pandas 2.3.3, for
# which a keyword that it no longer has was taken out, and SciPy 1.17.1. Theirs are shares of common samples.
OFFICIAL = {
    (200, 300, 0.4, 0): {
        "best bin": (0.6224677716390423, 0.4686575393595703, 0.7762780039185144),
        "ratios": (2.5141659409222785, 2.5141659409222785, 2.5141659409222785, 2.5141659409222785),
        "mean ratio": 1.3901543642171879,
        "dedpul": 0.6300033755486407,
    },
    (150, 120, 0.0, 1): {
        "best bin": (0.8463541666666666, 0.553520138316187, 1.1391881950171463),
        "ratios": (2.1242874655513138, 2.1242874655513138, 2.1242874655513138, 0.6806499099201945),
        "mean ratio": 1.487910015236855,
        "dedpul": 0.8202733232474033,
    },
    (120, 150, 0.9, 2): {
        "best bin": (0.12427184466019417, -0.09407430463414435, 0.3426179939545325),
        "ratios": (5.010158244873556, 5.010158244873556, 0.06559269985116407, 2.7671087163574436e-09),
        "mean ratio": 0.6512730798399309,
        "dedpul": 0.13752735483772693,
    },
}
OFFICIAL_CLASSES = (0.525, 0.2875, 0.06696428571428571, 0.1205357142857143)


def arrays(n_source: int, n_target: int, private: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of the source, of a sample from it and of a mixture with a private part."""
    random, n_private = np.random.default_rng(seed), int(private * n_target)
    source = random.beta(6, 2, n_source)
    return source, np.concatenate([random.beta(6, 2, n_target - n_private), random.beta(2, 6, n_private)])


@pytest.mark.parametrize("case", OFFICIAL)
def test_best_bin_is_that_of_the_authors(case):
    share, low, high = OFFICIAL[case]["best bin"]
    found = best_bin_share(*arrays(*case))
    assert found.share == pytest.approx(1 - share, abs=1e-5)
    # Theirs may exceed the range of a share.
    assert (found.low, found.high) == pytest.approx((max(1 - high, 0), min(1 - low, 1)), abs=1e-5)


@pytest.mark.parametrize("case", OFFICIAL)
def test_dedpul_is_that_of_the_authors(case):
    source, target = arrays(*case)
    ratios = density_ratios(source, target)
    assert ratios[[0, 10, 50, 100]] == pytest.approx(OFFICIAL[case]["ratios"], abs=1e-5)
    assert ratios.mean() == pytest.approx(OFFICIAL[case]["mean ratio"], abs=1e-5)
    assert dedpul_share(source, target) == pytest.approx(1 - OFFICIAL[case]["dedpul"], abs=1e-5)


def test_shares_of_classes_are_those_of_the_authors():
    random = np.random.default_rng(3)
    source, labels = random.dirichlet([1, 1, 1], 90), random.permutation(np.repeat([0, 1, 2], 30))
    source[np.arange(90), labels] += 1
    target = random.dirichlet([1, 1, 1], 80)
    target[:30, 0] += 1
    target[30:50, 1] += 1
    source, target = (rows / rows.sum(axis=1, keepdims=True) for rows in (source, target))
    assert class_shares(source, labels, target) == pytest.approx(OFFICIAL_CLASSES, abs=1e-5)


def test_best_bin_worked_by_hand():
    # Source scores 0.9 (four times); eight target samples, of which four are at 0.95 … 0.92 and four at 0.1 … 0.4.
    source, target = np.full(4, 0.9), np.array([0.95, 0.94, 0.93, 0.92, 0.4, 0.3, 0.2, 0.1])
    # No source sample reaches the first four edges. At 0.4 all four do: four target samples lie above it, so
    # 4 · 4 / (4 · 8) = 1/2 is common, and further edges only add samples. The bound is the same for all of them.
    found = best_bin_share(source, target, level=0.9)
    margin = math.sqrt(math.log(10) / 2) * (1 / 2 + 1 / math.sqrt(8)) * 1.01
    assert found.share == pytest.approx(0.5)
    assert (found.low, found.high) == (max(0.5 - margin, 0), min(0.5 + margin, 1))
    many = best_bin_share(np.repeat(source, 900), np.repeat(target, 900) + np.tile(np.arange(900) * 1e-9, 8))
    assert many.high - many.low == pytest.approx(2 * margin / 30, rel=0.01)


def test_a_higher_level_has_a_wider_interval_and_the_same_kind_of_estimate():
    scores = arrays(2000, 2000, 0.4, 5)
    narrow, wide = best_bin_share(*scores, level=0.5), best_bin_share(*scores, level=0.99)
    assert wide.low < narrow.low <= narrow.share <= narrow.high < wide.high
    assert narrow.share == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_share_of_a_separated_mixture_is_found(share):
    random = np.random.default_rng(0)
    source, target = random.beta(8, 2, 800), random.beta(8, 2, 800)
    target[: int(800 * share)] = random.beta(2, 20, int(800 * share))
    found = best_bin_share(source, target)
    assert found.low <= share <= found.high
    # With nothing private, both estimates are too large: shares have no negative errors.
    assert found.share == pytest.approx(share, abs=0.15)
    assert dedpul_share(source, target) == pytest.approx(share, abs=0.15)


@examples(40)
@given(st.integers(0, 10_000), st.integers(3, 40), st.integers(3, 40), st.floats(0, 1), st.booleans())
def test_every_estimate_is_a_share_within_its_interval(seed, n_source, n_target, private, rounded):
    source, target = arrays(n_source, n_target, private, seed)
    if rounded:
        source, target = source.round(1), target.round(1)
    found = best_bin_share(source, target)
    assert 0 <= found.low <= found.share <= found.high <= 1
    assert 0 <= dedpul_share(source, target) <= 1
    tilted = fit_double_tilt(source, target)
    assert 0 <= tilted.share <= 1
    assert tilted.share == pytest.approx(tilted.private_probability.mean())
    assert np.isfinite(tilted.tilts).all()


@examples(20)
@given(st.integers(0, 10_000))
def test_best_bin_depends_on_the_order_of_the_scores_alone(seed):
    source, target = arrays(60, 50, 0.5, seed)
    assert best_bin_share(source**3, target**3) == best_bin_share(source, target)


def test_one_tilt_of_a_normal_source_is_its_shift():
    # N(2, 1) is N(0, 1) tilted by exp(2 x - 2).
    random = np.random.default_rng(1)
    source = random.normal(size=4000)
    target = np.concatenate([random.normal(size=2000), random.normal(2, 1, 2000)])
    found = fit_double_tilt(source, target, common_moves=False)
    assert found.share == pytest.approx(0.5, abs=0.06)
    assert found.tilts[0].tolist() == [0]
    assert found.tilts[1, 0] == pytest.approx(2, abs=0.3)
    # Each probability is that of Bayes' rule.
    log_odds = math.log(found.share / (1 - found.share)) + 2 * target - 2
    assert found.private_probability == pytest.approx(1 / (1 + np.exp(-log_odds)), abs=0.15)


def test_double_tilt_lets_common_samples_move_and_the_part_that_moves_more_is_private():
    random = np.random.default_rng(2)
    source = np.concatenate([random.normal(size=(2000, 2)), random.normal((4, 0), 1, (2000, 2))])
    # Common samples moved by 0.4 along the second axis; 40 % are a third group, 3 along it.
    common = np.concatenate([random.normal((0, 0.4), 1, (1200, 2)), random.normal((4, 0.4), 1, (1200, 2))])
    target = np.concatenate([common, random.normal((2, 3), 1, (1600, 2))])
    found = fit_double_tilt(source, target)
    assert found.share == pytest.approx(0.4, abs=0.1)
    assert found.tilts[0, 1] == pytest.approx(0.4, abs=0.3)
    assert found.tilts[1, 1] > 2
    fixed = fit_double_tilt(source, target, common_moves=False)
    assert fixed.log_likelihood < found.log_likelihood


def test_pulse_finds_private_samples_and_a_rare_class():
    random, means = np.random.default_rng(3), 6 * np.eye(4)
    labels = np.repeat([0, 1, 2], 150)
    source = means[labels] + random.normal(size=(450, 4))
    of_target = np.repeat([0, 1, 3], [200, 60, 140])
    target = means[of_target] + random.normal(size=(400, 4))
    found = pulse_share(source, labels, target, np.random.default_rng(0))
    assert found.low <= 0.35 <= found.high
    assert found.share == pytest.approx(0.35, abs=0.12)


def test_drawn_source_has_the_shares_of_its_classes():
    labels = np.repeat([0, 1, 2], 20)
    drawn = resampled(labels, np.array([0.5, 0.0, 0.25]), np.random.default_rng(0))
    assert np.bincount(labels[drawn], minlength=3).tolist() == [40, 0, 20]
    # A class without samples cannot be drawn, and shares of nothing leave the source as it is.
    assert np.bincount(labels[resampled(labels, np.array([0.5, 0, 0, 0.5]), np.random.default_rng(0))]).tolist() == [60]
    assert resampled(labels, np.zeros(3), np.random.default_rng(0)).tolist() == list(range(60))
    # Rounding down would leave nothing.
    assert len(resampled(np.arange(3), np.full(3, 1 / 3), np.random.default_rng(0))) >= 1


def test_one_class_is_enough_and_an_absent_class_has_no_share():
    random = np.random.default_rng(4)
    source, target = random.normal(size=(60, 2)), random.normal((5, 0), 1, (60, 2))
    assert pulse_share(source, np.zeros(60, dtype=int), target, random).share > 0.8
    probabilities = np.column_stack([random.beta(6, 2, 60), np.zeros(60)])
    assert class_shares(probabilities, np.zeros(60, dtype=int), probabilities)[1] == 0


def test_equal_scores_say_nothing_and_are_no_error():
    equal, one = np.full(9, 0.5), np.array([0.5])
    assert best_bin_share(equal, equal) == best_bin_share(one, one)
    assert (best_bin_share(one, one).low, best_bin_share(one, one).high) == (0, 1)
    assert dedpul_share(equal, equal) == 0
    assert np.isfinite(fit_double_tilt(equal, equal).share)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: best_bin_share(np.zeros(0), np.ones(3)), "the source has no samples. Give the scores"),
        (lambda: best_bin_share(np.ones(3), np.array([1, np.nan])), "the target has scores that are no numbers"),
        (lambda: best_bin_share(np.ones(3), np.ones(3), level=1.0), "the level is 1.0. Give a probability"),
        (lambda: dedpul_share(np.array([0.1, 2]), np.array([0.1, 0.2])), "scores are outside of 0 to 1. Give prob"),
        (lambda: fit_double_tilt(np.ones(3), np.zeros(0)), "the target has no samples"),
        (
            lambda: pulse_share(np.ones((3, 2)), np.zeros(3, int), np.ones((9, 2)), np.random.default_rng(0)),
            "source and target have 3 and 9 samples. Give four of each",
        ),
    ],
)
def test_what_cannot_be_estimated_from_is_an_error_with_words(call, words):
    with pytest.raises(DataError, match=words):
        call()


def test_bootstrap_interval_is_that_of_the_estimates():
    # The mean of 400 samples of 0 and 1 has a standard deviation of 0.025; 90 % lie within 1.645 of them.
    target = np.repeat([0.0, 1.0], 200)
    low, high = bootstrap_interval(
        lambda _, drawn: float(drawn.mean()), np.ones(1), target, np.random.default_rng(0), level=0.9, samples=400
    )
    assert (low, high) == pytest.approx((0.5 - 0.041, 0.5 + 0.041), abs=0.008)
