"""The alternation of ATI by hand and beside a slow one, and what happens in which step."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uniot.methods.ati as module
from uniot.config import Settings
from uniot.methods.ati import ATI, ATIOptions, ClassTransform, alternate
from uniot.methods.base import Batch

D, C, STEPS = 4, 3, 9

# Class means 0 and 1; two samples round (11, 0), two at (0, 12), and one that is far from both.
MEANS = torch.tensor([[10.0, 0.0], [0.0, 10.0]])
TARGET = torch.tensor([[11.0, 1.0], [11.0, -1.0], [0.0, 12.0], [0.0, 12.0], [-8.0, -8.0]])


def random_rows(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the map ----------------------------------------------------------------------------------------------


def test_map_takes_means_to_goals_and_leaves_what_is_orthogonal_to_them():
    # S = e₁, T = (1, 2, 0): x ↦ x + x₁ (0, 2, 0).
    transform = ClassTransform.between(
        torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([5.0])
    )
    found = transform(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 7.0], [3.0, 0.0, 1.0]]))
    assert found.numpy() == pytest.approx(np.array([[1, 2, 0], [0, 1, 7], [3, 6, 1]]), abs=1e-6)


def test_means_that_cannot_be_told_apart_go_to_the_mean_of_all_their_samples():
    # Both means are (1, 0); three samples lie at (2, 0) and one at (6, 4): their mean is (3, 1).
    means = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    goals = torch.tensor([[2.0, 0.0], [6.0, 4.0]])
    transform = ClassTransform.between(means, goals, torch.tensor([3.0, 1.0]))
    assert transform(means).numpy() == pytest.approx(np.array([[3, 1], [3, 1]]), abs=1e-5)


def test_map_is_where_descent_from_the_identity_ends():
    means, goals, counts = random_rows(0, 3, 5), random_rows(1, 3, 5), torch.tensor([4.0, 2.0, 1.0])
    map_ = torch.eye(5, dtype=torch.float64)
    for _ in range(20_000):
        map_ -= 0.02 * means.t() @ (counts[:, None] * (means @ map_ - goals))
    rows = random_rows(2, 6, 5)
    found = ClassTransform.between(means, goals, counts)(rows)
    assert found.numpy() == pytest.approx((rows @ map_).numpy(), abs=1e-4)


def test_class_without_samples_does_not_pull():
    means, goals = random_rows(0, 3, 5), random_rows(1, 3, 5)
    elsewhere = torch.cat([goals[:2], goals[2:] + 100])
    counts, rows = torch.tensor([3.0, 2.0, 0.0]), random_rows(2, 4, 5)
    one, other = (ClassTransform.between(means, each, counts)(rows) for each in (goals, elsewhere))
    assert one.numpy() == pytest.approx(other.numpy())


# --- the alternation --------------------------------------------------------------------------------------


def test_alternation_worked_by_hand():
    found = alternate(MEANS, TARGET)
    # Least distance √2, largest √(18² + 8²) = 19.7: λ = 10.6, and only the last sample, 19.7 from both, is left over.
    # The others' means are (11, 0) and (0, 12). The next round assigns the same and brings nothing.
    assert found.rounds == 1
    assert found.means.numpy() == pytest.approx(np.array([[11, 0], [0, 12]]), abs=1e-5)
    # Now the least distance is 0 and the largest that of (-8, -8) to (0, 12).
    assert float(found.outlier_cost) == pytest.approx(math.hypot(8, 20) / 2)
    # What is a half of the first mean and a quarter of the second moves with them.
    assert found.transform(torch.tensor([[5.0, 2.5]])).numpy() == pytest.approx(np.array([[5.5, 3.0]]), abs=1e-5)


def test_where_outliers_cost_the_least_distance_only_the_nearest_of_all_are_assigned():
    # (11, ±1), √2 from their mean; the other class stays where it is.
    found = alternate(MEANS, TARGET, outlier_share=0.0, rounds=1)
    assert found.means.numpy() == pytest.approx(np.array([[11, 0], [0, 10]]), abs=1e-5)


def test_where_outliers_cost_the_largest_distance_nothing_is_left_over():
    # The last sample is as far from both classes, and goes to the first: (11 + 11 - 8) / 3 and (1 - 1 - 8) / 3.
    found = alternate(MEANS, TARGET, outlier_share=1.0, rounds=1)
    assert found.means.numpy() == pytest.approx(np.array([[14 / 3, -8 / 3], [0, 12]]), abs=1e-4)


def test_round_that_leaves_the_means_farther_from_their_samples_does_not_count():
    # Distances 4, 4, 11 and 16: λ = 10, and the mean goes to the first two, which leaves no distance at all.
    # Then they are 0, 0, 7 and 20: λ = 10 again, the third sample would join, and lie apart from the mean of three.
    target = torch.tensor([[10.0, 4.0], [10.0, 4.0], [10.0, 11.0], [10.0, -16.0]])
    found = alternate(MEANS[:1], target)
    assert found.rounds == 1
    assert found.means.numpy() == pytest.approx(np.array([[10, 4]]), abs=1e-5)
    assert float(found.outlier_cost) == pytest.approx(10)


def slow_alternation(means, target, share, rounds, tolerance):
    """With loops, and W whole."""
    moved, applied, energies, first = means.copy(), 0, [np.inf], None
    for _ in range(rounds):
        distances = np.array([[np.linalg.norm(t - m) for m in moved] for t in target])
        cost = share * distances.max() + (1 - share) * distances.min()
        pairs = [(int(row.argmin()), t) for row, t in zip(distances, target, strict=True) if row.min() <= cost]
        left, right = np.stack([means[c] for c, _ in pairs]), np.stack([t for _, t in pairs])
        first = first or np.linalg.norm(left - right)
        change = np.linalg.lstsq(left, right - left, rcond=None)[0]
        energy = np.linalg.norm(left + left @ change - right)
        if energy >= energies[-1] - tolerance * first:
            break
        energies.append(energy)
        moved, applied = means + means @ change, applied + 1
    distances = np.array([[np.linalg.norm(t - m) for m in moved] for t in target])
    return moved, share * distances.max() + (1 - share) * distances.min(), applied


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rounds", [1, 6])
def test_alternation_is_that_of_a_slow_one(seed, rounds):
    means, target = 3 * random_rows(seed, 4, 6), random_rows(seed + 100, 40, 6)
    target += 3 * random_rows(seed, 4, 6)[torch.arange(40) % 4] * 0.7
    found = alternate(means, target, 0.5, rounds, 1e-3)
    moved, cost, applied = slow_alternation(means.numpy(), target.numpy(), 0.5, rounds, 1e-3)
    assert found.rounds == applied
    assert found.means.numpy() == pytest.approx(moved, abs=1e-6)
    assert float(found.outlier_cost) == pytest.approx(cost)


@given(scale=st.floats(0.01, 100))
def test_alternation_does_not_depend_on_the_scale_of_the_features(scale):
    means, target = random_rows(3, 4, 6), random_rows(4, 30, 6)
    one, other = alternate(means, target), alternate(means * scale, target * scale)
    assert (one.means * scale).numpy() == pytest.approx(other.means.numpy(), rel=1e-6, abs=1e-8)
    assert float(one.outlier_cost) * scale == pytest.approx(float(other.outlier_cost))


# --- the method -------------------------------------------------------------------------------------------


def build(steps: int = STEPS, backbone: torch.nn.Module | None = None, **options) -> ATI:
    torch.manual_seed(0)
    method = ATI(D, C, Settings.checked(steps=steps, queue_size=40), ATIOptions(**options), backbone)
    method.train()
    return method


def batch_at(step: int, labels: tuple[int, ...] = (0, 1, 2, 1)) -> Batch:
    generator = torch.Generator().manual_seed(step)
    classes = torch.tensor(labels)
    ids = torch.arange(6) + 6 * (step % 3)
    return Batch(
        source=10 * torch.eye(C, D)[classes] + torch.randn(len(labels), D, generator=generator),
        source_labels=classes,
        target=8 * torch.eye(4, D)[ids % 4] + torch.randn(6, D, generator=generator) + 1,
        target_ids=ids,
        step=step,
        generator=generator,
    )


def run(method: ATI, first: int, last: int) -> None:
    for step in range(first, last):
        method.step(batch_at(step))


def test_class_means_are_those_of_all_samples_so_far():
    method = build(steps=100)
    labels = [(0, 1, 1, 1), (0, 0, 0, 0), (2, 1, 0, 2)]
    batches = [batch_at(step, each) for step, each in enumerate(labels)]
    for batch in batches:
        method.step(batch)
    source, classes = torch.cat([b.source for b in batches]), torch.cat([b.source_labels for b in batches])
    for c in range(C):
        assert method.means[c].numpy() == pytest.approx(source[classes == c].mean(dim=0).numpy(), abs=1e-5)
    assert method.counts.tolist() == [6, 4, 2]


def test_hinge_loss_worked_by_hand():
    method = build()
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(C, D))
        method.classifier.bias.zero_()
    batch = batch_at(0)
    source = torch.tensor([[2.0, 1.5, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0]])
    losses = method.step(dataclasses.replace(batch, source=source, source_labels=torch.tensor([0, 2])))
    # Sample 0: 1 - 2 + 1.5 = 0.5 and 1 - 2 + 0 < 0. Sample 1: 1 and 1. Each over the three classes.
    assert float(losses.total.detach()) == pytest.approx((0.5 / 3 + 2 / 3) / 2)


def test_map_is_found_once_after_a_third_of_the_steps():
    method = build()
    run(method, 0, 3)
    assert not method.shifts.any()
    assert len(method.memory.filled()) == 18
    method.step(batch_at(3))
    state = {name: value.clone() for name, value in method.named_buffers()}
    assert state["shifts"].any()
    assert float(state["outlier_cost"]) > 0
    # The features of single samples are needed no longer.
    assert len(state["memory.rows"]) == 0
    run(method, 4, STEPS)
    assert all(torch.equal(value, state[name]) for name, value in method.named_buffers())


def test_map_and_cost_are_those_of_the_collected_means_and_target():
    method = build(outlier_share=0.4)
    run(method, 0, 4)
    newest = {int(i): row for step in range(4) for i, row in zip(*_target_of(batch_at(step)), strict=True)}
    expected = alternate(method.means, torch.stack([newest[i] for i in range(18)]), 0.4)
    assert method.moved_means.numpy() == pytest.approx(expected.means.numpy(), abs=1e-4)
    assert float(method.outlier_cost) == pytest.approx(float(expected.outlier_cost), rel=1e-5)


def test_options_are_those_of_the_alternation(monkeypatch):
    seen = []

    def spy(*args):
        seen.append(args[2:])
        return alternate(*args)

    monkeypatch.setattr(module, "alternate", spy)
    run(build(outlier_share=0.3, rounds=2, tolerance=0.1), 0, STEPS)
    assert seen == [(0.3, 2, 0.1)]


def _target_of(batch: Batch) -> tuple[list[int], torch.Tensor]:
    return batch.target_ids.tolist(), batch.target


def test_classifier_is_trained_on_the_mapped_source():
    method = build()
    run(method, 0, 4)
    batch = batch_at(5)
    mapped = ClassTransform(method.coordinates, method.shifts)(batch.source)
    assert not torch.allclose(mapped, batch.source, atol=0.1)
    scores = (mapped @ method.classifier.weight.t() + method.classifier.bias).detach().numpy()
    expected = 0.0
    for row, label in zip(scores, batch.source_labels.tolist(), strict=True):
        expected += sum(max(0.0, 1 - row[label] + row[k]) for k in range(C) if k != label) / C
    assert float(method.step(batch).total.detach()) == pytest.approx(expected / len(scores), rel=1e-4)


def test_sample_is_unknown_beyond_the_cost_from_every_moved_mean():
    method = build()
    method.moved_means.copy_(3 * torch.eye(C, D))
    method.outlier_cost.fill_(2.0)
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(C, D))
        method.classifier.bias.copy_(torch.tensor([0.0, 0.0, 100.0]))
    # Distances to the nearest mean: 1, 2 (the border is known) and 2.01.
    features = torch.tensor([[4.0, 0, 0, 0], [0, 5.0, 0, 0], [0, 0, 3.0, 2.01]])
    decision = method.decide(features)
    assert decision.known.tolist() == [True, True, False]
    # The classifier names the class, not the nearest mean.
    assert decision.nearest.tolist() == [2, 2, 2]
    assert decision.known_score[1] == pytest.approx(0.5)


def test_class_of_which_no_sample_came_is_far_from_everything():
    method = build(steps=2)
    method.step(batch_at(0, (0, 1, 0, 1)))
    assert torch.isinf(method.moved_means[2]).all()
    assert bool(torch.isfinite(method.moved_means[:2]).all())
    decision = method.decide(torch.cat([method.moved_means[:2], torch.full((1, D), 1e3)]))
    assert decision.known.tolist() == [True, True, False]
    assert bool(torch.isfinite(decision.odds).all())
    assert math.isfinite(float(method.step(batch_at(1)).total.detach()))


def test_backbone_keeps_its_features():
    backbone = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.BatchNorm1d(D))
    method = build(backbone=backbone)
    before = method.features(batch_at(0).target)
    assert method.training
    assert not backbone.training
    method.step(batch_at(0)).total.backward()
    assert all(parameter.grad is None for parameter in backbone.parameters())
    assert torch.equal(method.features(batch_at(0).target), before)


def test_forgotten_samples_leave_no_feature_behind():
    method = build()
    run(method, 0, 2)
    assert len(method.memory.rows) > 0
    method.forget_samples()
    assert len(method.memory.rows) == 0
