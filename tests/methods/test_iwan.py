"""One step of IWAN by hand. Softmax of (ln 3, 0) is (3/4, 1/4); sigmoid of ln 3 is 3/4."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.methods.base import Batch
from uniot.methods.iwan import IWAN, IWANOptions

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)


def build(**options) -> IWAN:
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=2, steps=20)
    return IWAN(2, 2, settings, IWANOptions(**{"discriminator_size": 32, **options}))


def batch_at(step: int) -> Batch:
    return Batch(
        source=torch.tensor([[LN3, 0.0], [0.0, 0.0]]),
        source_labels=torch.tensor([0, 1]),
        target=torch.tensor([[0.0, LN3]]),
        target_ids=torch.arange(1),
        step=step,
        generator=torch.Generator().manual_seed(0),
    )


def test_losses_of_a_step_worked_by_hand(monkeypatch):
    method = build(adversarial_weight=2.0, weigher_weight=3.0, entropy_weight=0.5)
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        method.discriminator.last.weight.zero_()
        method.discriminator.last.bias.fill_(LN3)
    # The weigher says 3/4 and 1/2 of the source samples, 1/4 of the target sample.
    logits = torch.tensor([LN3, 0.0, -LN3])
    monkeypatch.setattr(method.weigher, "forward", lambda features, generator=None: logits[: len(features)])
    losses = method.step(batch_at(7))
    source = (LN4 - LN3 + LN2) / 2
    weigher = ((LN4 - LN3 + LN2) / 2 + (LN4 - LN3)) / 2
    # 1 - D is 1/4 and 1/2, so the weights are 2/3 and 4/3. D0 says 3/4 of every sample.
    domain = ((2 / 3 + 4 / 3) / 2 * (LN4 - LN3) + LN4) / 2
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    found = {name: float(part.detach()) for name, part in losses.parts.items()}
    assert found == pytest.approx({"source": source, "weigher": weigher, "domain": domain, "entropy": entropy})
    assert float(losses.total.detach()) == pytest.approx(source + 3 * weigher + 2 * domain + 0.5 * entropy)


def test_source_weights_are_larger_where_the_weigher_sees_the_target(monkeypatch):
    method = build()
    monkeypatch.setattr(method.weigher, "forward", lambda features, generator=None: torch.tensor([LN3, 0.0]))
    assert method.source_weights(torch.zeros(2, 2)).tolist() == pytest.approx([2 / 3, 4 / 3])


def test_weigher_that_is_sure_of_the_whole_batch_still_gives_weights_of_mean_one(monkeypatch):
    method = build()
    monkeypatch.setattr(method.weigher, "forward", lambda features, generator=None: torch.tensor([300.0, 300.0, 301.0]))
    weights = method.source_weights(torch.zeros(3, 2))
    assert float(weights.mean()) == pytest.approx(1)
    # The third is e times less likely to be of the target.
    assert float(weights[0] / weights[2]) == pytest.approx(math.e, rel=1e-4)


def test_weights_have_no_dropout_in_them():
    method = build()
    features = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    assert torch.equal(method.source_weights(features), method.source_weights(features))
    share = 1 - torch.sigmoid(method.weigher(features).detach())
    assert method.source_weights(features).tolist() == pytest.approx((share / share.mean()).tolist(), rel=1e-5)


def test_weigher_learns_and_the_features_do_not_learn_from_it():
    method = build(adversarial_weight=0.0, entropy_weight=0.0)
    method.step(batch_at(10)).total.backward()
    found, of_weigher = method.bottleneck.weight.grad.clone(), method.weigher.first.weight.grad.clone()
    method.zero_grad()
    batch = batch_at(10)
    F.cross_entropy(method.classifier(method.features(batch.source)), batch.source_labels).backward()
    assert torch.allclose(found, method.bottleneck.weight.grad, atol=1e-7)
    assert float(of_weigher.abs().max()) > 0


def test_weigher_does_not_learn_from_the_weighted_loss():
    method = build(weigher_weight=0.0)
    method.step(batch_at(10)).total.backward()
    assert float(method.weigher.first.weight.grad.abs().max()) == 0
    assert float(method.discriminator.first.weight.grad.abs().max()) > 0
