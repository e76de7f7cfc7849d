from __future__ import annotations

import math

import pytest
import torch

from uniot.losses import entropy


def test_entropy_worked_by_hand():
    # Softmax of (ln 3, 0) is (3/4, 1/4), of equal logits (1/2, 1/2).
    logits = torch.tensor([[math.log(3), 0.0], [7.0, 7.0]])
    expected = [-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), math.log(2)]
    assert entropy(logits).tolist() == pytest.approx(expected)


def test_sure_prediction_has_no_entropy_and_a_finite_gradient():
    logits = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    value = entropy(logits)
    value.sum().backward()
    assert float(value.detach()) == 0
    assert torch.isfinite(logits.grad).all()
