"""UniJDOT: cost, plan, loss, score and threshold against the authors' code, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.losses import anchored_joint_cost, anchored_transport_loss
from uniot.methods import resolved_settings
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.registry import create_method
from uniot.methods.unijdot import UniJDOT, moved_anchors, penalised_plan, yen_threshold

# The lines of UniJDOT.training_epoch, ClassMemoryQueue.compute_distances, joint_decision and update_centroids_target of
# RomainMsrd/UniDABench (algorithms/algorithms.py and models/models.py, commit da3e5cf), run without .cuda() on the
# arrays of `arrays` with α 2.8 and λ 1.35; POT 0.9.7.post1 and scikit-image 0.26.0 did the transport and the threshold.
OFFICIAL = {
    "cost": 323.5787658691406,
    "mass": 0.010328475746425909,
    "loss": 0.022102997122250327,
    "score": [0.31539031863212585, 0.43957415223121643, 0.42142823338508606, 0.31920990347862244, 0.3544604480266571],
    "anchors": [-1.7400319576263428, -1.0668505430221558, -0.7394368648529053],
    "thresholds": [0.31142718, 0.1203125],
}


def arrays():
    random = np.random.default_rng(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(random.normal(size=shape)).float()

    source, target, anchors = F.normalize(normal(6, 5), dim=1), F.normalize(normal(5, 5), dim=1), normal(3, 5)
    labels, logits = torch.from_numpy(random.integers(0, 4, 6)), normal(5, 4) * 2
    values = torch.from_numpy(random.beta(2, 5, size=200).astype(np.float32))
    return source, target, anchors, labels, logits, values, F.normalize(normal(4, 3, 5), dim=2)


UNKNOWN = torch.tensor([False, True, False, False, True])
MASSES = torch.cat([torch.full((6,), 0.5 / 6), torch.full((3,), 0.5 / 3)]), torch.full((5,), 0.2)


def build(**options) -> UniJDOT:
    settings = Settings.checked(method="unijdot", feature_size=5, steps=10, batch_size=4, method_options=options)
    torch.manual_seed(0)
    method = create_method(resolved_settings(settings, 40), 7, 4)
    assert isinstance(method, UniJDOT)
    return method


def batch(step: int, n_classes: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(step)
    source, target = torch.randn(2, 6, 7, generator=generator)
    return Batch(source, torch.arange(6) % n_classes, target, torch.arange(6) + 6 * step, step, generator)


def test_cost_and_loss_are_those_of_the_authors_code():
    source, target, anchors, labels, logits, *_ = arrays()
    cost = anchored_joint_cost(source, target, anchors, labels, logits, UNKNOWN, 2.8, 1.35)
    assert cost.sum().item() == pytest.approx(OFFICIAL["cost"], rel=1e-6)
    plan = penalised_plan(cost, *MASSES)
    assert plan.sum().item() == pytest.approx(OFFICIAL["mass"], abs=1e-5, rel=1e-5)
    assert anchored_transport_loss(cost, plan, 6, UNKNOWN).item() == pytest.approx(OFFICIAL["loss"], abs=1e-5)


def test_score_is_that_of_the_authors_code():
    _, target, *_, memory = arrays()
    logits = arrays()[4]
    method = build(memory_size=3)
    method.source_features.copy_(memory)
    method.counts.fill_(3)
    score = (logits * method.closeness(target)).softmax(dim=1).amax(dim=1)
    assert score.tolist() == pytest.approx(OFFICIAL["score"], abs=1e-5)


def test_anchors_move_as_in_the_authors_code():
    _, target, anchors, *_ = arrays()
    assert moved_anchors(anchors, target).sum(dim=1).tolist() == pytest.approx(OFFICIAL["anchors"], abs=1e-5)


def test_threshold_is_that_of_scikit_image():
    few = torch.tensor([0.1, 0.12, 0.11, 0.8, 0.82, 0.9])
    found = [yen_threshold(values) for values in (arrays()[5], few)]
    assert found == pytest.approx(OFFICIAL["thresholds"], abs=1e-5)
    assert yen_threshold(torch.full((3,), 0.25)) == 0.25


def test_plan_worked_by_hand():
    # One sample each: ⟨γ, M⟩ + 2 τ KL(γ | 1) is least at γ = exp(-M / 2τ).
    plan = penalised_plan(torch.tensor([[0.3]]), torch.ones(1), torch.ones(1), 0.5)
    assert plan.item() == pytest.approx(math.exp(-0.3), abs=1e-6)


def test_cost_worked_by_hand():
    # Known sample: D = 1 and, for p = (1/2, 1/2), L = √½. Unknown sample: D = 3, and p is even. Elsewhere the largest.
    source, target, anchors = torch.zeros(1, 1), torch.tensor([[1.0], [2.0]]), torch.tensor([[5.0]])
    given = source, target, anchors, torch.tensor([0]), torch.zeros(2, 2), torch.tensor([False, True])
    cost = anchored_joint_cost(*given, 1.0, 2.0)
    half = math.sqrt(0.5)
    expected = torch.tensor([[1 + 2 * half, 3 + 2 * half], [3 + 2 * half, 3.0]])
    assert torch.allclose(cost, expected, atol=1e-5)


def test_transport_moves_features_of_both_domains_and_not_the_anchors():
    source, target, anchors, labels, logits, *_ = arrays()
    moved = [rows.requires_grad_(True) for rows in (source, target, logits)]
    cost = anchored_joint_cost(source, target, anchors.requires_grad_(True), labels, logits, UNKNOWN, 2.8, 1.35)
    anchored_transport_loss(cost, torch.ones(9, 5), 6, UNKNOWN).backward()
    assert all(bool(rows.grad.abs().sum() > 0) for rows in moved)
    # A source sample is drawn to known samples alone, and an unknown sample to anchors alone.
    gradient = moved[1].grad.clone()
    cost = anchored_joint_cost(source, target, anchors, labels, logits, torch.ones(5, dtype=torch.bool), 2.8, 1.35)
    moved[0].grad = None
    anchored_transport_loss(cost, torch.ones(9, 5), 6, torch.ones(5, dtype=torch.bool)).backward()
    assert moved[0].grad is None or float(moved[0].grad.abs().sum()) == 0
    assert not torch.equal(gradient, moved[1].grad)


@pytest.mark.parametrize("unknown", [torch.zeros(5, dtype=torch.bool), torch.ones(5, dtype=torch.bool)])
def test_batches_without_known_or_without_unknown_samples_have_a_finite_loss(unknown):
    source, target, anchors, labels, logits, *_ = arrays()
    cost = anchored_joint_cost(source, target, anchors, labels, logits, unknown, 2.8, 1.35)
    loss = anchored_transport_loss(cost, penalised_plan(cost, *MASSES), 6, unknown)
    assert bool(loss.isfinite())
    assert loss > 0


def test_no_target_has_no_loss_and_one_class_no_label_cost():
    source, target, anchors, labels, logits, *_ = arrays()
    nothing = torch.zeros(0, dtype=torch.bool)
    cost = anchored_joint_cost(source, target[:0], anchors, labels, logits[:0], nothing, 2.8, 1.35)
    assert anchored_transport_loss(cost, cost, 6, nothing).item() == 0
    one = anchored_joint_cost(source, target, anchors, labels * 0, logits[:, :1], UNKNOWN, 0.0, 1.0)
    assert one.abs().max().item() == 0


def test_memory_keeps_the_latest_features_of_each_class():
    method = build(memory_size=2)
    rows = torch.arange(1.0, 6)[:, None].expand(5, 5)
    method.remember(rows, torch.tensor([0, 0, 1, 0, 0]))
    assert sorted(method.source_features[0, :, 0].tolist()) == [4, 5]
    assert method.source_features[1, :, 0].tolist() == [3, 0]
    method.remember(rows[:1] * 9, torch.tensor([0]))
    assert sorted(method.source_features[0, :, 0].tolist()) == [5, 9]


def test_pretraining_is_the_source_alone_and_clusters_the_target_at_its_end():
    method = build(n_clusters=3)
    for step in range(6):
        losses = method.step(batch(step))
        assert bool(losses.total.isfinite())
        # Five of ten steps.
        assert (losses.parts["transport"] > 0) == (step >= 5)
    assert torch.allclose(method.anchors.norm(dim=1), torch.ones(3), atol=0.2)
    assert len(method.target_bank.ids) == 0
    assert losses.total.item() == pytest.approx(0.1 * losses.parts["source"].item() + losses.parts["transport"].item())


def test_rule_is_yens_threshold_of_the_whole_target():
    method = build()
    method.step(batch(0))
    features = method.features(torch.randn(30, 7, generator=torch.Generator().manual_seed(3))).detach()
    method.finalize(FinalFeatures.of_target(features))
    assert float(method.threshold) == pytest.approx(yen_threshold(method.score(features)))
    assert method.decide(features).known.tolist() == (method.score(features).double() >= method.threshold).tolist()


@pytest.mark.medium
def test_a_target_without_private_classes_keeps_its_order():
    toy = make_toy_domains(n_common=4, n_source_private=2, n_target_private=0, samples_per_class=20, seed=1)
    model = UniDAClassifier("unijdot", steps=60, feature_size=16, n_private_classes=1, random_state=0)
    model.fit(toy.x_source, toy.y_source, toy.x_target)
    nearest = model.classes_[model.model_.target.nearest]
    assert (nearest == toy.oracle_y_target).mean() > 0.8
