"""The two stages of a source-free method: what each of them reads, changes and stores."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.base import Batch
from uniot.methods.glc import GLC, GLCOptions
from uniot.methods.lead import LEAD
from uniot.methods.pseudo_labels import estimate_clusters, soft_labels
from uniot.methods.source_free import SourceFreeOptions, TargetBatch, stage_rate
from uniot.training.loop import parameter_groups

D, C, B, STEPS, N = 6, 3, 8, 12, 24
TARGET = 3 * torch.eye(D)[torch.arange(N) % 4] + 0.3 * torch.randn(N, D, generator=torch.Generator().manual_seed(1))


def build(*, queue_size: int = N, steps: int = STEPS, **options) -> GLC:
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=5, steps=steps, queue_size=queue_size, batch_size=B, learning_rate=0.1)
    return GLC(D, C, settings, GLCOptions(**options))


def batch_at(step: int, ids: list[int] | None = None) -> Batch:
    """Classes along axes; the target has those of the source and one along a further axis."""
    generator = torch.Generator().manual_seed(step)
    labels = torch.arange(B) % C
    chosen = torch.arange(B) + B * (step % (N // B)) if ids is None else torch.tensor(ids)
    return Batch(
        source=3 * torch.eye(D)[labels] + 0.3 * torch.randn(B, D, generator=generator),
        source_labels=labels,
        target=TARGET[chosen],
        target_ids=chosen,
        step=step,
        generator=generator,
    )


def train(method: GLC, first: int = 0, last: int = STEPS) -> list:
    """Train as the loop does, with momentum and weight decay; return the losses."""
    settings = method.settings.model_copy(update={"learning_rate": 0.1, "backbone_learning_rate": 0.01})
    optimiser = torch.optim.SGD(
        parameter_groups(method, method.backbone, settings), lr=0.1, momentum=0.9, weight_decay=0.01
    )
    found = []
    for step in range(first, last):
        found.append(method.step(batch_at(step)))
        optimiser.zero_grad()
        found[-1].total.backward()
        optimiser.step()
    return found


def networks(method: GLC, *parts: str) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items() if name.startswith(parts)}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, two[name]) for name, value in one.items())


# Stages.


def test_stage_of_the_source_is_its_cross_entropy_with_smoothed_labels():
    method = build(label_smoothing=0.3)
    batch = batch_at(0)
    losses = method.step(batch)
    logits = method.classifier(build().project(batch.source, learning=True))
    # A class has 1 - 0.3 + 0.3 / 3 = 0.8, each other one 0.1.
    wanted = 0.1 + 0.7 * F.one_hot(batch.source_labels, C)
    expected = -(wanted * logits.log_softmax(dim=1)).sum(dim=1).mean()
    assert float(losses.parts["source"].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert float(losses.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert losses.detected is None


def test_half_of_the_steps_train_the_source_model():
    method = build()
    losses = train(method)
    assert [bool(part.parts["source"] > 0) for part in losses] == [True] * 6 + [False] * 6
    assert [bool(part.parts["neighbours"] > 0) for part in losses] == [False] * 6 + [True] * 6
    assert build(source_share=0.25).source_steps == 3
    assert build(source_share=0.01).source_steps == 1


def test_classifier_does_not_move_in_the_stage_of_the_target_and_the_bottleneck_does():
    method = build()
    train(method, last=6)
    classifier, bottleneck = networks(method, "classifier."), networks(method, "bottleneck.", "norm.")
    optimiser = torch.optim.SGD(method.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for parameter in method.parameters():
        # What momentum is left of the stage before.
        optimiser.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
    for step in range(6, STEPS):
        optimiser.zero_grad()
        method.step(batch_at(step)).total.backward()
        optimiser.step()
    assert same(classifier, networks(method, "classifier."))
    for name in ("bottleneck.weight", "norm.weight", "norm.running_mean"):
        assert not torch.equal(bottleneck[name], networks(method, "")[name]), name


def test_stage_of_the_target_reads_no_source():
    one, two = build(), build()
    for method in (one, two):
        train(method, last=6)
    with_source = one.step(batch_at(6))
    without = dataclasses.replace(batch_at(6), source=torch.full((B, D), torch.nan), source_labels=torch.full((B,), -1))
    assert torch.equal(two.step(without).total, with_source.total)


def test_weight_of_the_target_stage_scales_its_gradients():
    one, two = build(target_rate=0.1), build(target_rate=1.0)
    for method in (one, two):
        train(method, last=6)
    assert float(two.step(batch_at(6)).total.detach()) == pytest.approx(
        10 * float(one.step(batch_at(6)).total.detach()), rel=1e-5
    )


@pytest.mark.parametrize(("first", "last"), [(0, 500), (500, 1000)])
def test_learning_rate_decays_over_each_stage_as_over_a_run(first, last):
    for step in (first, first + 250, last):
        of_run = (1 + 10 * step / 1000) ** -0.75
        # (1 + 10 · 0)^-0.75, (1 + 10 · ½)^-0.75 and (1 + 10)^-0.75.
        expected = {0: 1.0, 250: 0.26084743, 500: 0.16556002}[step - first]
        assert of_run * stage_rate(step, first, last, 1000) == pytest.approx(expected, rel=1e-6)


def test_stage_of_the_whole_run_changes_no_rate():
    assert [stage_rate(step, 0, 10, 10) for step in range(10)] == pytest.approx([1.0] * 10)


# Stored samples.


def test_stage_of_the_source_ends_with_every_target_sample_stored_by_running_statistics():
    method = build()
    train(method, last=5)
    method.step(batch_at(5))
    assert sorted(method.bank.ids.tolist()) == list(range(N))
    newest = method.bank.rows[[int((method.bank.ids == i).nonzero()) for i in batch_at(5).target_ids]]
    assert newest.numpy() == pytest.approx(method.features(batch_at(5).target).detach().numpy(), abs=1e-5)


def test_stage_of_the_target_stores_its_samples_by_running_statistics():
    method = build()
    train(method, last=6)
    batch = batch_at(6)
    method.step(batch)
    newest = method.bank.rows[[int((method.bank.ids == i).nonzero()) for i in batch.target_ids]]
    assert newest.numpy() == pytest.approx(method.features(batch.target).detach().numpy(), abs=1e-5)
    by_batch = method.project(batch.target, learning=True).detach()
    assert float((newest - by_batch).abs().max()) > 0.01


def test_target_is_stored_only_in_the_last_steps_that_the_bank_has_room_for():
    method = build(steps=40)
    for step in range(17):
        method.step(batch_at(step))
    # The bank has room for 24 samples, three batches, and stage 1 has 20 steps.
    assert not len(method.bank.ids)
    method.step(batch_at(17))
    assert int((method.bank.ids >= 0).sum()) == B


def test_pseudo_labels_are_made_once_an_epoch(monkeypatch):
    method, rounds = build(), []
    monkeypatch.setattr(GLC, "pseudo_labels", lambda self, features, _: rounds.append(len(features)) or torch.tensor(0))
    for step in range(STEPS):
        method.step(batch_at(step))
        # 24 stored samples are three batches; stage 2 begins at step 6.
        assert len(rounds) == (0 if step < 6 else 1 + (step - 6) // 3)
    assert method.rounds.tolist() == [2, 9]
    assert rounds == [N, N]


def test_clusters_are_counted_once_by_glc_and_every_tenth_epoch_by_lead(monkeypatch):
    counted = []
    monkeypatch.setattr(
        "uniot.methods.source_free.estimate_clusters", lambda rows, c, multiples: counted.append(multiples) or 4
    )
    settings = Settings.checked(feature_size=5, steps=66, queue_size=N, batch_size=B)
    for build_method, times, n_multiples in ((GLC, 1, 5), (LEAD, 2, 8)):
        counted.clear()
        options = GLCOptions() if build_method is GLC else SourceFreeOptions()
        method = build_method(D, C, settings, options)
        for step in range(66):
            method.step(batch_at(step))
        # Stage 2 has 33 steps, eleven epochs.
        assert int(method.rounds[0]) == 11
        assert [len(multiples) for multiples in counted] == [n_multiples] * times
        assert int(method.n_clusters) == 4


def test_sample_is_never_its_own_neighbour_unless_it_is_alone():
    method = build(n_neighbours=2)
    rows = torch.eye(5)[[0, 0, 1]] + 0.01 * torch.eye(5)[[0, 1, 0]]
    method.bank.put(rows, torch.tensor([7, 8, 9]))
    places, near = method._places(rows[:1], torch.tensor([7]))
    assert places.tolist() == [0]
    assert near.tolist() == [[1, 2]]
    alone = build(n_neighbours=2)
    alone.bank.put(rows[:1], torch.tensor([7]))
    assert alone._places(rows[:1], torch.tensor([7]))[1].tolist() == [[0]]


def test_sample_that_is_not_stored_takes_the_pseudo_label_of_its_nearest_neighbour():
    method = build(queue_size=B)
    train(method, last=7)
    stored = set(method.bank.ids.tolist())
    batch = batch_at(7)
    assert not stored & set(batch.target_ids.tolist())
    with torch.no_grad():
        copy = build(queue_size=B)
        copy.load_state_dict(method.state_dict())
        copy.project(batch.target, learning=True)
        now = F.normalize(copy.features(batch.target), dim=1)
    nearest = (now @ F.normalize(method.bank.rows, dim=1).t()).argmax(dim=1)
    method.rounds[1] = 7
    expected = method.bank.labels[nearest].tolist()
    detected = method.step(batch).detected
    assert detected.tolist() == [label if label < C else -1 for label in expected]
    places = [int((method.bank.ids == i).nonzero()) for i in batch.target_ids]
    assert method.bank.labels[places].tolist() == expected


def test_neighbour_loss_and_pseudo_label_loss_worked_by_hand():
    method = build(pseudo_weight=0.3)
    with torch.no_grad():
        method.classifier.direction.copy_(torch.eye(5)[:C])
        method.classifier.length.fill_(1)
    ln = math.log
    # Probabilities ½, ¼, ¼ and of the two neighbours (½, ¼, ¼) and (¼, ¼, ½), with the mean (⅜, ¼, ⅜).
    features = torch.tensor([[ln(2), 0, 0, 0, 0], [ln(2), 0, 0, 0, 0]])
    neighbours = torch.tensor([[[ln(2), 0, 0, 0, 0], [0, 0, ln(2), 0, 0]]] * 2)
    target = TargetBatch(features, method.classifier(features), torch.tensor([1, C]), features, neighbours)
    losses = method.target_losses(target)
    # ⅜ ln 2 + ¼ ln 4 + ⅜ ln 4 = 1.625 ln 2.
    assert float(losses["neighbours"].detach()) == pytest.approx(1.625 * ln(2), rel=1e-5)
    # Class 1: ln 4 = 2 ln 2. Unknown: (ln 2 + 2 ln 4) / 3 = 5/3 ln 2. Mean: 11/6 ln 2.
    assert float(losses["pseudo"].detach()) == pytest.approx(11 / 6 * ln(2), rel=1e-5)
    assert method.loss_weights() == {"pseudo": 0.3, "neighbours": 1.0}


def test_losses_of_the_target_have_the_right_gradient():
    method = build().double()
    method.classifier.requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    neighbours = torch.randn(4, 2, 5, generator=generator, dtype=torch.float64)
    features = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        target = TargetBatch(rows, method.classifier(rows), torch.tensor([0, 1, 2, C]), rows.detach(), neighbours)
        return torch.stack(list(method.target_losses(target).values())).sum()

    assert torch.autograd.gradcheck(loss, features)


def test_total_of_a_target_step_is_the_weighted_sum_of_its_parts():
    losses = train(build(pseudo_weight=0.7))[6:]
    for step, found in enumerate(losses, start=6):
        parts = {name: float(part.detach()) for name, part in found.parts.items()}
        rate = 0.1 * stage_rate(step, 6, STEPS, STEPS)
        expected = rate * (0.7 * parts["pseudo"] + parts["neighbours"])
        assert float(found.total.detach()) == pytest.approx(expected, rel=1e-5)
        assert parts["source"] == 0


# A source model that is given.


def test_given_source_model_is_adapted_from_the_first_step():
    trained = build(source_share=1)
    train(trained)
    method = build()
    method.load_source(trained.state_dict())
    assert method.source_steps == 0
    assert same(networks(trained, "bottleneck.", "norm.", "classifier."), networks(method, ""))
    step = 0
    while not method.is_prepared():
        batch = batch_at(step)
        method.prepare(batch.target, batch.target_ids)
        step += 1
    assert sorted(method.bank.ids.tolist()) == list(range(N))
    assert method.bank.labels.tolist() == [-1] * N
    classifier = networks(method, "classifier.")
    losses = train(method, last=3)
    assert all(float(found.parts["source"]) == 0 for found in losses)
    assert same(classifier, networks(method, ""))


def test_checkpoint_remembers_that_the_source_model_was_given():
    method, other = build(), build()
    method.load_source(build().state_dict())
    other.load_state_dict(method.state_dict())
    assert other.source_steps == 0
    assert build().source_steps == 6


def test_bank_is_prepared_when_a_sample_comes_again_or_no_room_is_left():
    small = build(queue_size=2 * B)
    large = build(queue_size=5 * N)
    for method in (small, large):
        assert method.is_prepared()
        method.load_source(build().state_dict())
        assert not method.is_prepared()
    for batch in (batch_at(0), batch_at(1)):
        assert not small.is_prepared()
        small.prepare(batch.target, batch.target_ids)
    assert small.is_prepared()
    for step in range(N // B):
        large.prepare(batch_at(step).target, batch_at(step).target_ids)
        assert not large.is_prepared()
    large.prepare(batch_at(0, [3, 1, 2]).target, torch.tensor([3, 1, 2]))
    assert large.is_prepared()


def test_source_model_of_other_sizes_is_refused():
    settings = Settings.checked(feature_size=5, steps=STEPS, queue_size=N, batch_size=B)
    other = GLC(D, C + 1, settings, GLCOptions())
    before = networks(other, "")
    with pytest.raises(SettingsError, match=r"has \(3,\) for classifier.bias, expected \(4,\).*same classes"):
        other.load_source(build().state_dict())
    assert same(before, networks(other, ""))
    with pytest.raises(SettingsError, match="has nothing for bottleneck.bias"):
        build().load_source({})
    trained_backbone = GLC(D, C, settings, GLCOptions(), torch.nn.Linear(D, D))
    with pytest.raises(SettingsError, match="for backbone.bias, expected nothing"):
        build().load_source(trained_backbone.state_dict())


def test_model_of_one_source_free_method_is_a_source_model_of_another():
    settings = Settings.checked(feature_size=5, steps=STEPS, queue_size=N, batch_size=B)
    lead = LEAD(D, C, settings, SourceFreeOptions())
    lead.load_source(build().state_dict())
    assert same(networks(build(), "classifier."), networks(lead, ""))


# The rule, and small functions.


def test_sample_is_unknown_if_its_entropy_is_above_the_threshold():
    method = build()
    with torch.no_grad():
        method.classifier.direction.copy_(torch.eye(5)[:C])
        method.classifier.length.fill_(1)
    # Entropies over ln 3: of (0.8, 0.1, 0.1) 0.582, of (0.84, 0.08, 0.08) 0.501, of three equal ones 1.
    features = torch.tensor([[math.log(8), 0, 0, 0, 0], [math.log(10.5), 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    assert method.decide(features).known.tolist() == [False, True, False]
    strict = build(entropy_threshold=0.45)
    strict.load_state_dict(method.state_dict())
    assert strict.decide(features).known.tolist() == [False, False, False]


def test_pseudo_label_of_an_unknown_sample_is_uniform():
    expected = torch.tensor([[0, 1.0], [0.5, 0.5], [1.0, 0]])
    assert torch.equal(soft_labels(torch.tensor([1, 2, 0]), 2), expected)


@pytest.mark.medium
def test_clusters_that_are_far_apart_are_counted():
    generator = torch.Generator().manual_seed(0)
    rows = torch.eye(8)[torch.arange(200) % 4] + 0.05 * torch.randn(200, 8, generator=generator)
    features = F.normalize(rows, dim=1)
    assert estimate_clusters(features, 4, (0.5, 1, 2, 3)) == 4
    assert estimate_clusters(features, 2, (0.25, 0.5, 1, 2, 3)) == 4
    assert estimate_clusters(features, 8, (0.25, 0.5, 1, 2, 3)) == 4


def test_few_samples_have_the_fewest_clusters_and_never_fewer_than_two():
    rows = F.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    assert estimate_clusters(rows, 3, (0.25, 1, 2)) == 2
    assert estimate_clusters(rows, 20, (0.25, 0.5, 1)) == 5


def test_equal_samples_can_be_counted():
    rows = F.normalize(torch.ones(40, 4), dim=1)
    assert estimate_clusters(rows, 3, (0.25, 1, 2)) == 2
    # All but two are equal.
    rows[:2] = torch.eye(4)[:2]
    assert 2 <= estimate_clusters(rows, 3, (0.25, 1, 2)) <= 6


def test_forgotten_samples_leave_no_feature_behind_and_change_no_decision():
    method = build()
    train(method)
    before = method.decide(method.features(TARGET))
    method.forget_samples()
    assert not len(method.bank.rows)
    assert torch.equal(method.decide(method.features(TARGET)).odds, before.odds)
