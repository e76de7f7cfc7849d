"""One step of RTN by hand. Softmax of (ln 3, 0) is (3/4, 1/4)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from uniot.config import Settings
from uniot.methods.base import Batch
from uniot.methods.rtn import RTN, RTNOptions

LN2, LN3, LN4, LN10 = math.log(2), math.log(3), math.log(4), math.log(10)
STEPS = 40
SOURCE, TARGET = [[LN3, 0.0], [0.0, 0.0]], [[1.0, 1.0 + LN3]]


def build(**options) -> RTN:
    """Features are the inputs, logits are the features."""
    torch.manual_seed(0)
    method = RTN(2, 2, Settings.checked(feature_size=2, steps=STEPS), RTNOptions(**options))
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    return method


def with_residual(method: RTN, first: list[list[float]], second: list[list[float]]) -> RTN:
    with torch.no_grad():
        method.residual[0].weight.copy_(torch.tensor(first))
        method.residual[2].weight.copy_(torch.tensor(second))
    return method


def batch_at(step: int) -> Batch:
    return Batch(
        source=torch.tensor(SOURCE),
        source_labels=torch.tensor([0, 1]),
        target=torch.tensor(TARGET),
        target_ids=torch.arange(1),
        step=step,
        generator=torch.Generator().manual_seed(0),
    )


def naive_discrepancy(features: list[list[float]], logits: list[list[float]]) -> float:
    """Between the first two rows and the third, over the outer products of features and logits, pair by pair."""
    z = [np.outer(f, c).ravel() for f, c in zip(features, logits, strict=True)]
    distance = np.array([[((a - b) ** 2).sum() for b in z] for a in z])
    width = distance.sum() / 6
    kernel = sum(np.exp(-distance / (width * scale)) for scale in (0.25, 0.5, 1, 2, 4))
    return float(kernel[:2, :2].mean() + kernel[2:, 2:].mean() - 2 * kernel[:2, 2:].mean())


def test_losses_of_a_step_worked_by_hand():
    # The residual is the ReLU of the first logit, added to it: logits (ln 3, 0) become (2 ln 3, 0), so (9/10, 1/10).
    method = with_residual(build(), [[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]])
    losses = method.step(batch_at(2))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    fused = naive_discrepancy(SOURCE + TARGET, SOURCE + TARGET)
    expected = {"source": ((LN10 - 2 * LN3) + LN2) / 2, "discrepancy": fused, "entropy": entropy}
    assert {name: float(part.detach()) for name, part in losses.parts.items()} == pytest.approx(expected, rel=1e-5)
    # Half of the first tenth of the run is done: the ramp is 2 / (1 + exp(-5)) - 1.
    ramp = 2 / (1 + math.exp(-5)) - 1
    total = expected["source"] + expected["discrepancy"] + 0.1 * ramp * entropy
    assert float(losses.total.detach()) == pytest.approx(total, rel=1e-5)


def test_discrepancy_is_that_of_features_and_logits_fused():
    features, logits = [[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]], [[0.5, 0.0, 1.0], [2.0, 1.0, 0.0], [-1.0, 1.0, 1.0]]
    found = build().discrepancy(torch.tensor(features), torch.tensor(logits), 2)
    assert float(found) == pytest.approx(naive_discrepancy(features, logits), rel=1e-5)


def test_entropy_counts_nothing_at_first_and_fully_after_a_tenth_of_the_run():
    method = build(discrepancy_weight=0.0)
    for step, share in ((0, 0.0), (STEPS // 10, 1.0), (STEPS, 1.0)):
        losses = method.step(batch_at(step))
        added = float((losses.total - losses.parts["source"]).detach())
        assert added == pytest.approx(0.1 * share * float(losses.parts["entropy"].detach()), abs=1e-5)


def test_target_is_never_seen_by_the_residual():
    one = build()
    other = with_residual(build(), [[5.0, 0.0], [0.0, 5.0]], [[0.0, 5.0], [5.0, 0.0]])
    found = [method.step(batch_at(10)).parts for method in (one, other)]
    assert torch.equal(found[0]["entropy"], found[1]["entropy"])
    assert torch.equal(found[0]["discrepancy"], found[1]["discrepancy"])
    assert not torch.equal(found[0]["source"], found[1]["source"])


def test_target_classifier_decides_without_the_residual():
    features = torch.tensor([[3.0, 0.0], [0.0, 0.1], [0.0, 4.0]])
    other = with_residual(build(), [[5.0, 0.0], [0.0, 5.0]], [[0.0, 5.0], [5.0, 0.0]])
    for method in (build(), other):
        decision = method.decide(features)
        assert decision.nearest.tolist() == [0, 1, 1]
        assert decision.known.tolist() == [True, False, True]


def test_both_classifiers_begin_nearly_as_one_and_the_residual_learns():
    torch.manual_seed(0)
    method = RTN(2, 20, Settings.checked(feature_size=2, steps=STEPS), RTNOptions())
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(1))
    assert float(method.residual(logits).detach().norm() / logits.norm()) < 0.01
    method.step(batch_at(1)).total.backward()
    assert float(method.residual[2].weight.grad.abs().max()) > 0


def test_step_down_the_gradient_brings_the_domains_together():
    method = build(entropy_weight=0.0)
    source, target = torch.tensor(SOURCE), torch.tensor(TARGET) * 3
    features = torch.cat([source, target]).requires_grad_()
    before = method.discrepancy(features, features, 2)
    before.backward()
    moved = (features - 0.05 * features.grad).detach()
    assert float(method.discrepancy(moved, moved, 2)) < float(before.detach())
