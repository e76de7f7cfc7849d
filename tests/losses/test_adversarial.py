"""Gradient reversal and the weighted domain loss, by hand. D = sigmoid(logit): ln 3 is 3/4, 0 is 1/2, -ln 3 is 1/4."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.losses import domain_loss, reversal_strength, reversed_gradient

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
SOURCE = torch.tensor([LN3, 0.0])  # -log D: ln 4 - ln 3, and ln 2
TARGET = torch.tensor([0.0, LN3, -LN3])  # -log(1 - D): ln 2, ln 4, and ln 4 - ln 3


def test_reversal_keeps_values_and_turns_the_gradient_round():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = reversed_gradient(x, 0.25)
    (y * torch.tensor([3.0, 4.0])).sum().backward()
    assert y.tolist() == [1, -2]
    assert x.grad.tolist() == [-0.75, -1.0]


def test_reversal_leaves_the_gradients_of_what_comes_after_it_alone():
    weight = torch.tensor([5.0], requires_grad=True)
    (reversed_gradient(torch.tensor([2.0], requires_grad=True), 0.5) * weight).sum().backward()
    assert weight.grad.tolist() == [2]


def test_reversal_of_no_strength_stops_the_gradient():
    x = torch.ones(3, requires_grad=True)
    reversed_gradient(x, 0.0).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


@given(st.integers(0, 10_000), st.integers(1, 10_000))
def test_strength_is_the_published_ramp(step, steps):
    published = 2 / (1 + math.exp(-10 * step / steps)) - 1 if step < 20 * steps else 1
    assert reversal_strength(step, steps) == pytest.approx(published, abs=1e-12)


def test_strength_begins_with_nothing_and_ends_near_one():
    assert reversal_strength(0, 1000) == 0
    assert 0.999 < reversal_strength(1000, 1000) < 1


def test_domain_loss_worked_by_hand():
    source = (LN4 - LN3 + LN2) / 2
    target = (LN2 + LN4 + LN4 - LN3) / 3
    assert float(domain_loss(SOURCE, TARGET)) == pytest.approx((source + target) / 2)


def test_weights_multiply_samples_and_the_mean_stays_over_samples():
    source = (2 * (LN4 - LN3) + 0.5 * LN2) / 2
    target = (0 * LN2 + 1 * LN4 + 3 * (LN4 - LN3)) / 3
    loss = domain_loss(SOURCE, TARGET, torch.tensor([2.0, 0.5]), torch.tensor([0.0, 1.0, 3.0]))
    assert float(loss) == pytest.approx((source + target) / 2)


def test_weights_of_one_domain_leave_the_other_as_it_is():
    only_source = domain_loss(SOURCE, TARGET, source_weights=torch.zeros(2))
    only_target = domain_loss(SOURCE, TARGET, target_weights=torch.zeros(3))
    assert float(only_source + only_target) == pytest.approx(float(domain_loss(SOURCE, TARGET)))


def test_weights_are_constants_for_the_gradient():
    weights = torch.ones(2, requires_grad=True)
    logits = SOURCE.clone().requires_grad_()
    domain_loss(logits, TARGET, source_weights=weights).backward()
    assert weights.grad is None
    # d/dx -log sigmoid(x) = sigmoid(x) - 1, each a quarter of the loss.
    assert logits.grad.tolist() == pytest.approx([(0.75 - 1) / 4, (0.5 - 1) / 4])


def test_discriminator_that_is_very_sure_and_wrong_costs_much_but_not_infinity():
    loss = domain_loss(torch.tensor([-1000.0]), torch.tensor([1000.0]))
    assert float(loss) == 1000
