"""CMU: the three certainties, the weights that follow from them, and one step by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.losses import domain_loss
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.cmu import CMU, CMUOptions

D, C, B, STEPS, QUEUE = 4, 3, 6, 40, 12


def build(**options) -> CMU:
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=D, steps=STEPS, queue_size=QUEUE, batch_size=B)
    return CMU(D, C, settings, CMUOptions(**{"discriminator_size": 32, **options}))


def batch_at(step: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        source=torch.randn(B, D, generator=generator),
        source_labels=torch.arange(B) % C,
        target=torch.randn(B, D, generator=generator),
        target_ids=torch.arange(B),
        step=step,
        generator=torch.Generator().manual_seed(seed),
    )


def saying(method: CMU, logits: list[list[float]]) -> CMU:
    """Each of the five classifiers says the same of every sample."""
    with torch.no_grad():
        for head, values in zip(method.heads, logits, strict=True):
            head.weight.zero_()
            head.bias.copy_(torch.tensor(values))
    return method


def test_certainties_worked_by_hand():
    # Two classifiers say (½, ½, 0), three say (0, 0, 1), as far as a logit of -60 goes.
    none = -60.0
    method = saying(build(), [[0, 0, none]] * 2 + [[none, none, 0]] * 3)
    entropy, confidence, consistency = method.certainties(torch.zeros(1, D))[0].tolist()
    assert entropy == pytest.approx(-2 / 5 * math.log(2))
    assert confidence == pytest.approx((0.5 + 0.5 + 1 + 1 + 1) / 5)
    spreads = [np.std([0.5, 0.5, 0, 0, 0], ddof=1)] * 2 + [np.std([0, 0, 1, 1, 1], ddof=1)]
    assert consistency == pytest.approx(-np.mean(spreads))


def test_score_is_the_mean_of_the_certainties_between_their_extremes(monkeypatch):
    method = build()
    certainties = torch.tensor([[-1.0, 0.5, -0.2], [-0.4, 0.9, -0.2], [-2.0, 0.3, 0.0]])
    monkeypatch.setattr(method, "certainties", lambda features: certainties)
    method.finalize(FinalFeatures.of_target(torch.zeros(3, D)))
    # Extremes: -2 … -0.4, 0.3 … 0.9, -0.2 … 0.
    expected = [(1 / 1.6 + 0.2 / 0.6 + 0) / 3, (1 + 1 + 0) / 3, (0 + 0 + 1) / 3]
    assert method.score(torch.zeros(3, D)).tolist() == pytest.approx(expected, rel=1e-5)
    assert method.decide(torch.zeros(3, D)).known.tolist() == [False, True, False]
    # A new sample beyond the extremes counts as at them.
    monkeypatch.setattr(method, "certainties", lambda features: torch.tensor([[0.0, 2.0, -3.0]]))
    assert method.score(torch.zeros(1, D)).tolist() == pytest.approx([2 / 3])


def test_extremes_are_those_of_all_processes():
    class Other:
        """A second process, whose extremes are known."""

        rank, count = 0, 2

        def add(self, values: torch.Tensor) -> torch.Tensor:
            return values + torch.stack([torch.zeros(2, 3), torch.tensor([[-9.0, 0.9, -0.1], [-0.1, 0.95, -0.05]])])

    method = build()
    features = torch.randn(5, D, generator=torch.Generator().manual_seed(1))
    own = method.certainties(features).detach()
    method.finalize(FinalFeatures.of_target(features, shards=Other()))
    assert method.least.tolist() == pytest.approx([-9.0, float(own[:, 1].min()), min(-0.1, float(own[:, 2].min()))])
    assert method.most.tolist() == pytest.approx([-0.1, 0.95, max(-0.05, float(own[:, 2].max()))])


def test_classes_weigh_what_sure_target_samples_give_them(monkeypatch):
    method = build()
    with torch.no_grad():
        method.classifier.weight.zero_()
        method.classifier.weight[0, 0] = method.classifier.weight[1, 1] = 60.0
    # The first sample is sure and of class 0, the second is sure and of class 1, the third is not sure.
    method.queue.push(torch.eye(D)[[0, 1, 2]], torch.arange(3))
    certainties = torch.tensor([[1.0, 1, 1], [1, 1, 1], [0, 0, 0]])
    monkeypatch.setattr(method, "certainties", lambda features: certainties[: len(features)])
    method.look_at_target()
    assert method.class_weights.tolist() == pytest.approx([1, 1, 0], abs=1e-6)


def test_classes_keep_their_weights_where_no_sample_is_sure(monkeypatch):
    method = build()
    method.class_weights.copy_(torch.tensor([0.2, 0.3, 1.0]))
    method.queue.push(torch.eye(D)[:2], torch.arange(2))
    monkeypatch.setattr(method, "score", lambda features: torch.zeros(len(features)))
    method.look_at_target()
    assert method.class_weights.tolist() == pytest.approx([0.2, 0.3, 1.0])


@torch.no_grad()
def test_step_adds_classification_ensemble_and_weighted_adversary():
    method = build(perturbation=0.0)
    method.class_weights.copy_(torch.tensor([1.0, 0.5, 0.0]))
    method.most.fill_(0.9)
    batch = batch_at(15)
    losses = method.step(batch_at(15))
    source, target = method.batch_features(batch)
    labels = batch.source_labels
    assert float(losses.parts["source"]) == pytest.approx(float(F.cross_entropy(method.classifier(source), labels)))
    ensemble = sum(float(F.cross_entropy(head(source), labels)) for head in method.heads)
    assert float(losses.parts["ensemble"]) == pytest.approx(ensemble, rel=1e-5)
    torch.randn(5, B, D, generator=batch.generator)
    logits = method.adversary.of_domains(source, target, batch.generator)
    adversarial = domain_loss(*logits, torch.tensor([1.0, 0.5, 0.0])[labels], method.score(target))
    assert float(losses.parts["adversarial"]) == pytest.approx(float(adversarial), rel=1e-5)
    assert float(losses.total) == pytest.approx(sum(float(part) for part in losses.parts.values()), rel=1e-5)


def test_features_hear_of_the_adversary_only_after_the_first_round():
    # 20 rounds in 40 steps are two steps each.
    for step, hears in ((0, False), (1, False), (2, False), (3, True)):
        method = build()
        method.queue.push(torch.eye(D), torch.arange(D))
        method.step(batch_at(step)).parts["adversarial"].backward()
        assert bool(method.bottleneck.weight.grad.abs().sum() > 0) is hears
        assert float(method.adversary.first.weight.grad.abs().sum()) > 0


def test_no_gradient_goes_from_the_five_classifiers_to_the_features():
    method = build()
    method.step(batch_at(5)).parts["ensemble"].backward()
    assert method.bottleneck.weight.grad is None
    assert all(float(head.weight.grad.abs().sum()) > 0 for head in method.heads)


def test_each_classifier_learns_from_its_own_variation_of_the_source():
    method = build(perturbation=0.3)
    seen = []
    for head in method.heads:
        head.register_forward_pre_hook(lambda _head, inputs: seen.append(inputs[0]))
    batch = batch_at(5)
    source = torch.randn(B, D, generator=torch.Generator().manual_seed(3))
    method.ensemble_loss(source, batch)
    differences = torch.stack(seen) - source
    # The noise has the length of 0.3 of the feature's, on average.
    share = differences.norm(dim=2).square().mean() / source.norm(dim=1).square().mean()
    assert float(share) == pytest.approx(0.3**2, rel=0.5)
    assert not torch.equal(differences[0], differences[1])


def test_extremes_are_taken_once_a_round_from_the_features_seen_last():
    method = build()
    method.step(batch_at(0))
    method.step(batch_at(1, seed=1))
    assert method.most.tolist() == [1, 1, 1]
    queued = method.queue.features.clone()
    expected = method.certainties(queued).detach().max(dim=0).values
    method.step(batch_at(2, seed=2))
    assert method.most.numpy() == pytest.approx(expected.numpy())
    method.step(batch_at(3, seed=3))
    assert method.most.numpy() == pytest.approx(expected.numpy())


def test_classifiers_begin_differently():
    stacked = torch.stack([head.weight.detach() for head in build().heads])
    assert float((stacked[:, None] - stacked).abs().amax(dim=(2, 3)).sum()) > 0
    assert len({round(float(weight.std()), 6) for weight in stacked}) == 5
