"""One step of PADA by hand. Softmax of (ln 3, 0) is (3/4, 1/4); sigmoid of ln 3 is 3/4."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from uniot.config import Settings
from uniot.methods.base import Batch
from uniot.methods.pada import PADA, PADAOptions

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
STEPS, REFRESHES = 20, 5  # weights are renewed at every fourth step, before its losses


def build(**options) -> PADA:
    """Features are the inputs, logits are the features, and D says 3/4 of every sample."""
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=2, steps=STEPS)
    method = PADA(2, 2, settings, PADAOptions(**{"discriminator_size": 8, "refreshes": REFRESHES, **options}))
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        method.discriminator.last.weight.zero_()
        method.discriminator.last.bias.fill_(LN3)
    return method


def batch_at(step: int, target=((LN3, 0.0),), labels=(0, 1)) -> Batch:
    return Batch(
        source=torch.tensor([[LN3, 0.0], [0.0, 0.0]]),
        source_labels=torch.tensor(labels),
        target=torch.tensor(target),
        target_ids=torch.arange(len(target)),
        step=step,
        generator=torch.Generator().manual_seed(0),
    )


def test_weights_are_the_mean_prediction_over_its_largest_entry():
    # Target rows of the four steps: (3/4, 1/4) three times, (1/2, 1/2) once; the mean is (11/16, 5/16).
    method = build()
    for step in range(3):
        method.step(batch_at(step))
    assert method.class_weights.tolist() == [1, 1]
    method.step(batch_at(3, target=((0.0, 0.0),)))
    assert method.class_weights.tolist() == pytest.approx([1, 5 / 11])


def test_weights_forget_the_predictions_before_the_last_renewal():
    method = build()
    for step in range(4):
        method.step(batch_at(step, target=((0.0, 9.0),)))
    for step in range(4, 8):
        method.step(batch_at(step))
    assert method.class_weights.tolist() == pytest.approx([1, 1 / 3])


def test_losses_of_a_step_worked_by_hand():
    method = build(adversarial_weight=2.0)
    method.class_weights.copy_(torch.tensor([1.0, 0.25]))
    losses = method.step(batch_at(0))
    # The weighted mean of -ln 3/4 (weight 1) and -ln 1/2 (weight 1/4).
    source = ((LN4 - LN3) + LN2 / 4) / 1.25
    # D says 3/4: the source has weights 1 and 1/4 and a mean over two samples, the target is not weighted.
    domain = ((1 + 0.25) / 2 * (LN4 - LN3) + LN4) / 2
    assert float(losses.parts["source"].detach()) == pytest.approx(source)
    assert float(losses.parts["domain"].detach()) == pytest.approx(domain)
    assert float(losses.total.detach()) == pytest.approx(source + 2 * domain)


def test_before_the_first_renewal_every_class_counts_the_same():
    losses = build().step(batch_at(0))
    assert float(losses.parts["source"].detach()) == pytest.approx((LN4 - LN3 + LN2) / 2)
    assert float(losses.parts["domain"].detach()) == pytest.approx((LN4 - LN3 + LN4) / 2)
    assert losses.class_mass.tolist() == [0.5, 0.5]


def test_lower_temperature_makes_the_weights_sharper():
    # Logits (ln 3, 0) over 1/2 are (ln 9, 0): softmax (9/10, 1/10).
    method = build(temperature=0.5)
    for step in range(4):
        losses = method.step(batch_at(step))
    assert method.class_weights.tolist() == pytest.approx([1, 1 / 9])
    assert losses.class_mass.tolist() == pytest.approx([0.9, 0.1])


def test_batch_of_classes_that_nobody_predicts_has_a_finite_loss():
    method = build()
    for step in range(4):
        losses = method.step(batch_at(step, target=((500.0, -500.0),), labels=(1, 1)))
    assert 0 < float(method.class_weights[1]) < 1e-5
    assert math.isfinite(float(losses.total.detach()))


def test_weights_carry_no_gradient_to_the_target_predictions():
    method = build(adversarial_weight=0.0, refreshes=STEPS)
    batch = batch_at(0)
    target = batch.target.clone().requires_grad_()
    method.step(dataclasses.replace(batch, target=target)).total.backward()
    assert target.grad.abs().max() == 0


def test_predictions_since_the_last_renewal_are_saved_with_the_weights():
    method = build()
    for step in range(3):
        method.step(batch_at(step, target=((0.0, 1.0),)))
    other = build()
    other.load_state_dict(method.state_dict())
    for each in (method, other):
        each.step(batch_at(3))
    assert torch.equal(method.class_weights, other.class_weights)
    assert method.class_weights.tolist() != [1, 1]


def test_run_of_fewer_steps_than_renewals_renews_at_every_step():
    method = build(refreshes=1000)
    method.step(batch_at(0))
    assert method.class_weights.tolist() == pytest.approx([1, 1 / 3])
