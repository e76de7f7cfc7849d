from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.losses import unknown_boundary_loss

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)


def test_loss_worked_by_hand():
    # Softmax of (0, 0, ln 2) is (1/4, 1/4, 1/2) and of (0, ln 2, 0) is (1/4, 1/2, 1/4): unknown has 1/2 and 1/4.
    # t = 1/2: (ln 2 + ln 2)/2, and (ln 4 + ln 4/3)/2 = ln 4 - ln 3 / 2.
    logits = torch.tensor([[0.0, 0.0, LN2], [0.0, LN2, 0.0]])
    assert float(unknown_boundary_loss(logits)) == pytest.approx((LN2 + LN4 - LN3 / 2) / 2)


def test_boundary_weighs_unknown_against_known():
    # Unknown has 1/4: ln 4 with weight t, ln 4/3 with the rest.
    logits = torch.tensor([[0.0, LN2, 0.0]])
    assert float(unknown_boundary_loss(logits, 0.2)) == pytest.approx(0.2 * LN4 + 0.8 * (LN4 - LN3))


@given(boundary=st.floats(0.05, 0.95), logit=st.floats(-20, 20))
def test_no_prediction_costs_less_than_the_boundary_itself(boundary, logit):
    at_boundary = math.log(boundary / (1 - boundary))
    best = unknown_boundary_loss(torch.tensor([[0.0, at_boundary]], dtype=torch.float64), boundary)
    other = unknown_boundary_loss(torch.tensor([[0.0, logit]], dtype=torch.float64), boundary)
    assert float(other) >= float(best) - 1e-12


def test_extreme_logits_have_a_finite_loss_and_finite_gradients():
    logits = torch.tensor([[0.0, 0.0, 300.0], [0.0, 300.0, 0.0]], requires_grad=True)
    loss = unknown_boundary_loss(logits)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert bool(torch.isfinite(logits.grad).all())
