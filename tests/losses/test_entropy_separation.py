from __future__ import annotations

import math

import pytest
import torch

from uniot.losses import entropy_separation_loss

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
# Of four classes ρ = ln 4 / 2 = ln 2. Entropies: 0, ln 4, and ln 2 (two classes as likely as each other).
SURE, UNSURE, BETWEEN = [0.0, -100.0, -100.0, -100.0], [0.0] * 4, [0.0, 0.0, -100.0, -100.0]


def test_sure_and_unsure_predictions_count_by_their_distance_from_the_border_worked_by_hand():
    # |0 - ln 2| = |ln 4 - ln 2| = ln 2 = 0.69 is above the margin; |ln 2 - ln 2| = 0 is not.
    loss = entropy_separation_loss(torch.tensor([SURE, UNSURE, BETWEEN]), margin=0.5)
    assert float(loss) == pytest.approx(-(LN2 + LN2 + 0) / 3)


def test_nothing_counts_within_the_margin():
    assert float(entropy_separation_loss(torch.tensor([SURE, UNSURE]), margin=0.7)) == 0


@pytest.mark.parametrize(("logit", "direction"), [(3.0, 1), (0.1, -1)])
def test_sure_predictions_become_surer_and_unsure_ones_less_sure(logit, direction):
    logits = torch.tensor([[logit, 0.0, 0.0, 0.0]], requires_grad=True)
    entropy_separation_loss(logits, margin=0.1).backward()
    assert float(-logits.grad[0, 0]) * direction > 0


def test_prediction_within_the_margin_is_left_alone():
    logits = torch.tensor([BETWEEN], requires_grad=True)
    entropy_separation_loss(logits, margin=0.5).backward()
    assert logits.grad.abs().max() == 0
