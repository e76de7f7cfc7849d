"""Numbers worked by hand: logits that differ by ln 3 claim with 3/4, by -ln 3 with 1/4, and equal ones with 1/2."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.losses import one_vs_all_entropy, one_vs_all_loss, one_vs_all_probabilities

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)


def logits_of(*evidence: list[float]) -> torch.Tensor:
    """Logits whose differences are these; their sum does not matter."""
    rows = torch.tensor(evidence)
    return torch.stack([torch.full_like(rows, 5.0), rows + 5], dim=1)


def test_classifier_claims_what_has_the_larger_second_logit():
    assert one_vs_all_probabilities(logits_of([LN3, -LN3, 0.0])).tolist() == [pytest.approx([3 / 4, 1 / 4, 1 / 2])]


def test_loss_of_own_class_and_of_the_most_tempted_other_worked_by_hand():
    # Sample 0 is of class 0: claimed with 3/4. The others claim it with 1/4 and 1/2: the second costs more, ln 2.
    # Sample 1 is of class 2: claimed with 1/4. The others claim it with 3/4 and 1/2: the first costs more, ln 4.
    claimed, refused = one_vs_all_loss(logits_of([LN3, -LN3, 0.0], [LN3, 0.0, -LN3]), torch.tensor([0, 2]))
    assert float(claimed) == pytest.approx(((LN4 - LN3) + LN4) / 2)
    assert float(refused) == pytest.approx((LN2 + LN4) / 2)


def test_only_the_own_and_the_most_tempted_classifier_learn_from_a_sample():
    logits = logits_of([LN3, -LN3, 0.0, -2.0]).requires_grad_()
    sum(one_vs_all_loss(logits, torch.tensor([0]))).backward()
    assert (logits.grad.abs().sum(dim=1)[0] > 0).tolist() == [True, False, True, False]


def test_single_class_has_nobody_to_refuse():
    claimed, refused = one_vs_all_loss(logits_of([0.0]), torch.tensor([0]))
    assert float(claimed) == pytest.approx(LN2)
    assert float(refused) == 0


def test_entropy_is_the_mean_over_samples_and_classifiers_worked_by_hand():
    # Of (3/4, 1/4): 3/4 (ln 4 - ln 3) + 1/4 ln 4 = ln 4 - 3/4 ln 3. Of (1/2, 1/2): ln 2.
    entropy = one_vs_all_entropy(logits_of([LN3, -LN3], [0.0, 0.0]))
    assert float(entropy) == pytest.approx((2 * (LN4 - 0.75 * LN3) + 2 * LN2) / 4)


@given(evidence=st.floats(-500, 500))
def test_losses_of_extreme_logits_are_finite_and_have_finite_gradients(evidence):
    logits = logits_of([evidence, -evidence]).requires_grad_()
    total = sum(one_vs_all_loss(logits, torch.tensor([0]))) + one_vs_all_entropy(logits)
    total.backward()
    assert math.isfinite(float(total.detach()))
    assert bool(torch.isfinite(logits.grad).all())
