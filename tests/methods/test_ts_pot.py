"""The partial plan of TS-POT by hand, and the batches that one plan joins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.errors import DataError
from uniot.losses import joint_cost
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.deepjdot import exact_plan
from uniot.methods.ts_pot import TSPOT, TSPOTOptions, exact_partial_plan

D, C, SIZE = 3, 2, 4
SETTINGS = Settings.checked(feature_size=5, steps=10, batch_size=SIZE)


def build(backbone: torch.nn.Module | None = None, **options) -> TSPOT:
    torch.manual_seed(0)
    return TSPOT(D, C, SETTINGS, TSPOTOptions(**options), backbone)


def batch_at(step: int) -> Batch:
    generator = torch.Generator().manual_seed(step)
    return Batch(
        source=torch.randn(SIZE, D, generator=generator),
        source_labels=torch.randint(C, (SIZE,), generator=generator),
        target=torch.randn(SIZE, D, generator=generator),
        target_ids=torch.arange(SIZE) + SIZE * step,
        step=step,
        generator=generator,
    )


COST = torch.tensor([[1.0, 9.0], [9.0, 2.0]])


@pytest.mark.parametrize(
    ("mass", "expected"),
    [
        # Each sample has mass ½. The pair that costs 1 is moved first, then the one that costs 2.
        (0.25, [[0.25, 0], [0, 0]]),
        (0.5, [[0.5, 0], [0, 0]]),
        (0.75, [[0.5, 0], [0, 0.25]]),
        (1.0, [[0.5, 0], [0, 0.5]]),
    ],
)
def test_cheapest_pairs_are_moved_until_the_mass_is_reached(mass, expected):
    assert exact_partial_plan(COST, mass).numpy() == pytest.approx(np.array(expected), abs=1e-9)


def test_cheapest_pair_may_be_left_out_for_a_cheaper_total():
    # Two of three units are moved. The pair of cost 1 leaves 8 as the next best; 2 + 2 is cheaper.
    cost = torch.tensor([[1.0, 2.0, 9.0], [2.0, 9.0, 9.0], [9.0, 9.0, 8.0]])
    expected = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]) / 3
    assert exact_partial_plan(cost, 2 / 3).numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(20, 30), (150, 150)])
def test_plan_has_its_mass_and_no_sample_gives_more_than_it_has(rows, columns):
    cost = torch.rand(rows, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plan = exact_partial_plan(cost, 0.6)
    assert float(plan.sum()) == pytest.approx(0.6)
    assert float(plan.min()) >= 0
    assert float(plan.sum(dim=1).max()) <= 1 / rows + 1e-9
    assert float(plan.sum(dim=0).max()) <= 1 / columns + 1e-9
    assert float((plan * cost).sum()) < 0.6 * float((exact_plan(cost) * cost).sum())


def test_cost_that_is_no_number_is_an_error_and_not_a_plan():
    with pytest.raises(DataError, match="cost"):
        exact_partial_plan(torch.tensor([[0.0, math.inf], [1.0, 0.0]]), 0.5)


def losses_by_hand(method: TSPOT, batches: list[Batch], mass: float) -> tuple[float, float]:
    """Return the losses of several batches as of one large one."""
    source, target = (torch.cat([getattr(batch, side) for batch in batches]) for side in ("source", "target"))
    labels = torch.cat([batch.source_labels for batch in batches])
    with torch.no_grad():
        f_source, f_target = method.bottleneck(source), method.bottleneck(target)
        cost = joint_cost(f_source, f_target, labels, method.classifier(f_target), 0.01, 0.5)
        classification = F.cross_entropy(method.classifier(f_source), labels)
        return float(classification), float((exact_partial_plan(cost, mass) * cost).sum())


@pytest.mark.parametrize("n_batches", [1, 2, 3])
def test_plan_joins_the_batch_with_those_before_it(n_batches):
    method, batches = build(n_batches=n_batches, mass=0.3), [batch_at(step) for step in range(5)]
    for step, batch in enumerate(batches):
        losses = method.step(batch)
        joined = batches[max(0, step + 1 - n_batches) : step + 1]
        source, transport = losses_by_hand(method, joined, 0.3)
        assert float(losses.parts["source"].detach()) == pytest.approx(source, rel=1e-5)
        assert float(losses.parts["transport"].detach()) == pytest.approx(transport, rel=1e-5)
        assert float(losses.total.detach()) == pytest.approx(source + transport, rel=1e-5)


def test_stored_samples_train_the_bottleneck_as_it_is_now():
    method, first = build(mass=1.0), batch_at(0)
    method.step(first)
    with torch.no_grad():
        method.bottleneck.weight.mul_(2)
    found = method.step(batch_at(1))
    assert float(found.parts["source"].detach()) == pytest.approx(losses_by_hand(method, [first, batch_at(1)], 1.0)[0])
    found.total.backward()
    together = method.bottleneck.weight.grad.clone()
    method.zero_grad()
    alone = build(mass=1.0, n_batches=1)
    alone.load_state_dict(method.state_dict(), strict=False)
    alone.step(batch_at(1)).total.backward()
    assert not torch.allclose(together, alone.bottleneck.weight.grad)


def test_memory_holds_the_last_batches_without_gradient():
    backbone = torch.nn.Linear(D, D)
    method = build(backbone, n_batches=3)
    for step in range(4):
        method.step(batch_at(step)).total.backward()
    assert sorted(method.target_memory.ids.tolist()) == list(range(2 * SIZE, 4 * SIZE))
    assert not method.target_memory.features.requires_grad
    # Embeddings are the backbone's output, before the bottleneck.
    newest = method.target_memory.features[method.target_memory.ids >= 3 * SIZE]
    assert torch.allclose(newest, backbone(batch_at(3).target))


def test_finalized_method_keeps_no_sample():
    method = build()
    method.step(batch_at(0))
    before = method.decide(method.features(batch_at(1).target)).odds
    method.finalize(FinalFeatures.of_target(torch.zeros(2, 5)))
    for memory in (method.source_memory, method.target_memory):
        assert float(memory.features.abs().sum()) == 0
        assert set(memory.ids.tolist()) == {-1}
    assert torch.equal(method.decide(method.features(batch_at(1).target)).odds, before)


def test_unknown_is_entropy_above_half_of_its_maximum():
    method = TSPOT(2, 2, Settings.checked(feature_size=2, steps=10), TSPOTOptions())
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(2))
        method.classifier.bias.zero_()
    # H(p) = ln(2)/2 if the larger of two probabilities is 0.8900: a logit of 2.0907.
    decision = method.decide(torch.tensor([[2.08, 0.0], [2.10, 0.0], [0.0, 2.10]]))
    assert decision.known.tolist() == [False, True, True]
    assert decision.nearest.tolist() == [0, 0, 1]
