"""The unbalanced plan of JUMBOT by hand and beside POT, and one step with it."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.errors import DataError
from uniot.losses import joint_cost
from uniot.methods.base import Batch
from uniot.methods.jumbot import JUMBOT, JUMBOTOptions, soft_plan


def random_cost(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 2 * 3


def by_hand(**options) -> JUMBOT:
    """Features are the inputs, and logits are the features."""
    method = JUMBOT(2, 2, Settings.checked(feature_size=2, steps=10), JUMBOTOptions(**options))
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    return method


@pytest.mark.parametrize(("cost", "epsilon", "penalty"), [(0.3, 0.1, 0.5), (2.0, 0.01, 0.5), (0.0, 1.0, 1.0)])
def test_mass_of_a_single_pair_decays_with_its_cost(cost, epsilon, penalty):
    # π M + ε (π ln π - π) + 2 τ (π ln π - π + 1) is smallest at M + (ε + 2 τ) ln π = 0.
    found = soft_plan(torch.tensor([[cost]], dtype=torch.float64), epsilon, penalty)
    assert float(found) == pytest.approx(math.exp(-cost / (epsilon + 2 * penalty)), rel=1e-5)


def test_two_pairs_that_exclude_each_other_worked_by_hand():
    # Off the diagonal the cost is prohibitive, so p on the diagonal is also the mass of its row and column:
    # ε ln p + 2 τ ln(p / ½) = 0. With ε = 1 and τ = ½ that is 2 ln p = -ln 2.
    found = soft_plan(torch.tensor([[0.0, 1e3], [1e3, 0.0]], dtype=torch.float64), 1.0, 0.5)
    assert found.numpy() == pytest.approx(np.eye(2) / math.sqrt(2), abs=1e-6)


@pytest.mark.filterwarnings("ignore:If reg_type = entropy:UserWarning")
@pytest.mark.parametrize(("rows", "columns"), [(36, 36), (36, 20), (5, 9)])
@pytest.mark.parametrize(("epsilon", "penalty"), [(0.01, 0.5), (0.01, 0.06), (0.1, 1.0)])
def test_plan_is_that_of_pot_when_it_has_converged(rows, columns, epsilon, penalty):
    cost = random_cost(rows, columns)
    # POT's stop rule is absolute; a fixed number of iterations is sure to converge.
    expected = ot.unbalanced.sinkhorn_unbalanced(
        np.full(rows, 1 / rows),
        np.full(columns, 1 / columns),
        cost.numpy(),
        epsilon,
        penalty,
        reg_type="entropy",
        numItermax=1500,
        stopThr=0,
    )
    found = soft_plan(cost, epsilon, penalty)
    assert found.numpy() == pytest.approx(expected, abs=1e-6 * expected.max())


def test_sample_without_a_counterpart_is_moved_less():
    cost = torch.tensor([[0.1, 2.0, 3.0], [2.0, 0.1, 3.0], [2.0, 2.0, 3.0]])
    received = soft_plan(cost).sum(dim=0)
    assert received[2] < 0.1 * received[0]
    # A large penalty is the balanced problem, in which everything is moved.
    assert soft_plan(cost, 0.01, 1e3).sum(dim=0).numpy() == pytest.approx(np.full(3, 1 / 3), rel=0.01)


def test_cost_that_is_no_number_is_an_error_and_not_a_plan():
    with pytest.raises(DataError, match="cost holds nan"):
        soft_plan(torch.tensor([[0.0, math.nan], [1.0, 0.0]]))


def test_losses_of_a_step_worked_by_hand():
    # One sample of each domain: f_s = (ln 3, 0) with label 0, and f_t = (0, 0), at a distance of (ln 3)² and with
    # probability 1/2 of class 0. M = 0.5 (ln 3)² + 2 ln 2, and the plan is exp(-M / (ε + 2 τ)).
    ln3 = math.log(3)
    method = by_hand(feature_weight=0.5, label_weight=2.0, epsilon=0.5, marginal_penalty=1.0)
    batch = Batch(
        source=torch.tensor([[ln3, 0.0]]),
        source_labels=torch.tensor([0]),
        target=torch.zeros(1, 2),
        target_ids=torch.tensor([0]),
        step=0,
        generator=torch.Generator(),
    )
    losses = method.step(batch)
    cost = 0.5 * ln3**2 + 2 * math.log(2)
    assert float(losses.parts["source"].detach()) == pytest.approx(math.log(4 / 3), rel=1e-5)
    assert float(losses.parts["transport"].detach()) == pytest.approx(math.exp(-cost / 2.5) * cost, rel=1e-5)
    assert float(losses.total.detach()) == pytest.approx(math.log(4 / 3) + math.exp(-cost / 2.5) * cost, rel=1e-5)


def test_gradients_flow_through_the_cost_and_not_through_the_plan():
    method = by_hand(feature_weight=0.5, label_weight=1.0)
    generator = torch.Generator().manual_seed(0)
    source, labels = torch.randn(4, 2, generator=generator), torch.tensor([0, 1, 0, 1])
    target = torch.randn(5, 2, generator=generator, requires_grad=True)
    method.transport_losses(source, target, labels).parts["transport"].backward()
    # By hand, with p_j the prediction: d/df_j = Σ_i π_ij (2 α (f_j - f_i) + λ (p_j - onehot(y_i))).
    with torch.no_grad():
        plan = soft_plan(joint_cost(source, target, labels, target, 0.5, 1.0))
        pulls = (target[None] - source[:, None]) + (target.softmax(dim=1)[None] - F.one_hot(labels)[:, None])
        expected = (plan[..., None] * pulls).sum(dim=0)
    assert target.grad.numpy() == pytest.approx(expected.numpy(), abs=1e-6)


def test_unknown_is_entropy_above_half_of_its_maximum():
    # H(p) = ln(2)/2 if the larger of two probabilities is 0.8900: a logit of 2.0907.
    decision = by_hand().decide(torch.tensor([[2.08, 0.0], [2.10, 0.0], [0.0, 2.10]]))
    assert decision.known.tolist() == [False, True, True]
    assert decision.nearest.tolist() == [0, 0, 1]


def test_a_batch_in_which_every_cost_is_huge_has_an_empty_plan():
    assert torch.equal(soft_plan(torch.full((3, 4), 2000.0), epsilon=0.01, marginal_penalty=0.5), torch.zeros(3, 4))
