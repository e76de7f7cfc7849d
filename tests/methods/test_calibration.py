"""Probabilities of answers: what they sum to, where they are one half, and that they follow the estimated accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from uniot.methods.decision import Calibration, Decision, Threshold, fit_calibration

SHARES = st.lists(
    st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-9, 1e9)), min_size=3, max_size=3), min_size=1
)
EXPONENTS = st.floats(0.1, 10)


def decided(shares) -> Decision:
    values = torch.tensor(shares, dtype=torch.float64)
    return Decision(values, values.max(dim=1).values >= 1)


@given(shares=SHARES, known=EXPONENTS, unknown=EXPONENTS)
@example(shares=[[1.0, 244.0, 244.0]], known=1.0, unknown=1.0)
@settings(deadline=None)
def test_the_largest_probability_is_the_answers_and_its_confidence(shares, known, unknown):
    decision, calibration = decided(shares), Calibration(known, unknown)
    found = decision.probabilities(calibration)
    np.testing.assert_allclose(found.sum(dim=1), 1)
    assert (found >= -1e-12).all()
    assert torch.equal(found.argmax(dim=1), torch.where(decision.known, decision.nearest, 3))
    assert torch.equal(found.max(dim=1).values, decision.confidence(calibration))


@given(known=EXPONENTS, unknown=EXPONENTS)
@settings(deadline=None)
def test_confidence_is_one_half_at_the_threshold_and_rises_away_from_it(known, unknown):
    alone = [[share, 0.0] for share in (1e-6, 0.1, 0.9, 1 - 1e-12, 1.0, 1.1, 10.0, 1e6)]
    confidence = decided(alone).confidence(Calibration(known, unknown)).numpy()
    np.testing.assert_allclose(confidence[[3, 4]], 0.5, atol=1e-8)
    assert (np.diff(confidence[:4]) < 0).all()
    assert (np.diff(confidence[4:]) >= 0).all()


def test_surely_unknown_has_a_high_confidence_and_two_equal_classes_a_low_one():
    confidence = decided([[1e-4, 0.0], [99.0, 0.0], [99.0, 99.0]]).confidence(Calibration())
    assert confidence.tolist() == pytest.approx([1 / 1.0001, 0.99, 0.495])


def test_known_sample_below_the_threshold_by_a_rounding_keeps_its_class():
    shares = torch.tensor([[1 - 1e-7, 0.5]], dtype=torch.float64)
    found = Decision(shares, torch.tensor([True])).probabilities(Calibration())
    assert found.argmax(dim=1).tolist() == [0]


@pytest.mark.parametrize(("of_known", "of_unknown"), [(0.7, 0.6), (0.9, 0.95), (0.55, 0.9)])
def test_mean_confidence_is_the_estimated_accuracy(of_known, of_unknown):
    generator = torch.Generator().manual_seed(0)
    shares = torch.randn(400, 4, generator=generator, dtype=torch.float64).mul(2).sub(2).exp()
    decision = Decision(shares, shares.max(dim=1).values >= 1)
    calibration = fit_calibration(shares, decision.known, of_known, of_unknown)
    confidence = decision.confidence(calibration)
    assert float(confidence[decision.known].mean()) == pytest.approx(of_known, abs=1e-6)
    assert float(confidence[~decision.known].mean()) == pytest.approx(of_unknown, abs=1e-6)


def test_without_an_estimate_the_odds_stay_as_they_are():
    decision = decided([[2.0, 0.0], [0.5, 0.0]])
    assert fit_calibration(decision.odds, decision.known, None, None) == Calibration(1.0, 1.0)
    assert fit_calibration(decision.odds[:0], decision.known[:0], 0.7, 0.7) == Calibration(1.0, 1.0)


@given(border=st.floats(0.05, 0.95), score=st.floats(0, 1))
@settings(deadline=None)
def test_score_of_any_method_becomes_a_probability_from_0_to_1_with_one_half_at_its_threshold(border, score):
    scores = torch.tensor([0.0, score, border, 1.0])
    found = Decision.of(torch.tensor([[0.8, 0.2]] * 4), scores, border).known_score
    expected = score / border / 2 if score < border else 1 - (1 - score) / (1 - border) / 2
    assert found.tolist() == pytest.approx([0, expected, 0.5, 1], abs=2e-6)


def test_preference_moves_one_half_to_its_threshold():
    shares = [[0.5, 0.0], [4.0, 0.0]]
    confidence = decided(shares).by_threshold(Threshold(4.0)).confidence(Calibration())
    assert confidence.tolist() == pytest.approx([1 / 1.125, 0.5])
