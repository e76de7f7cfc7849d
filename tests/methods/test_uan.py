"""One step of UAN by hand. Softmax of (ln 3, 0) is (3/4, 1/4); sigmoid of ln 3 is 3/4."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from uniot.config import Settings
from uniot.losses import domain_loss
from uniot.methods.base import Batch
from uniot.methods.uan import UAN, UANOptions, source_likeness, spread

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
STEPS = 20
# H(3/4, 1/4) / ln 2
THREE_QUARTERS = (0.75 * (LN4 - LN3) + 0.25 * LN4) / LN2


def build(**options) -> UAN:
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=2, steps=STEPS)
    return UAN(2, 2, settings, UANOptions(**{"discriminator_size": 32, **options}))


def by_hand(method: UAN, watched: float = LN3) -> UAN:
    """Features are the inputs, logits are the features, D says ½ of every sample and D' the same of each."""
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        for discriminator, logit in ((method.adversary, 0.0), (method.watcher, watched)):
            discriminator.last.weight.zero_()
            discriminator.last.bias.fill_(logit)
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
    losses = by_hand(build()).step(batch_at(7))
    parts = {name: float(part.detach()) for name, part in losses.parts.items()}
    assert parts["source"] == pytest.approx((LN4 - LN3 + LN2) / 2)
    # D' is 3/4: -ln 3/4 on the source and -ln 1/4 on the target, added.
    assert parts["watching"] == pytest.approx(LN4 - LN3 + LN4)
    # D is ½ everywhere, so both terms are ln 2 times a mean weight, which is one.
    assert parts["adversarial"] == pytest.approx(2 * LN2)
    assert float(losses.total.detach()) == pytest.approx(sum(parts.values()))


def test_weights_worked_by_hand():
    # Source at temperature 10: the sample without a favourite has the larger entropy, so all of the weight.
    # Target: d' is the same for all, so the weight follows the entropy: 3/4, σ(1), σ(1.5) are the larger probabilities.
    seen = {}
    method = by_hand(build())
    method.adversary.of_domains = lambda source, target, generator: (
        torch.tensor([0.5, -1.0]),
        torch.tensor([1.0, 2, 3]),
    )
    losses = method.step(batch_at(7))

    def normalised(p: float) -> float:
        return -(p * math.log(p) + (1 - p) * math.log(1 - p)) / LN2

    raw = [0.75 - normalised(p) for p in (0.75, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-1.5)))]
    scaled = [(w - min(raw)) / (max(raw) - min(raw)) for w in raw]
    seen = [w / (sum(scaled) / 3) for w in scaled]
    source = (0 * math.log1p(math.exp(-0.5)) + 2 * math.log1p(math.exp(1.0))) / 2
    target = sum(w * math.log1p(math.exp(logit)) for w, logit in zip(seen, (1, 2, 3), strict=True)) / 3
    assert float(losses.parts["adversarial"].detach()) == pytest.approx(source + target, rel=1e-5)


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20))
def test_spread_weights_have_mean_one_and_are_not_negative(values):
    weights = spread(torch.tensor(values, dtype=torch.float64))
    assert float(weights.min()) >= 0
    assert float(weights.mean()) == pytest.approx(1)


def test_no_gradient_goes_from_the_watcher_to_the_features():
    method = build()
    method.step(batch_at(7)).parts["watching"].backward()
    assert method.bottleneck.weight.grad is None
    assert float(method.watcher.first.weight.grad.abs().sum()) > 0


@pytest.mark.parametrize("step", [0, 3, STEPS])
def test_features_go_up_the_adversarys_loss_with_the_ramp(step):
    method = build()
    method.step(batch_at(step)).parts["adversarial"].backward()
    found = method.bottleneck.weight.grad.clone()

    batch = batch_at(step)
    method.zero_grad()
    source, target = method.batch_features(batch)
    with torch.no_grad():
        watched = method.watcher.of_domains(source, target, batch.generator)
        weights = (
            spread(-source_likeness(watched[0], method.classifier(source) / 10)),
            spread(source_likeness(watched[1], method.classifier(target))),
        )
    (2 * domain_loss(*method.adversary.of_domains(source, target, batch.generator), *weights)).backward()
    strength = 2 / (1 + math.exp(-10 * step / STEPS)) - 1
    assert found.numpy() == pytest.approx(-strength * method.bottleneck.weight.grad.numpy(), abs=1e-6)


def test_unknown_is_a_weight_below_the_published_border():
    # d' - Hn against -0.5, for Hn = H(3/4, 1/4) / ln 2 = 0.811: the border is where d' = 0.311.
    assert pytest.approx(0.811, abs=1e-3) == THREE_QUARTERS
    for watched, known in ((0.30, False), (0.32, True)):
        decision = by_hand(build(), math.log(watched / (1 - watched))).decide(torch.tensor([[LN3, 0.0]]))
        assert decision.known.tolist() == [known]
        assert decision.nearest.tolist() == [0]


def test_border_can_be_set():
    features = torch.tensor([[LN3, 0.0]])
    assert by_hand(build(threshold=-0.1), 0.0).decide(features).known.tolist() == [False]
    assert by_hand(build(threshold=-0.4), 0.0).decide(features).known.tolist() == [True]


def test_faithful_takes_the_softmax_twice_as_the_authors_code_does():
    losses = by_hand(build(faithful=True)).step(batch_at(7))
    expected = F.cross_entropy(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
    assert float(losses.parts["source"].detach()) == pytest.approx(float(expected))


def test_losses_are_those_of_the_whole_batch_that_is_gathered():
    # Another process has the same rows: as many losses again, so every mean stays.
    method, batch = by_hand(build()), batch_at(3)
    gathered = dataclasses.replace(
        batch,
        source_labels=batch.source_labels.repeat(2),
        target_ids=batch.target_ids.repeat(2),
        gather=lambda rows: rows.repeat(2, 1),
    )
    one, both = method.step(batch_at(3)), method.step(gathered)
    assert float(both.total.detach()) == pytest.approx(float(one.total.detach()))
