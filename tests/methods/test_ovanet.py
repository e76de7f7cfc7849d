"""One step of OVANet by hand. Softmax of (ln 3, 0) is (3/4, 1/4)."""

from __future__ import annotations

import math

import pytest
import torch

from uniot.config import Settings
from uniot.methods.base import Batch
from uniot.methods.ovanet import OVANet, OVANetOptions

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)


def build(**options) -> OVANet:
    torch.manual_seed(0)
    return OVANet(4, 2, Settings.checked(steps=20), OVANetOptions(**options))


def by_hand(**options) -> OVANet:
    """The classifier reads the first two places; the one-vs-all classifiers claim by the others and refuse by none."""
    method = build(**options)
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(4)[:2])
        method.one_vs_all.weight.zero_()
        method.one_vs_all.weight[2:] = torch.eye(4)[2:]
    return method


def batch() -> Batch:
    return Batch(
        source=torch.tensor([[LN3, 0.0, LN3, 0.0], [0.0, 0.0, -LN3, -LN3]]),
        source_labels=torch.tensor([0, 1]),
        target=torch.tensor([[5.0, 1.0, 0.0, 0.0], [5.0, 1.0, LN3, 0.0]]),
        target_ids=torch.arange(2),
        step=0,
        generator=torch.Generator(),
    )


def test_losses_of_a_step_worked_by_hand():
    losses = by_hand(one_vs_all_weight=0.5, entropy_weight=0.1).step(batch())
    parts = {name: float(part.detach()) for name, part in losses.parts.items()}
    assert parts["source"] == pytest.approx((LN4 - LN3 + LN2) / 2)
    # Sample 0, of class 0: claimed with 3/4, by the other with 1/2. Sample 1, of class 1: with 1/4, and 1/4.
    claimed, refused = (LN4 - LN3 + LN4) / 2, (LN2 + LN4 - LN3) / 2
    assert parts["one_vs_all"] == pytest.approx(claimed + refused)
    # Three classifiers are undecided, one claims with 3/4.
    assert parts["entropy"] == pytest.approx((3 * LN2 + LN4 - 0.75 * LN3) / 4)
    total = parts["source"] + 0.5 * parts["one_vs_all"] + 0.1 * parts["entropy"]
    assert float(losses.total.detach()) == pytest.approx(total)


def test_sample_is_unknown_where_the_classifier_of_its_nearest_class_refuses_it():
    # All are nearest to class 0. The classifier of class 1 has nothing to say about them.
    features = torch.tensor([[2.0, 1.0, LN3, -9.0], [2.0, 1.0, -LN3, 9.0], [2.0, 1.0, 0.0, -9.0]])
    decision = by_hand().decide(features)
    assert decision.nearest.tolist() == [0, 0, 0]
    # As many as claim it refuse it: it is known, as in the authors' code.
    assert decision.known.tolist() == [True, False, True]
    assert by_hand().score(features).tolist() == pytest.approx([3 / 4, 1 / 4, 1 / 2])


def test_rows_of_the_one_vs_all_classifiers_have_unit_norm_after_a_step():
    method = build()
    with torch.no_grad():
        method.one_vs_all.weight.mul_(3)
        method.classifier.weight.mul_(3)
    before = method.classifier.weight.detach().clone()
    method.after_step()
    assert method.one_vs_all.weight.norm(dim=1).tolist() == pytest.approx([1.0] * 4)
    assert torch.equal(method.classifier.weight, before)


def test_classifiers_sit_on_the_embeddings_without_a_bias():
    method = build()
    x = torch.randn(3, 4)
    assert torch.equal(method.features(x), x)
    assert {name for name, _ in method.named_parameters()} == {"classifier.weight", "one_vs_all.weight"}


def test_target_trains_the_one_vs_all_classifiers_and_not_the_closed_one():
    # Without the source's own gradient what is left is the target's.
    with_target, without = build(entropy_weight=0.1), build(entropy_weight=0)
    for method in (with_target, without):
        method.step(batch()).total.backward()
    assert torch.equal(with_target.classifier.weight.grad, without.classifier.weight.grad)
    assert not torch.equal(with_target.one_vs_all.weight.grad, without.one_vs_all.weight.grad)
