"""The losses of PPOT by hand, and what its two phases train."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from uniot.config import Settings
from uniot.losses import weighted_entropy
from uniot.methods.base import Batch
from uniot.methods.ppot import (
    PPOT,
    PPOTOptions,
    moved_prototypes,
    sample_weights,
    transport_loss,
    updated_class_weights,
)

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
# Two classes, four target samples; 1/2 is transported.
PLAN = torch.tensor([[0.25, 0.125, 0.0, 0.0], [0.0, 0.0, 0.125, 0.0]], dtype=torch.float64)


def build(steps: int = 12, **options) -> PPOT:
    torch.manual_seed(0)
    return PPOT(5, 3, Settings.checked(steps=steps, feature_size=4), PPOTOptions(**options), None)


def batch(step: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        source=torch.randn(6, 5, generator=generator),
        source_labels=torch.tensor([0, 1, 2, 0, 1, 2]),
        target=torch.randn(8, 5, generator=generator),
        target_ids=torch.arange(8),
        step=step,
        generator=generator,
    )


def test_transport_loss_worked_by_hand():
    # 1/4 · 1 + 1/8 · 2 + 1/8 · 4 = 1; four times the distances have twice the root.
    distances = torch.tensor([[1.0, 2.0, 9.0, 9.0], [9.0, 9.0, 4.0, 9.0]], dtype=torch.float64)
    assert float(transport_loss(PLAN, distances)) == pytest.approx(1)
    assert float(transport_loss(PLAN, 4 * distances)) == pytest.approx(2)


def test_transport_loss_of_zero_has_a_finite_gradient():
    distances = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    transport_loss(PLAN, distances).backward()
    assert bool(torch.isfinite(distances.grad).all())


def test_weighted_entropy_worked_by_hand():
    # Entropies ln 2 of (1/2, 1/2), and ln 4 - 3/4 ln 3 of (3/4, 1/4).
    logits = torch.tensor([[0.0, 0.0], [LN3, 0.0]])
    expected = (2 * LN2 - 1 * (LN4 - 0.75 * LN3)) / 2
    assert float(weighted_entropy(logits, torch.tensor([2.0, -1.0]))) == pytest.approx(expected)


def test_sample_weights_worked_by_hand():
    # The columns receive 1/4, 1/8, 1/8 and 0 of 1/2: with mean one, 2, 1, 1 and 0. The half that is farthest from its
    # nearest prototype are samples 1 and 3: one minus their weight is 0 and 1.
    distances = torch.tensor([[0.1, 0.9, 0.8, 0.7], [0.5, 0.6, 0.2, 0.9]], dtype=torch.float64)
    known, unknown = sample_weights(PLAN, distances, farthest=0.5)
    assert known.tolist() == pytest.approx([2, 1, 1, 0])
    assert unknown.tolist() == pytest.approx([0, 0, 0, 1])
    # Of a single one, the farthest is sample 3.
    assert sample_weights(PLAN, distances, farthest=0.25)[1].tolist() == pytest.approx([0, 0, 0, 1])


def test_sample_that_receives_more_than_its_part_may_have_a_negative_weight_as_unknown():
    distances = torch.tensor([[0.9, 0.1, 0.1, 0.1], [0.9, 0.1, 0.1, 0.1]], dtype=torch.float64)
    assert sample_weights(PLAN, distances, farthest=0.25)[1].tolist() == pytest.approx([-1, 0, 0, 0])


def test_class_weights_worked_by_hand():
    # The classes send 3/8 and 1/8, of four samples 1.5 and 0.5. With rate 1/2: (1.25, 0.75), whose mean is one.
    assert updated_class_weights(torch.ones(2), PLAN, rate=0.5).tolist() == pytest.approx([1.25, 0.75])
    # With rate 0.1 and former weights (0.5, 1.5): (0.6, 1.4).
    assert updated_class_weights(torch.tensor([0.5, 1.5]), PLAN).tolist() == pytest.approx([0.6, 1.4])
    # Twice the plan counts twice: (3, 1) and (1, 1) with rate 1/2 are (2, 1), scaled to (4/3, 2/3).
    assert updated_class_weights(torch.ones(2), 2 * PLAN, rate=0.5).tolist() == pytest.approx([4 / 3, 2 / 3])


def test_prototypes_move_towards_the_means_of_their_classes_worked_by_hand():
    # Class 0 at (1, 0) has the mean (0, 1): with rate 1/4 it is (3/4, 1/4) / √10 · 4. Class 1 has no samples.
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    features = torch.tensor([[-0.6, 0.8], [0.6, 1.2]])
    moved = moved_prototypes(prototypes, features, torch.tensor([0, 0]), rate=0.25)
    assert moved[0].tolist() == pytest.approx([3 / math.sqrt(10), 1 / math.sqrt(10)])
    assert moved[1].tolist() == pytest.approx([0, 1])


def test_gradients_of_the_losses_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()

    labels, prototypes, weights = torch.tensor([0, 1, 0]), draw(3, 4).detach(), draw(5).detach()
    assert gradcheck(lambda x: transport_loss(PLAN, x), draw(2, 4))
    assert gradcheck(lambda x: weighted_entropy(x, weights), draw(5, 3))
    assert gradcheck(lambda x: moved_prototypes(prototypes, x, labels), draw(3, 4))


def test_source_alone_is_classified_before_the_adaptation():
    method = build()
    parts = method.step(batch(1)).parts
    assert [float(parts[name]) for name in ("transport", "known", "unknown")] == [0, 0, 0]
    assert method.class_weights.tolist() == [1, 1, 1]
    # 12 / 6 steps of pretraining.
    assert float(method.step(batch(2)).parts["transport"].detach()) > 0


def test_total_is_the_weighted_sum_of_the_parts():
    losses = build(pretraining=0).step(batch(0))
    part = {name: float(value.detach()) for name, value in losses.parts.items()}
    total = part["source"] + 5 * part["transport"] + 0.01 * part["known"] - 2 * part["unknown"]
    assert float(losses.total.detach()) == pytest.approx(total, rel=1e-5)


def test_target_does_not_train_the_classifier():
    gradients = []
    for weight in (0.0, 3.0):
        method = build(pretraining=0, transport_weight=weight, known_weight=weight, unknown_weight=weight)
        method.step(batch(0)).total.backward()
        trained = (method.classifier.weight, method.classifier.bias, method.bottleneck.weight)
        gradients.append([parameter.grad for parameter in trained])
    assert [torch.equal(without, given) for without, given in zip(*gradients, strict=True)] == [True, True, False]


def test_transport_moves_the_features_of_both_domains():
    given = batch(0)
    given.source.requires_grad_()
    given.target.requires_grad_()
    build(pretraining=0).step(given).parts["transport"].backward()
    # Of the source by way of the prototypes, which have moved towards its features.
    assert float(given.source.grad.abs().max()) > 1e-4
    assert float(given.target.grad.abs().max()) > 1e-4


def test_alpha_is_the_fraction_of_confident_samples_and_beta_starts_there():
    method = build(steps=60, rate=0.5, alpha_rate=0.25, beta_rate=0.5)
    sure, unsure = torch.tensor([[9.0, 0.0, 0.0]]), torch.zeros(1, 3)
    half = torch.cat([sure, unsure])
    method.update_alpha(half, 0)
    assert method.shares.tolist() == pytest.approx([0.5, 0.5, 0.5])
    # Pretraining has ten steps: recent batches count half each.
    method.update_alpha(sure, 10)
    assert method.shares.tolist() == pytest.approx([0.75, 0.75, 0.75])
    # Within a round α moves slowly: 0.75 + 0.25 (0 - 0.75).
    method.update_alpha(unsure, 11)
    assert method.shares.tolist() == pytest.approx([0.375, 0.5625, 0.75])
    # A round has (60 - 10) / 5 steps: at the start of the next α is the recent fraction.
    method.update_alpha(sure, 20)
    assert method.shares.tolist() == pytest.approx([0.6875, 0.6875, 0.75])
    # One of three classes has more than the mean weight: 0.75 + 0.5 (1/3 - 0.75).
    method.update_classes(torch.tensor([[1.0, 1.0], [0.1, 0.1], [0.1, 0.1]]))
    assert float(method.shares[2]) == pytest.approx(0.75 / 2 + 1 / 6)


def test_rounds_are_counted_from_the_end_of_the_pretraining():
    method = build(steps=60, rounds=2, rate=0.5, alpha_rate=0.25)
    sure, unsure = torch.tensor([[9.0, 0.0, 0.0]]), torch.zeros(1, 3)
    method.update_alpha(sure, 0)
    # Ten steps of pretraining, then rounds of 25 steps: the second starts at step 35, and step 25 is within the first.
    method.update_alpha(unsure, 25)
    assert method.shares.tolist() == pytest.approx([0.5, 0.75, 1])
    method.update_alpha(unsure, 35)
    assert method.shares.tolist() == pytest.approx([0.25, 0.25, 1])


def test_alpha_is_never_zero():
    method = build()
    method.update_alpha(torch.zeros(4, 3), 0)
    assert method.shares.tolist() == pytest.approx([0, 0.01, 0.01])
    assert float(method.plan(torch.rand(3, 4)).sum()) == pytest.approx(0.01)


def test_plan_moves_alpha_within_the_capacities():
    method = build()
    method.shares.copy_(torch.tensor([0.0, 0.5, 0.8]))
    plan = method.plan(3 * torch.rand(3, 8, generator=torch.Generator().manual_seed(0)))
    assert float(plan.sum()) == pytest.approx(0.5)
    # Each class may send α / (β c) = 0.5 / 2.4, each sample take 1/8.
    assert float(plan.sum(dim=1).max()) <= 0.5 / 2.4 + 1e-4
    assert float(plan.sum(dim=0).max()) <= 1 / 8 + 1e-4


def test_sample_is_unknown_if_its_largest_probability_is_below_three_quarters():
    method = build()
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(4)[:3])
        method.classifier.bias.zero_()
    # exp of the logits: 8, 1, 1 of 10, and 5, 1, 1 of 7.
    features = torch.tensor([[math.log(8), 0, 0, 0], [0, math.log(5), 0, 0]])
    assert method.score(features).tolist() == pytest.approx([0.8, 5 / 7])
    assert method.decide(features).known.tolist() == [True, False]


def test_features_are_normalised_per_domain_in_training_and_by_running_statistics_afterwards():
    method = build()
    rows = torch.randn(50, 5, generator=torch.Generator().manual_seed(0)) + 3
    raw = method.bottleneck(rows).detach()
    unit = F.relu((raw - raw.mean(dim=0)) / (raw.var(dim=0, unbiased=False) + 1e-5).sqrt())
    assert torch.allclose(method.project(rows, learning=True), unit, atol=1e-5)
    assert not torch.allclose(method.features(rows), unit, atol=1e-2)
    assert torch.allclose(method.features(rows[:1]), method.features(rows)[:1], atol=1e-6)
