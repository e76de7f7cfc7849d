"""A threshold meets a fraction as nearly as ties allow, and never rejects less when more is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.methods.decision import Calibration, Decision, Threshold, threshold_for

# Few different values, so that ties are frequent; and any values, zero included.
SHARES = st.lists(
    st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.floats(0, 1e6)),
    min_size=1,
    max_size=40,
).map(np.array)
PRIORS = st.floats(0, 1)


def n_rejected(shares: np.ndarray, threshold: Threshold | None) -> int:
    decision = Decision(torch.from_numpy(shares)[:, None], torch.from_numpy(shares >= 1)).by_threshold(threshold)
    assert torch.isfinite(decision.known_score).all()
    assert torch.equal(decision.known, decision.known_score >= 0.5)
    return int((~decision.known).sum())


@given(SHARES, PRIORS, PRIORS)
def test_a_larger_prior_never_rejects_fewer_samples(shares: np.ndarray, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert n_rejected(shares, threshold_for(shares, low, None)) <= n_rejected(shares, threshold_for(shares, high, None))


@given(st.permutations(np.geomspace(1e-30, 1e6, 20).tolist()), PRIORS)
def test_without_ties_the_fraction_is_met_to_half_a_sample(shares: list[float], prior: float) -> None:
    rejected = n_rejected(np.array(shares), threshold_for(np.array(shares), prior, None))
    assert abs(rejected - 20 * prior) <= 0.5 + 1e-9


@given(SHARES, PRIORS)
def test_no_threshold_is_nearer_to_the_prior(shares: np.ndarray, prior: float) -> None:
    rejected = n_rejected(shares, threshold_for(shares, prior, None))
    for value in shares[shares > 1e-100]:
        for other in (value * (1 - 1e-6), value * (1 + 1e-6)):
            # Values that nearly coincide are tied; a threshold between them is not on offer.
            if np.abs(shares / other - 1).min() > 1e-8:
                assert abs(rejected - len(shares) * prior) <= abs((shares < other).sum() - len(shares) * prior) + 1e-9


@pytest.mark.parametrize(("prior", "known"), [(0.0, True), (1.0, False)])
def test_nothing_or_everything_is_rejected_and_new_samples_are_no_exception(prior: float, known: bool) -> None:
    threshold = threshold_for(np.array([0.2, 1.5, 3.0]), prior, None)
    new = torch.tensor([[0.0, 0.0], [1e-9, 1e-12], [0.3, 0.1], [7.0, 9.0], [1e9, 1e8]], dtype=torch.float64)
    decision = Decision(new, new.max(dim=1).values >= 1).by_threshold(threshold)
    assert (decision.known == known).all()
    assert ((decision.known_score >= 0.5) == known).all()
    assert decision.nearest.tolist() == [0, 0, 0, 1, 0]
    assert ((decision.probabilities(Calibration()).argmax(dim=1) == 2) == (not known)).all()


def test_samples_that_are_tied_stay_together() -> None:
    shares = np.array([0.1] * 3 + [2.0] * 7)
    assert n_rejected(shares, threshold_for(shares, 0.2, None)) == 3
    assert n_rejected(shares, threshold_for(shares, 0.1, None)) == 0
    assert n_rejected(shares, threshold_for(shares, 0.7, None)) == 10


@given(SHARES)
def test_a_preference_halves_what_is_not_preferred_and_never_turns_round(shares: np.ndarray) -> None:
    by_rule = int((shares < 1 - 1e-9).sum())
    assert n_rejected(shares, threshold_for(shares, None, "known")) <= by_rule
    assert n_rejected(shares, threshold_for(shares, None, "unknown")) >= by_rule
    distinct = np.arange(1, 21) / 10
    assert n_rejected(distinct, threshold_for(distinct, None, "known")) == 4
    assert n_rejected(distinct, threshold_for(distinct, None, "unknown")) == 14


def test_preferring_known_does_not_raise_a_threshold_that_rejects_nothing() -> None:
    assert threshold_for(np.array([3.0, 4.0]), None, "known") == Threshold(1.0)
    assert threshold_for(np.array([0.1, 0.2]), None, "unknown") == Threshold(1.0)


def test_without_a_preference_the_rule_decides() -> None:
    shares = torch.tensor([[1 - 1e-12], [0.4]], dtype=torch.float64)
    decision = Decision(shares, torch.tensor([True, False]))
    assert threshold_for(shares[:, 0].numpy(), None, None) is None
    assert decision.by_threshold(None) is decision
