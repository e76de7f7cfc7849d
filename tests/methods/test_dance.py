"""One step of DANCE beside the losses that it is made of."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.losses import entropy_separation_loss, neighbourhood_clustering_loss
from uniot.methods.base import Batch
from uniot.methods.dance import DANCE, DANCEOptions

D, C, N_TARGET = 5, 4, 12


def build(queue_size: int = 20, **options) -> DANCE:
    torch.manual_seed(0)
    return DANCE(D, C, Settings.checked(steps=20, queue_size=queue_size), DANCEOptions(**options))


TARGET = torch.randn(N_TARGET, D, generator=torch.Generator().manual_seed(1))


def batch_of(*ids: int) -> Batch:
    generator = torch.Generator().manual_seed(2)
    return Batch(
        source=torch.randn(4, D, generator=generator),
        source_labels=torch.tensor([0, 1, 2, 3]),
        target=TARGET[list(ids)],
        target_ids=torch.tensor(ids),
        step=0,
        generator=generator,
    )


@pytest.mark.parametrize("weight", [0.05, 1.0])
def test_losses_of_a_step_are_those_of_cosines_over_the_temperature(weight):
    method = build(temperature=0.1, target_weight=weight, margin=0.2)
    # The first batch is remembered; sample 2 is in both, and counts once, as it is now.
    method.step(batch_of(0, 1, 2))
    batch = batch_of(2, 3, 4)
    losses = method.step(batch)

    source, target, remembered = (F.normalize(x, dim=1) for x in (batch.source, batch.target, TARGET[:2]))
    prototypes = method.classifier.weight.detach()
    expected = {
        "source": F.cross_entropy(source @ prototypes.t() / 0.1, batch.source_labels),
        "clustering": neighbourhood_clustering_loss(
            target, target @ prototypes.t() / 0.1, target @ remembered.t(), temperature=0.1
        ),
        "separation": entropy_separation_loss(target @ prototypes.t() / 0.1, margin=0.2),
    }
    for name, value in expected.items():
        assert float(losses.parts[name].detach()) == pytest.approx(float(value), rel=1e-5), name
    total = expected["source"] + weight * (expected["clustering"] + expected["separation"])
    assert float(losses.total.detach()) == pytest.approx(float(total), rel=1e-5)


def test_first_step_has_no_memory_to_look_at():
    method = build()
    target = method.features(TARGET[:3])
    assert method.cosines_to_remembered(target, torch.arange(3)).shape == (3, 0)
    assert math.isfinite(float(method.step(batch_of(0, 1, 2)).total.detach()))


def test_memory_has_the_newest_feature_of_each_sample_without_gradient():
    backbone = torch.nn.Linear(D, D)
    torch.manual_seed(0)
    method = DANCE(D, C, Settings.checked(steps=20, queue_size=20), DANCEOptions(), backbone)
    method.step(batch_of(0, 1))
    with torch.no_grad():
        backbone.bias.add_(1)
    method.step(batch_of(1, 2))
    newest = {int(i): row for i, row in zip(method.memory.ids, method.memory.rows, strict=True) if int(i) >= 0}
    assert sorted(newest) == [0, 1, 2]
    now = method.features(TARGET).detach()
    assert torch.allclose(newest[1], now[1])
    assert not torch.allclose(newest[0], now[0])
    assert not method.memory.rows.requires_grad


def test_memory_is_no_larger_than_the_queue_size():
    method = build(queue_size=4)
    for start in range(0, N_TARGET, 3):
        method.step(batch_of(start, start + 1, start + 2))
    assert sorted(method.memory.ids.tolist()) == [8, 9, 10, 11]


def test_forgotten_samples_leave_no_feature_behind_and_change_no_decision():
    method = build()
    method.step(batch_of(0, 1, 2))
    before = method.decide(method.features(TARGET))
    method.forget_samples()
    assert all(len(value) == 0 for name, value in method.state_dict().items() if name in ("memory.rows", "memory.ids"))
    assert torch.equal(method.decide(method.features(TARGET)).odds, before.odds)


def test_sample_is_unknown_where_its_entropy_is_above_half_of_log_c():
    method = build(temperature=0.25)
    with torch.no_grad():
        method.classifier.weight.copy_(F.pad(torch.eye(4), (0, 1)))
    features = F.normalize(torch.tensor([[1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 0, 0, 0, 4.0]]), dim=1)
    # Entropies: of (e⁴, 1, 1, 1), of four equal ones, and of (e^0.97, 1, 1, 1); the border is ln 4 / 2 = 0.69.
    decision = method.decide(features)
    assert decision.known.tolist() == [True, False, False]
    for row, known in zip(features.tolist(), decision.known.tolist(), strict=True):
        weights = [math.exp(4 * x) for x in row[:4]]
        entropy = -sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)
        assert known == (entropy <= math.log(4) / 2)


def test_prototypes_have_unit_norm_after_a_step():
    method = build()
    with torch.no_grad():
        method.classifier.weight.mul_(3)
    method.after_step()
    assert method.class_prototypes().norm(dim=1).tolist() == pytest.approx([1.0] * C)
