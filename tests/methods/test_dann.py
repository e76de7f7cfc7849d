"""One step of DANN by hand. Softmax of (ln 3, 0) is (3/4, 1/4); sigmoid of ln 3 is 3/4."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.losses import domain_loss
from uniot.methods.base import Batch
from uniot.methods.dann import DANN, DANNOptions

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
STEPS = 20


def build(**options) -> DANN:
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=2, steps=STEPS)
    return DANN(2, 2, settings, DANNOptions(**{"discriminator_size": 32, **options}))


def by_hand(method: DANN, logit: float = LN3) -> DANN:
    """Features are the inputs, logits are the features, and D says the same of every sample."""
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        method.discriminator.last.weight.zero_()
        method.discriminator.last.bias.fill_(logit)
    return method


def batch_at(step: int, seed: int = 0) -> Batch:
    return Batch(
        source=torch.tensor([[LN3, 0.0], [0.0, 0.0]]),
        source_labels=torch.tensor([0, 1]),
        target=torch.tensor([[0.0, LN3], [2.0, 1.0], [-1.0, 0.5]]),
        target_ids=torch.arange(3),
        step=step,
        generator=torch.Generator().manual_seed(seed),
    )


def test_losses_of_a_step_worked_by_hand():
    losses = by_hand(build(adversarial_weight=0.5)).step(batch_at(7))
    # Cross-entropy: -ln 3/4 and -ln 1/2. Domains: -ln 3/4 for every source sample, -ln 1/4 for every target sample.
    source, domain = (LN4 - LN3 + LN2) / 2, (LN4 - LN3 + LN4) / 2
    assert float(losses.parts["source"].detach()) == pytest.approx(source)
    assert float(losses.parts["domain"].detach()) == pytest.approx(domain)
    assert float(losses.total.detach()) == pytest.approx(source + 0.5 * domain)


@pytest.mark.parametrize("step", [0, 3, STEPS])
def test_features_go_up_the_domain_loss_with_the_ramp_and_the_discriminator_goes_down(step):
    method = build(adversarial_weight=2.0)
    losses = method.step(batch_at(step))
    losses.total.backward()
    found = method.bottleneck.weight.grad.clone()
    of_discriminator = method.discriminator.first.weight.grad.clone()

    batch = batch_at(step)
    method.zero_grad()
    F.cross_entropy(method.classifier(method.features(batch.source)), batch.source_labels).backward()
    classification = method.bottleneck.weight.grad.clone()
    method.zero_grad()
    source, target = method.batch_features(batch)
    domain_loss(*method.discriminator.of_domains(source, target, batch.generator)).backward()

    strength = 2 / (1 + math.exp(-10 * step / STEPS)) - 1
    expected = classification - 2 * strength * method.bottleneck.weight.grad
    assert found.numpy() == pytest.approx(expected.numpy(), abs=1e-6)
    assert of_discriminator.numpy() == pytest.approx(2 * method.discriminator.first.weight.grad.numpy(), abs=1e-6)


def test_discriminator_drops_out_by_the_generator_of_the_step():
    method = build()
    one, same, other = (float(method.step(batch_at(3, seed)).total.detach()) for seed in (0, 0, 1))
    assert one == same
    assert one != other


def test_losses_are_those_of_the_whole_batch_that_is_gathered():
    # Another process has the same rows: as many losses again, so every mean stays.
    method, batch = by_hand(build()), batch_at(3)
    gathered = Batch(
        batch.source,
        batch.source_labels.repeat(2),
        batch.target,
        batch.target_ids.repeat(2),
        batch.step,
        batch.generator,
        gather=lambda rows: rows.repeat(2, 1),
    )
    one, both = method.step(batch_at(3)), method.step(gathered)
    assert float(both.total.detach()) == pytest.approx(float(one.total.detach()))


def test_unknown_is_entropy_above_half_of_its_maximum():
    # H(p) = ln(2)/2 where the larger of two probabilities is 0.8900: a logit of 2.0907.
    method = by_hand(build())
    decision = method.decide(torch.tensor([[2.08, 0.0], [2.10, 0.0], [0.0, 2.10]]))
    assert decision.known.tolist() == [False, True, True]
    assert decision.nearest.tolist() == [0, 0, 1]
