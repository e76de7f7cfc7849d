"""One step of UniOT beside the paper and METHOD.md's table of what the paper leaves open."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

import uniot.losses.uniot as module
from uniot.config import Settings
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.registry import create_method
from uniot.methods.uniot import UniOTMethod
from uniot.training.loop import parameter_groups
from uniot.transport.unbalanced import UnbalancedPotential, unbalanced_potential

N_TARGET, D, C, K, QUEUE, B = 30, 7, 4, 5, 24, 8


def settings_of(**changes) -> Settings:
    values = {
        "method": "uniot",
        "n_clusters": K,
        "queue_size": QUEUE,
        "batch_size": B,
        "hidden_size": 16,
        "feature_size": 6,
        "detection_start": 3,
        "steps": 20,
    }
    return Settings.checked(**(values | changes))


@pytest.fixture
def target():
    return torch.randn(N_TARGET, D, generator=torch.Generator().manual_seed(1))


def build(target, **changes) -> UniOTMethod:
    torch.manual_seed(0)
    method = create_method(settings_of(**changes), D, C)
    for start in range(0, QUEUE, B):
        ids = torch.arange(start, start + B)
        method.prepare(target[ids], ids)
    return method


@pytest.fixture
def method(target):
    return build(target)


def batch_at(step: int, target, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(N_TARGET, generator=generator)[:B]
    return Batch(
        source=torch.randn(B, D, generator=generator),
        source_labels=torch.arange(B) % C,
        target=target[ids],
        target_ids=ids,
        step=step,
        generator=torch.Generator().manual_seed(seed + 100),
    )


class Spy:
    """Calls the real function and keeps what it was given and what it answered."""

    def __init__(self, monkeypatch, name: str) -> None:
        self.real = getattr(module, name)
        self.args: list[tuple] = []
        self.settings: list[dict] = []
        self.answers: list = []
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args, **settings):
        self.args.append(args)
        self.settings.append(settings)
        self.answers.append(self.real(*args, **settings))
        return self.answers[-1]


def potential_that_says(confidence: list[float], l: list[float] | None = None, n_rows: int = 10):  # noqa: E741
    """A solved problem with given column masses."""
    return UnbalancedPotential(
        class_potential=torch.tensor(l or [0.0] * len(confidence), dtype=torch.float64),
        class_confidence=torch.tensor(confidence, dtype=torch.float64),
        total_mass=1.0,
        n_rows=n_rows,
        epsilon=0.01,
        marginal_penalty=0.5,
        tolerance=1e-6,
        converged=True,
        passes=1,
    )


# --- the sum of losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.1, 0.0, 2.0])
def test_total_is_eq_15(target, weight):
    losses = build(target, adaptation_weight=weight).step(batch_at(10, target))
    parts = {name: float(part.detach()) for name, part in losses.parts.items()}
    assert float(losses.total.detach()) == pytest.approx(
        parts["source"] + weight * (parts["common"] + parts["private"]), rel=1e-5
    )


def test_source_loss_is_cross_entropy_of_cosines_over_the_temperature(method, target):
    batch = batch_at(0, target)
    cosines = method.features(batch.source) @ method.loss.classes.weight.t()
    expected = 0.0
    for row, label in zip((cosines / 0.1).tolist(), batch.source_labels.tolist(), strict=True):
        expected += math.log(sum(math.exp(x) for x in row)) - row[label]
    assert float(method.step(batch).parts["source"].detach()) == pytest.approx(expected / B, rel=1e-4)


def test_batch_has_no_place_for_target_labels():
    names = {field.name for field in dataclasses.fields(Batch)}
    assert names == {"source", "source_labels", "target", "target_ids", "step", "generator", "gather"}


def test_step_takes_all_its_randomness_from_the_batch(target):
    answers = []
    for seed in (1, 2):
        method = build(target)
        torch.manual_seed(seed)
        losses = method.step(batch_at(10, target))
        answers.append((float(losses.total.detach()), losses.detected.tolist(), method.loss.common.class_mass.tolist()))
    assert answers[0] == answers[1]


# --- common-class detection -------------------------------------------------------------------------------


def test_detection_starts_after_detection_start(method, target):
    before = method.loss.common.class_mass.clone()
    for step in (0, 3):
        losses = method.step(batch_at(step, target))
        assert losses.detected is None
        assert math.isnan(losses.notes["detected"])
        assert float(losses.parts["common"].detach()) == 0
        assert torch.equal(method.loss.common.class_mass, before)
    losses = method.step(batch_at(4, target))
    assert losses.detected.shape == (B,)
    assert not torch.equal(method.loss.common.class_mass, before)


def test_class_mass_remembers_the_previous_step(method, target, monkeypatch):
    # Eq. (9) with μ = 0.7: β = (¼, ¼, ¼, ¼), then columns (0.7, 0.1, 0.1, 0.1), then (0, 0, 0.5, 0.5).
    #   0.7·0.25 + 0.3·0.7 = 0.385            0.7·0.385 + 0.3·0   = 0.2695
    #   0.7·0.25 + 0.3·0.1 = 0.205            0.7·0.205 + 0.3·0   = 0.1435
    #                                         0.7·0.205 + 0.3·0.5 = 0.2935
    columns = iter([[0.7, 0.1, 0.1, 0.1], [0.0, 0.0, 0.5, 0.5]])
    monkeypatch.setattr(method.loss.common, "solve", lambda *args, **kw: potential_that_says(next(columns)))
    method.step(batch_at(10, target))
    assert method.loss.common.class_mass.tolist() == pytest.approx([0.385, 0.205, 0.205, 0.205])
    method.step(batch_at(11, target))
    assert method.loss.common.class_mass.tolist() == pytest.approx([0.2695, 0.1435, 0.2935, 0.2935])


def test_class_mass_begins_uniform_and_stays_a_mass(method, target):
    assert method.loss.common.class_mass.tolist() == [0.25] * 4
    for step in range(4, 12):
        method.step(batch_at(step, target, seed=step))
    assert float(method.loss.common.class_mass.sum()) == pytest.approx(1)


def test_step_transports_with_the_class_mass_learnt_before_it(method, target, monkeypatch):
    method.loss.common.class_mass.copy_(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    seen = []
    real = module.filled_potential

    def spy(rows, prototypes, class_mass, **settings):
        seen.append(class_mass.tolist())
        return real(rows, prototypes, class_mass, **settings)

    monkeypatch.setattr(module, "filled_potential", spy)
    method.step(batch_at(10, target))
    assert seen == [pytest.approx([0.4, 0.3, 0.2, 0.1])]


def test_unbalanced_rows_are_the_batch_and_a_queue_sample_as_long_as_the_queue(method, target, monkeypatch):
    spy = Spy(monkeypatch, "filled_potential")
    batch = batch_at(10, target)
    features, queued = method.features(batch.target).detach(), method.loss.queue.features.clone()
    method.step(batch)
    rows, counts = spy.args[0][0], spy.settings[0]["counts"]
    expected = torch.cat([features, queued]) @ method.loss.classes.weight.detach().t()
    assert rows.numpy() == pytest.approx(expected.numpy(), abs=1e-6)
    assert counts[:B].tolist() == [1] * B
    assert int(counts[B:].sum()) == QUEUE
    # With replacement: some stand twice, others not at all.
    assert counts[B:].max() > 1
    assert counts[B:].min() == 0


def test_settings_of_the_unbalanced_problem_are_the_papers(method, target, monkeypatch):
    spy = Spy(monkeypatch, "filled_potential")
    method.step(batch_at(10, target))
    used = spy.settings[0]
    assert (used["epsilon"], used["marginal_penalty"], used["similarity_threshold"]) == (0.01, 0.5, 0.7)


def test_n_of_eq_7_counts_batch_queue_sample_and_filling(method, target, monkeypatch):
    spy = Spy(monkeypatch, "filled_potential")
    method.step(batch_at(10, target))
    rows, counts = spy.args[0][0], spy.settings[0]["counts"]
    n_positive = int(counts[rows.amax(dim=1) > 0.7].sum())
    assert spy.answers[0].n_rows in (B + QUEUE, B + QUEUE + abs(B + QUEUE - 2 * n_positive))


def test_detection_is_eq_7_row_by_row(method, target, monkeypatch):
    spy = Spy(monkeypatch, "filled_potential")
    batch = batch_at(10, target)
    losses = method.step(batch)
    potential, cosines = spy.answers[0], spy.args[0][0][:B]
    mass = potential.log_mass(cosines).exp()
    expected = []
    for row in mass:
        nearest = int(row.argmax())
        is_common = float(row[nearest]) >= 1 / potential.n_rows and potential.class_confidence[nearest] >= 1 / C
        expected.append(nearest if is_common else -1)
    assert losses.detected.tolist() == expected
    assert losses.notes["detected"] == pytest.approx(sum(label >= 0 for label in expected) / B)


def test_common_loss_is_that_of_the_detected_rows_one_by_one(method, target, monkeypatch):
    batch = batch_at(10, target)
    cosines = (method.features(batch.target) @ method.loss.classes.weight.t()).detach()
    # Two classes carry the mass, and a small n makes the rows' test easy: some rows pass, some do not.
    monkeypatch.setattr(
        method.loss.common, "solve", lambda *a, **kw: unbalanced_potential(cosines, torch.tensor([0.6, 0.3, 0.1, 0.0]))
    )
    losses = method.step(batch)
    chosen = [(i, label) for i, label in enumerate(losses.detected.tolist()) if label >= 0]
    assert 0 < len(chosen) < B
    expected = 0.0
    for i, label in chosen:
        logits = (cosines[i] / 0.1).tolist()
        expected += math.log(sum(math.exp(x) for x in logits)) - logits[label]
    assert float(losses.parts["common"].detach()) == pytest.approx(expected / len(chosen), rel=1e-4)


def test_batch_without_any_common_sample_has_zero_loss_and_finite_gradients(method, target, monkeypatch):
    monkeypatch.setattr(method.loss.common, "solve", lambda *a, **kw: potential_that_says([0.25] * 4, n_rows=1))
    # With n = 1 the mean mass is one, which no row reaches.
    monkeypatch.setattr(UnbalancedPotential, "log_mass", lambda self, s: s.double() - 10)
    losses = method.step(batch_at(10, target))
    assert losses.detected.tolist() == [-1] * B
    assert losses.notes["detected"] == 0
    assert float(losses.parts["common"].detach()) == 0
    losses.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


def test_next_step_starts_from_the_potential_of_the_one_before(method, target, monkeypatch):
    spy = Spy(monkeypatch, "filled_potential")
    method.step(batch_at(10, target))
    found = spy.answers[0].class_potential.clone()
    assert torch.equal(method.loss.common.potential, found)
    method.step(batch_at(11, target))
    assert spy.settings[1]["start"] is method.loss.common.potential


# --- the test rule ----------------------------------------------------------------------------------------


def test_test_rule_uses_the_trained_class_mass_and_no_column_test(method):
    # Class 0 takes nearly everything, so no other class passes the column test; yet a clear sample of class 3
    # is known, for the test rule looks at rows alone.
    with torch.no_grad():
        method.loss.classes.weight.copy_(F.pad(torch.eye(4), (0, 2)))
    method.loss.common.class_mass.copy_(torch.tensor([0.85, 0.05, 0.05, 0.05]))
    features = F.normalize(F.pad(torch.eye(4)[[0] * 10 + [3]], (0, 2)) + 0.02, dim=1)
    cosines = method.loss.classes(features).detach()
    potential = method.loss.common.solve(cosines, method.loss.classes, torch.Generator().manual_seed(0))
    answer = potential.assign(cosines)
    assert not bool(potential.common_classes()[3])
    assert bool(answer.known[10])
    assert answer.nearest.tolist() == [0] * 10 + [3]


def test_rule_decides_as_the_exact_solution_does_next_to_its_border(method):
    features = F.normalize(torch.randn(400, 6, generator=torch.Generator().manual_seed(2)), dim=1)
    method.finalize(FinalFeatures.of_target(features, torch.Generator().manual_seed(0)))
    cosines = features.double() @ method.loss.classes.weight.detach().double().t()
    exact = method.loss.common.solve(cosines, method.loss.classes, torch.Generator().manual_seed(0), tolerance=1e-13)
    shares = method.decide(features).odds.max(dim=1).values
    expected = exact.log_mass(cosines).exp().max(dim=1).values * exact.n_rows
    torch.testing.assert_close(shares, expected, rtol=1e-6, atol=0)


def test_class_of_a_test_sample_is_the_row_argmax_of_the_plan(method):
    method.loss.common.class_mass.copy_(torch.tensor([0.97, 0.01, 0.01, 0.01]))
    # Equally similar to classes 0 and 1: the trained mass decides for class 0.
    cosines = torch.tensor([[0.50, 0.50, -0.5, -0.5]]).expand(6, 4)
    answer = method.loss.common.solve(cosines, method.loss.classes, torch.Generator().manual_seed(0)).assign(cosines)
    assert answer.nearest.tolist() == [0] * 6


def test_test_rule_leaves_the_method_as_it_is(method, target):
    before = {name: value.clone() for name, value in method.state_dict().items()}
    cosines = method.loss.classes(method.features(target)).detach()
    method.loss.common.solve(cosines, method.loss.classes, torch.Generator().manual_seed(0))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


# --- private-class discovery ------------------------------------------------------------------------------


def swav_codes(similarity, epsilon=0.05, iterations=3):
    q = torch.exp(similarity.double() / epsilon)
    for _ in range(iterations):
        q = q / q.sum(dim=0, keepdim=True)
        q = q / q.sum(dim=1, keepdim=True)
    return q


def test_balanced_problem_has_the_references_values_on_cosines_not_divided_by_tau(method, target, monkeypatch):
    spy = Spy(monkeypatch, "balanced_plan")
    method.step(batch_at(0, target))
    rows, epsilon, iterations = spy.args[0]
    assert (epsilon, iterations) == (0.05, 3)
    assert float(rows.abs().max()) <= 1 + 1e-6


def test_balanced_rows_are_batch_neighbours_and_k_rows_of_the_queue(method, target, monkeypatch):
    spy = Spy(monkeypatch, "balanced_plan")
    batch = batch_at(0, target)
    features = method.features(batch.target).detach()
    queued = method.loss.clusters(method.loss.queue.features).detach()
    neighbours = naive_neighbours(features, batch.target_ids, method.loss.queue)
    method.step(batch)
    rows = spy.args[0][0]
    assert len(rows) == 2 * B + K
    expected = method.loss.clusters(torch.cat([features, neighbours])).detach()
    assert rows[: 2 * B].numpy() == pytest.approx(expected.numpy(), abs=1e-6)
    distance = (rows[2 * B :, None] - queued).abs().amax(dim=2)
    assert float(distance.amin(dim=1).max()) < 1e-6


def naive_neighbours(anchors, ids, queue):
    found = []
    for i, anchor in enumerate(anchors):
        others = [f for f, j in zip(queue.features, queue.ids, strict=True) if int(j) != int(ids[i])]
        others += [f for j, f in enumerate(anchors) if j != i]
        found.append(max(others, key=lambda other: float(anchor @ other)))
    return torch.stack(found)


def test_queue_rows_of_the_balanced_problem_are_drawn_anew_in_every_step(method, target, monkeypatch):
    spy = Spy(monkeypatch, "balanced_plan")
    with torch.no_grad():
        for seed in range(2):
            batch = batch_at(0, target)
            generator = torch.Generator().manual_seed(seed)
            features = method.features(batch.target)
            method.loss.private(features, batch.target_ids, method.loss.clusters, method.loss.queue, generator)
    assert not torch.equal(spy.args[0][0][2 * B :], spy.args[1][0][2 * B :])
    assert torch.equal(spy.args[0][0][: 2 * B], spy.args[1][0][: 2 * B])


def test_private_loss_and_its_gradient_are_those_of_constant_codes(method, target, monkeypatch):
    spy = Spy(monkeypatch, "balanced_plan")
    batch = batch_at(0, target)
    features = method.features(batch.target).detach().requires_grad_()
    loss = method.loss.private(features, batch.target_ids, method.loss.clusters, method.loss.queue, batch.generator)
    loss.backward()

    again = features.detach().clone().requires_grad_()
    codes = swav_codes(spy.args[0][0])
    cosines = method.loss.clusters(again) / 0.1
    neighbours = module.nearest_neighbours(again, batch.target_ids, method.loss.queue)
    neighbour_cosines = method.loss.clusters(neighbours) / 0.1
    expected = torch.zeros(())
    for i in range(B):
        own = -(codes[i] * cosines[i].log_softmax(0)).sum()
        to_neighbour = -(codes[B + i] * cosines[i].log_softmax(0)).sum()
        to_anchor = -(codes[i] * neighbour_cosines[i].log_softmax(0)).sum()
        expected = expected + (own + (to_neighbour + to_anchor) / 2) / 2 / B
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    assert features.grad.numpy() == pytest.approx(again.grad.numpy(), abs=1e-4)


def test_target_of_a_single_sample_can_be_stepped(target):
    method = build(target)
    one = target[:1]
    method.loss.queue.push(method.features(one).detach().expand(QUEUE, -1), torch.zeros(QUEUE, dtype=torch.long))
    batch = dataclasses.replace(batch_at(10, target), target=one, target_ids=torch.tensor([0]))
    losses = method.step(batch)
    losses.total.backward()
    assert math.isfinite(float(losses.total.detach()))


# --- state ------------------------------------------------------------------------------------------------


def test_queue_takes_the_batch_after_the_step_and_drops_the_oldest(method, target):
    batch = batch_at(0, target)
    features = method.features(batch.target).detach()
    kept = method.loss.queue.ids[B:].tolist()
    method.step(batch)
    assert method.loss.queue.ids.tolist() == batch.target_ids.tolist() + kept
    assert torch.equal(method.loss.queue.features[:B], features)


def test_method_is_prepared_when_its_queue_is_full(target):
    torch.manual_seed(0)
    method = create_method(settings_of(), D, C)
    for start in range(0, QUEUE, B):
        assert not method.is_prepared()
        method.prepare(target[start : start + B], torch.arange(start, start + B))
    assert method.is_prepared()
    assert method.loss.queue.features.norm(dim=1).tolist() == pytest.approx([1] * QUEUE, abs=1e-5)


def test_prototypes_are_back_on_the_sphere_after_a_step(method, target):
    optimiser = torch.optim.SGD(method.parameters(), lr=1.0)
    method.step(batch_at(10, target)).total.backward()
    optimiser.step()
    assert float((method.loss.classes.weight.detach().norm(dim=1) - 1).abs().max()) > 1e-3
    method.after_step()
    for prototypes in (method.loss.classes, method.loss.clusters):
        assert prototypes.weight.norm(dim=1).tolist() == pytest.approx([1.0] * len(prototypes.weight), abs=1e-6)


def test_everything_that_the_next_step_needs_is_saved_with_the_weights(method, target):
    for step in range(4, 7):
        method.step(batch_at(step, target, seed=step))
    torch.manual_seed(99)
    other = create_method(settings_of(), D, C)
    other.load_state_dict(method.state_dict())
    one, two = (m.step(batch_at(7, target, seed=7)) for m in (method, other))
    assert torch.equal(one.total, two.total)
    assert torch.equal(one.detected, two.detected)
    assert torch.equal(method.loss.common.class_mass, other.loss.common.class_mass)


def test_backbone_learns_at_its_own_rate_and_all_else_at_the_full_one():
    backbone = torch.nn.Linear(3, D)
    method = create_method(settings_of(), D, C, backbone)
    heads, of_backbone = parameter_groups(method, backbone, method.settings.resolved(N_TARGET))
    assert (heads["lr"], of_backbone["lr"]) == (0.01, 0.001)
    assert {id(p) for p in of_backbone["params"]} == {id(p) for p in backbone.parameters()}
    assert len(heads["params"]) + len(of_backbone["params"]) == len(list(method.parameters()))


def test_method_on_embeddings_has_no_backbone_group(method):
    assert len(parameter_groups(method, method.backbone, method.settings)) == 1
