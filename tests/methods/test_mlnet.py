"""The losses of MLNet by hand. Softmax of (ln 3, 0) is (3/4, 1/4)."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from uniot.config import Settings
from uniot.losses import (
    jaccard,
    mixup_rejection_loss,
    neighbour_sets,
    neighbourhood_invariance_loss,
    one_vs_all_consistency_loss,
)
from uniot.methods.base import Batch
from uniot.methods.mlnet import MLNet, MLNetOptions

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
NOBODY = torch.zeros(1, 4, dtype=torch.bool)


def build(steps: int = 20, **options) -> MLNet:
    torch.manual_seed(0)
    return MLNet(4, 2, Settings.checked(steps=steps, queue_size=12, feature_size=4), MLNetOptions(**options), None)


TARGET = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))


def batch_of(*ids: int, step: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(2)
    return Batch(
        source=torch.randn(len(ids), 4, generator=generator),
        source_labels=torch.arange(len(ids)) % 2,
        target=TARGET[list(ids)],
        target_ids=torch.tensor(ids),
        step=step,
        generator=generator,
    )


def test_neighbours_are_as_near_as_a_fraction_of_the_nearest():
    # 0.75 × 0.8 = 0.6: 0.7 is above it, 0.6 is not.
    cosines = torch.tensor([[0.8, 0.7, 0.6, -0.9]], dtype=torch.float64)
    assert neighbour_sets(cosines, NOBODY, ratio=0.75).tolist() == [[True, True, False, False]]


def test_anchor_is_not_its_own_neighbour():
    # Without the anchor the nearest has 0.5, and 0.75 × 0.5 = 0.375.
    is_self = torch.tensor([[True, False, False, False]])
    cosines = torch.tensor([[1.0, 0.5, 0.4, 0.3]])
    assert neighbour_sets(cosines, is_self, ratio=0.75).tolist() == [[False, True, True, False]]


def test_anchor_that_resembles_nobody_has_no_neighbours():
    assert not neighbour_sets(torch.tensor([[-0.4, -0.2, -0.3, -1.0]]), NOBODY).any()


def test_overlap_of_sets_worked_by_hand():
    # {0, 1, 2} and {1, 2, 3} share two of four; {0, 1, 2} and {0, 1, 2} all; two empty sets nothing.
    sets = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]]).bool()
    others = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]]).bool()
    assert jaccard(sets, others).tolist() == [pytest.approx([0.5, 1, 0]), pytest.approx([0, 0, 0])]


def test_neighbour_loss_worked_by_hand():
    # exp(s cos) of row 0 are 3, 1, 1 with s = ln 3: p = (3/5, 1/5, 1/5); of row 1 they are 1, 1, and 1/3 for the
    # anchor itself, which counts with -1: p = (3/7, 3/7, 1/7).
    cosines = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.9]], dtype=torch.float64)
    is_self = torch.tensor([[False, False, False], [False, False, True]])
    neighbours = torch.tensor([[True, True, False], [True, False, False]])
    weights = torch.tensor([[1.0, 0.5, 9.0], [0.25, 9.0, 9.0]], dtype=torch.float64)
    first = (1.0 * math.log(5 / 3) + 0.5 * math.log(5)) / 2
    second = 0.25 * math.log(7 / 3)
    loss = neighbourhood_invariance_loss(cosines, is_self, neighbours, weights, scale=LN3)
    assert float(loss) == pytest.approx((first + second) / 2)


def test_anchor_without_neighbours_has_no_loss_and_no_gradient():
    cosines = torch.tensor([[-0.4, -0.2, -0.3, -1.0]], requires_grad=True)
    loss = neighbourhood_invariance_loss(cosines, NOBODY, NOBODY, torch.zeros(1, 4))
    loss.backward()
    assert float(loss.detach()) == 0
    assert cosines.grad.tolist() == [[0, 0, 0, 0]]


def test_mixture_is_not_of_the_class_of_its_source_sample_worked_by_hand():
    # Claimed with 3/4 by class 1, its own: -ln(1/4). Claimed with 1/2 by class 0, its own: ln 2. Others do not count.
    logits = torch.tensor([[[0.0, 0.0], [9.0, LN3]], [[0.0, 0.0], [0.0, -9.0]]])
    assert float(mixup_rejection_loss(logits, torch.tensor([1, 0]))) == pytest.approx((LN4 + LN2) / 2)


def test_consistency_is_the_mean_product_worked_by_hand():
    # (3/4 · 1/2 + 1/4 · 3/4) / 2 = 9/32.
    logits = torch.tensor([[LN3, 0.0]])
    opened = torch.tensor([[[0.0, 0.0], [0.0, LN3]]])
    assert float(one_vs_all_consistency_loss(logits, opened)) == pytest.approx(-9 / 32)


def test_gradients_of_the_losses_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()

    is_self = torch.eye(3, 5, dtype=torch.bool)
    neighbours, weights = torch.rand(3, 5, generator=generator) > 0.4, draw(3, 5).detach()
    assert gradcheck(lambda x: neighbourhood_invariance_loss(x, is_self, neighbours, weights), draw(3, 5))
    assert gradcheck(lambda x: mixup_rejection_loss(x, torch.tensor([0, 2, 1])), draw(3, 2, 3))
    assert gradcheck(one_vs_all_consistency_loss, (draw(3, 3), draw(3, 2, 3)))


def test_total_is_the_weighted_sum_of_the_parts():
    losses = build(warmup=0).step(batch_of(0, 1, 2, 3))
    part = {name: float(value.detach()) for name, value in losses.parts.items()}
    total = part["source"] + 0.5 * part["one_vs_all"] + 0.1 * part["entropy"] + 0.1 * part["mixup"]
    total += 0.16 * part["consistency"] + 0.5 * part["neighbour"]
    assert float(losses.total.detach()) == pytest.approx(total, rel=1e-5)
    assert part["neighbour"] > 0


def test_neighbours_are_looked_for_after_the_warm_up():
    method = build(steps=100)
    early, late = (method.step(batch_of(0, 1, 2, 3, step=step)).parts["neighbour"] for step in (1, 2))
    assert float(early) == 0
    assert float(late.detach()) > 0


def test_weights_are_the_overlaps_over_the_whole_memory():
    method = build(warmup=0, neighbour_ratio=0.5)
    method.step(batch_of(0, 1, 2, 3, 4, 5))
    batch = batch_of(4, 5, 6, 7)
    found = method.step(batch).parts["neighbour"]
    # Of all pairs of the eight samples that have been seen.
    unit = F.normalize(method.features(TARGET[:8]).detach(), dim=1)
    cosines, itself = unit @ unit.t(), torch.eye(8, dtype=torch.bool)
    sets = neighbour_sets(cosines, itself, 0.5)
    expected = neighbourhood_invariance_loss(cosines[4:], itself[4:], sets[4:], jaccard(sets, sets)[4:])
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-5)


def test_neighbour_loss_trains_the_bottleneck_and_no_classifier():
    gradients = []
    for weight in (0.0, 0.5):
        method = build(warmup=0, neighbour_weight=weight)
        method.step(batch_of(0, 1, 2, 3)).total.backward()
        gradients.append([module.weight.grad for module in (method.bottleneck, method.classifier, method.one_vs_all)])
    assert [torch.equal(without, given) for without, given in zip(*gradients, strict=True)] == [False, True, True]


def test_shares_of_a_mixture_have_the_spread_of_their_beta_distribution():
    # The classifier claims by the only feature, 500 for the source and -500 for the target: a mixture has
    # 1000 (λ - 1/2), and softplus is nearly its positive part. Of Beta(2, 2), with density 6 λ (1 - λ), the mean of
    # max(0, λ - 1/2) is 3/32; of a uniform distribution it would be 4/32.
    method = MLNet(1, 1, Settings.checked(steps=1, queue_size=9, feature_size=1), MLNetOptions(), None)
    with torch.no_grad():
        method.one_vs_all.weight.copy_(torch.tensor([[0.0], [1.0]]))
    n = 20_000
    source, target, generator = torch.full((n, 1), 500.0), torch.full((n, 1), -500.0), torch.Generator().manual_seed(0)
    batch = Batch(source, torch.zeros(n, dtype=torch.long), target, torch.arange(n), step=0, generator=generator)
    mean = float(method.mixup_loss(source, target, batch).detach()) / 1000
    assert mean == pytest.approx(3 / 32, rel=0.03)


def test_sample_is_unknown_if_the_classifier_of_its_predicted_class_rejects_it():
    method = build()
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(4)[:2])
        method.one_vs_all.weight.zero_()
        method.one_vs_all.weight[2:] = torch.eye(4)[2:]
    # All are of class 0, whose classifier reads the third place; that of class 1 does not count.
    features = torch.tensor([[2.0, 1.0, LN3, -9.0], [2.0, 1.0, -LN3, 9.0], [2.0, 1.0, 0.0, -9.0]])
    decision = method.decide(features)
    assert decision.nearest.tolist() == [0, 0, 0]
    assert decision.known.tolist() == [True, False, True]
    assert method.score(features).tolist() == pytest.approx([3 / 4, 1 / 4, 1 / 2])


def test_memory_has_the_newest_unit_feature_of_each_sample():
    method = build()
    method.step(batch_of(0, 1))
    with torch.no_grad():
        method.bottleneck.bias.add_(1)
    method.step(batch_of(1, 2))
    newest = {int(i): row for i, row in zip(method.memory.ids, method.memory.rows, strict=True) if int(i) >= 0}
    now = F.normalize(method.features(TARGET).detach(), dim=1)
    assert sorted(newest) == [0, 1, 2]
    assert torch.allclose(newest[1], now[1])
    assert not torch.allclose(newest[0], now[0])
