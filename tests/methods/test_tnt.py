"""TNT: thresholds from the source, the rule, and which neighbours are drawn together."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.losses import evidence, evidential_loss, evidential_uncertainty
from uniot.methods.base import Batch
from uniot.methods.tnt import INFO, TNT, TNTOptions

D, C, B, STEPS = 4, 3, 6, 20


def build(**options) -> TNT:
    torch.manual_seed(0)
    return TNT(D, C, Settings.checked(feature_size=D, steps=STEPS, queue_size=24, batch_size=B), TNTOptions(**options))


def by_hand(method: TNT) -> TNT:
    """Features are the inputs, and the first three of them are the logits."""
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(len(layer.weight), D))
            layer.bias.zero_()
    return method


def batch_at(step: int, source: torch.Tensor | None = None, target: torch.Tensor | None = None) -> Batch:
    generator = torch.Generator().manual_seed(step)
    source = torch.randn(B, D, generator=generator) if source is None else source
    target = torch.randn(B, D, generator=generator) if target is None else target
    return Batch(
        source=source,
        source_labels=torch.arange(len(source)) % C,
        target=target,
        target_ids=torch.arange(len(target)),
        step=step,
        generator=generator,
    )


def test_it_is_labelled_as_a_reconstruction():
    assert INFO.is_reconstruction
    assert "reconstruction" in INFO.title
    assert "reconstruction" in TNT.__doc__


def test_thresholds_worked_by_hand():
    method = build(threshold_momentum=0.5)
    # Evidence (6, 2, 1) and (3, 1, 5), of classes 0 and 2, with C = 3.
    method._learn_thresholds(torch.tensor([[6.0, 2.0, 1.0], [3.0, 1.0, 5.0]]), torch.tensor([0, 2]))
    # As they are: 3/12 for class 0 and 3/12 for class 2; from 0, by half.
    assert method.inside.tolist() == pytest.approx([0.125, 0, 0.125])
    # Without their own: 3/6 with class 1 next best, and 3/7 with class 0; from 1, by half.
    assert method.outside.tolist() == pytest.approx([(1 + 3 / 7) / 2, 0.75, 1])
    thresholds = method.thresholds_of(torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 0, 9]]))
    assert thresholds.tolist() == pytest.approx([math.sqrt(0.125 * 5 / 7), 0, math.sqrt(0.125)])


def test_unknown_is_an_uncertainty_above_the_threshold_of_the_nearest_class():
    method = by_hand(build())
    method.inside.copy_(torch.tensor([0.1, 0.25, 0.25]))
    method.outside.copy_(torch.tensor([0.9, 1.0, 1.0]))
    # Evidence x for one class and e^-9 for the others: u = 3 / (3 + x). At x = 4.5 it is 0.4; thresholds 0.3, 0.5, 0.5.
    features = torch.full((3, D), -9.0)
    features[0, 0] = features[1, 1] = features[2, 2] = math.log(4.5)
    decision = method.decide(features)
    assert decision.nearest.tolist() == [0, 1, 2]
    assert decision.known.tolist() == [False, True, True]


@pytest.mark.parametrize("u", [0.1, 0.29, 0.31, 0.9])
@torch.no_grad()
def test_score_crosses_one_half_at_the_threshold(u):
    method = by_hand(build())
    method.inside.fill_(0.1)
    method.outside.fill_(0.9)
    features = torch.full((1, D), -10.0)
    features[0, 1] = math.log(3 / u - 3)
    expected = 0.3 * (1 - u) / (0.3 * (1 - u) + u * 0.7)
    assert float(method.score(features)) == pytest.approx(expected, abs=1e-3)
    assert bool(method.score(features) > 0.5) is (u < 0.3)


def test_total_is_the_weighted_sum():
    losses = build(contrast_weight=0.3, boundary_weight=0.7).step(batch_at(5))
    parts = {name: float(part.detach()) for name, part in losses.parts.items()}
    expected = parts["source"] + 0.3 * parts["contrast"] + 0.7 * parts["boundary"]
    assert float(losses.total.detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("step", "weight"), [(0, 0.0), (2, 0.5), (4, 1.0), (15, 1.0)])
def test_penalty_on_misleading_evidence_grows_over_the_first_fifth(step, weight):
    method, batch = build(), batch_at(step)
    with torch.no_grad():
        expected = evidential_loss(
            evidence(method.classifier(method.features(batch.source))), batch.source_labels, weight
        )
        assert float(method.step(batch).parts["source"]) == pytest.approx(float(expected), rel=1e-5)


def test_classifier_goes_to_the_thresholds_and_the_features_go_away():
    step = 7
    method = build()
    method.step(batch_at(step)).parts["boundary"].backward()
    of_features, of_classifier = method.bottleneck.weight.grad.clone(), method.classifier.weight.grad.clone()

    method.zero_grad()
    evidences = evidence(method.classifier(method.features(batch_at(step).target)))
    (evidential_uncertainty(evidences) - method.thresholds_of(evidences)).abs().mean().backward()
    strength = 2 / (1 + math.exp(-10 * step / STEPS)) - 1
    assert of_classifier.numpy() == pytest.approx(method.classifier.weight.grad.numpy(), abs=1e-6)
    assert of_features.numpy() == pytest.approx(-strength * method.bottleneck.weight.grad.numpy(), abs=1e-6)


def directions(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees) * math.pi / 180
    return F.pad(torch.stack([angles.cos(), angles.sin()], dim=1), (0, D - 2))


def test_contrast_worked_by_hand(monkeypatch):
    # Source at 0° and 90°, target at 10° and 80°: each has its neighbour across 10° away and the other 80° away; the
    # other sample of its own domain is 90° or 70° away. The target sample at 80° seems unknown.
    method = build(temperature=1.0)
    monkeypatch.setattr(method, "score", lambda features: torch.tensor([0.9, 0.1]))
    source, target = directions(0, 90), directions(10, 80)
    found = method.contrast(source, target, batch_at(0, source, target))

    def cosine(angle: float) -> float:
        return math.cos(math.radians(angle))

    of_source = math.log(sum(math.exp(cosine(a)) for a in (10, 80, 90))) - cosine(10)
    of_target = math.log(sum(math.exp(cosine(a)) for a in (10, 80, 70))) - cosine(10)
    assert float(found) == pytest.approx((of_source + of_target) / 2, rel=1e-5)


def test_neighbours_are_looked_for_in_earlier_batches_too(monkeypatch):
    method = build()
    monkeypatch.setattr(method, "score", lambda features: torch.ones(len(features)))
    before = batch_at(0, directions(0, 90), directions(5, 95))
    method.contrast(before.source, before.target, before)
    # Far from each other, but near to those of the batch before.
    source, target = directions(185, 275), directions(2, 92).requires_grad_()
    batch = Batch(source, torch.tensor([0, 1]), target, torch.tensor([7, 8]), 1, torch.Generator())
    method.contrast(source, target, batch).backward()
    moved = F.normalize(target.detach() - 0.1 * target.grad, dim=1)
    assert float(moved[0] @ before.source[0]) > float(target[0].detach() @ before.source[0])
    assert sorted(method.target_bank.ids[method.target_bank.filled()].tolist()) == [0, 1, 7, 8]
    assert len(method.source_bank.filled()) == 4


def test_gradient_of_the_contrast_brings_neighbours_together(monkeypatch):
    method = build()
    monkeypatch.setattr(method, "score", lambda features: torch.ones(len(features)))
    source, target = directions(0, 90), directions(20, 95).requires_grad_()
    method.contrast(source, target, batch_at(0, source, target.detach())).backward()
    moved = F.normalize(target.detach() - 0.1 * target.grad, dim=1)
    assert float(moved[0] @ source[0]) > float(target[0].detach() @ source[0])
