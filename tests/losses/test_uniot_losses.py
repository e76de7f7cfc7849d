"""Numbers worked by hand. ln 2 = 0.693…, ln 3 = 1.098…, ln 4 = 1.386…"""

from __future__ import annotations

import math

import pytest
import torch

from uniot.losses import code_loss, common_class_detection_loss, private_class_discovery_loss, swapped_code_loss

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)

# Softmax of a row (ln a, ln b) is (a, b) / (a + b).
LOGITS = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # (3/4, 1/4) and (1/2, 1/2)
NEIGHBOURS = torch.tensor([[0.0, 0.0], [0.0, LN3]])  # (1/2, 1/2) and (1/4, 3/4)


def naive_cross_entropy(logits, codes) -> float:
    total = 0.0
    for row, code in zip(logits.tolist(), codes.tolist(), strict=True):
        normaliser = math.log(sum(math.exp(x) for x in row))
        total += sum(q * (normaliser - x) for q, x in zip(code, row, strict=True))
    return total / len(logits)


def test_common_class_loss_worked_by_hand():
    # Rows 0 and 1 are detected, as classes 0 and 1: −ln 3/4 and −ln 1/2. Row 2 does not count.
    logits = torch.cat([LOGITS, torch.tensor([[50.0, -50.0]])])
    loss = common_class_detection_loss(logits, torch.tensor([0, 1, 1]), torch.tensor([True, True, False]))
    assert float(loss) == pytest.approx(((LN4 - LN3) + LN2) / 2)


def test_common_class_loss_is_the_mean_over_detected_rows_not_over_the_batch():
    loss = common_class_detection_loss(LOGITS, torch.tensor([1, 0]), torch.tensor([True, False]))
    assert float(loss) == pytest.approx(LN4)


def test_none_detected_gives_zero_and_zero_gradients_not_nan():
    logits = LOGITS.clone().requires_grad_()
    loss = common_class_detection_loss(logits, torch.tensor([0, 1]), torch.tensor([False, False]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad.tolist() == [[0, 0], [0, 0]]


def test_code_loss_worked_by_hand():
    # Row 0 has code (1, 0): −ln 3/4 = ln 4 − ln 3. Row 1 has code (1/2, 1/2): ln 2. Their mean.
    codes = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert float(code_loss(LOGITS, codes)) == pytest.approx((LN4 - LN3 + LN2) / 2)


def test_swapped_code_loss_worked_by_hand():
    # Codes (1, 0), (0, 1); the neighbours' codes (0, 1), (0, 1).
    # Anchors predict the neighbours' codes: row 0 −ln 1/4 = ln 4, row 1 −ln 1/2 = ln 2; mean (ln 4 + ln 2)/2.
    # Neighbours predict the anchors' codes: row 0 −ln 1/2 = ln 2, row 1 −ln 3/4; mean (ln 2 + ln 4 − ln 3)/2.
    codes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    neighbour_codes = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    expected = ((LN4 + LN2) / 2 + (LN2 + LN4 - LN3) / 2) / 2
    assert float(swapped_code_loss(LOGITS, NEIGHBOURS, codes, neighbour_codes)) == pytest.approx(expected)


def test_swapping_roles_of_anchor_and_neighbour_changes_nothing():
    codes, neighbour_codes = torch.rand(2, 2).softmax(1), torch.rand(2, 2).softmax(1)
    one = swapped_code_loss(LOGITS, NEIGHBOURS, codes, neighbour_codes)
    other = swapped_code_loss(NEIGHBOURS, LOGITS, neighbour_codes, codes)
    assert float(one) == pytest.approx(float(other))


def test_private_class_loss_is_the_mean_of_global_and_local_worked_by_hand():
    # Global: row 0 −ln 3/4, row 1 −ln 1/2. Local as in the test above.
    codes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    neighbour_codes = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    of_all = (LN4 - LN3 + LN2) / 2
    of_pairs = ((LN4 + LN2) / 2 + (LN2 + LN4 - LN3) / 2) / 2
    loss = private_class_discovery_loss(LOGITS, NEIGHBOURS, codes, neighbour_codes)
    assert float(loss) == pytest.approx((of_all + of_pairs) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_private_class_loss_is_that_of_a_sum_sample_by_sample(seed):
    generator = torch.Generator().manual_seed(seed)
    logits, neighbours = (torch.randn(9, 5, generator=generator) * 4 for _ in range(2))
    codes, neighbour_codes = (torch.randn(9, 5, generator=generator).softmax(1) for _ in range(2))
    of_pairs = (naive_cross_entropy(logits, neighbour_codes) + naive_cross_entropy(neighbours, codes)) / 2
    expected = (naive_cross_entropy(logits, codes) + of_pairs) / 2
    assert float(private_class_discovery_loss(logits, neighbours, codes, neighbour_codes)) == pytest.approx(
        expected, rel=1e-5
    )


def test_codes_carry_no_gradient():
    codes = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    neighbour_codes = codes.detach().clone().requires_grad_()
    logits = LOGITS.clone().requires_grad_()
    private_class_discovery_loss(logits, NEIGHBOURS, codes, neighbour_codes).backward()
    assert codes.grad is None
    assert neighbour_codes.grad is None
    assert logits.grad is not None


def test_uniform_prediction_of_k_clusters_costs_log_k_whatever_the_codes():
    codes = torch.rand(6, 8).softmax(1)
    loss = private_class_discovery_loss(torch.zeros(6, 8), torch.zeros(6, 8), codes, codes.flip(0))
    assert float(loss) == pytest.approx(math.log(8), rel=1e-6)
