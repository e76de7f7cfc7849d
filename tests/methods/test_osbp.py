"""One step of OSBP by hand, and who goes which way."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import unknown_boundary_loss
from uniot.methods.base import Batch
from uniot.methods.osbp import OSBP, OSBPOptions

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
B, D, C = 8, 5, 3


def build(in_features: int = D, n_classes: int = C, feature_size: int = 6, **options) -> OSBP:
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=feature_size, steps=20)
    return OSBP(in_features, n_classes, settings, OSBPOptions(**options))


def batch_of(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        source=torch.randn(B, D, generator=generator),
        source_labels=torch.arange(B) % C,
        target=torch.randn(B, D, generator=generator) + 1,
        target_ids=torch.arange(B),
        step=3,
        generator=torch.Generator().manual_seed(seed + 100),
    )


def gradients(method: OSBP, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    method.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in method.named_parameters()}


def test_losses_of_a_step_worked_by_hand():
    method = build(in_features=2, n_classes=2, feature_size=2, dropout=0, adversarial_weight=0.5)
    with torch.no_grad():
        for layer in (method.bottleneck.first, method.bottleneck.second):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        method.classifier.weight.copy_(torch.tensor([[LN2, 0.0], [0.0, LN2], [0.0, 0.0]]))
        method.classifier.bias.zero_()
    # Of two samples batch norm makes 1 and -1, and ReLU 1 and 0, in each place: (1, 0) and (0, 1).
    batch = Batch(
        source=torch.tensor([[900.0, 0.0], [0.0, 900.0]]),
        source_labels=torch.tensor([0, 0]),
        target=torch.tensor([[0.0, 300.0], [300.0, 0.0]]),
        target_ids=torch.arange(2),
        step=0,
        generator=torch.Generator(),
    )
    losses = method.step(batch)
    # Softmax of (ln 2, 0, 0) is (1/2, 1/4, 1/4): the first sample's class has 1/2, the second's 1/4; unknown has 1/4.
    source, boundary = (LN2 + LN4) / 2, (LN4 + LN4 - LN3) / 2
    assert float(losses.parts["source"].detach()) == pytest.approx(source, rel=1e-4)
    assert float(losses.parts["boundary"].detach()) == pytest.approx(boundary, rel=1e-4)
    assert float(losses.total.detach()) == pytest.approx(source + 0.5 * boundary, rel=1e-4)


def test_classifier_goes_down_the_loss_of_the_boundary_and_the_generator_goes_up():
    method = build(adversarial_weight=0.7, boundary=0.4)
    found = gradients(method, method.step(batch_of()).total)
    source, _ = method.batch_features(batch_of())
    classification = gradients(method, F.cross_entropy(method.classifier(source), batch_of().source_labels))
    _, target = method.batch_features(batch_of())
    boundary = gradients(method, unknown_boundary_loss(method.classifier(target), 0.4))
    for name, value in found.items():
        sign = 1 if name.startswith("classifier") else -1
        expected = classification[name] + sign * 0.7 * boundary[name]
        assert value.numpy() == pytest.approx(expected.numpy(), abs=1e-6), name
    assert float(boundary["bottleneck.first.weight"].abs().max()) > 1e-4


def test_domains_are_normalised_apart():
    batch = batch_of()
    other_target = dataclasses.replace(batch, target=batch.target * 9, generator=batch_of().generator)
    one, other = (build().batch_features(each) for each in (batch, other_target))
    assert torch.equal(one[0], other[0])


def test_batch_norm_sees_the_whole_batch_whichever_process_made_it():
    whole = batch_of()
    everything = {B // 2: whole.source, B // 2 + 1: whole.target}

    def gather(rows: torch.Tensor) -> torch.Tensor:
        return everything[len(rows)]

    # This process has half of the source and a little more of the target, so that the two can be told apart.
    part = dataclasses.replace(
        batch_of(), source=whole.source[: B // 2], target=whole.target[: B // 2 + 1], gather=gather
    )
    assert torch.equal(build().step(part).total, build().step(whole).total)


def test_dropout_is_decided_by_the_generator_of_the_step():
    totals = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(totals))
        method = build()
        batch = dataclasses.replace(batch_of(), generator=torch.Generator().manual_seed(seed))
        totals.append(float(method.step(batch).total.detach()))
    assert totals[0] == totals[1] != totals[2]


def test_predictions_use_running_statistics_and_no_dropout():
    method = build()
    for seed in range(5):
        method.step(batch_of(seed))
    method.eval()
    x = batch_of().target
    together = method.features(x)
    assert torch.allclose(together[:2], method.features(x[:2]))
    assert torch.equal(together, method.features(x))


def test_sample_is_unknown_where_the_last_logit_is_the_largest():
    method = build(n_classes=2, feature_size=3)
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(3))
        method.classifier.bias.zero_()
    decision = method.decide(torch.tensor([[2.0, 0.0, 1.0], [2.0, 1.9, 2.1], [0.0, 2.0, 2.0], [-9.0, -8.0, -7.0]]))
    # Classes do not join against unknown. On the border, where a class is as likely as unknown, it is the class.
    assert decision.known.tolist() == [True, False, True, False]
    assert decision.nearest.tolist() == [0, 0, 1, 1]
    # Unknown is not one of the classes that have a share.
    assert decision.odds.shape == (4, 2)


def test_batch_of_one_is_refused():
    settings = Settings.checked(feature_size=6, steps=20, batch_size=1)
    with pytest.raises(SettingsError, match="osbp normalises over a batch, and batch_size is 1. Set batch_size to 2"):
        OSBP(D, C, settings, OSBPOptions())
