"""DeepJDOT by hand. Softmax of (ln 3, 0) is (3/4, 1/4)."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, MissingPackageError
from uniot.losses import joint_cost
from uniot.methods.base import Batch
from uniot.methods.deepjdot import DeepJDOT, DeepJDOTOptions, class_masses, exact_plan

LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)


def by_hand(batch_size: int = 36, **options) -> DeepJDOT:
    """Features are the inputs, and logits are the features."""
    settings = Settings.checked(feature_size=2, steps=10, batch_size=batch_size)
    method = DeepJDOT(2, 2, settings, DeepJDOTOptions(**options))
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    return method


def batch_of_four() -> Batch:
    return Batch(
        source=torch.tensor([[LN3, 0.0], [0.0, 0.0]]),
        source_labels=torch.tensor([0, 1]),
        target=torch.tensor([[0.0, LN3], [LN3, 0.0]]),
        target_ids=torch.arange(2),
        step=0,
        generator=torch.Generator(),
    )


def test_cost_adds_squared_distances_and_cross_entropies_with_their_weights():
    source, target = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    logits = torch.tensor([[LN3, 0.0], [0.0, 0.0], [0.0, LN3]])
    found = joint_cost(source, target, torch.tensor([0, 1]), logits, 0.1, 2.0)
    # Squared distances: 1, 9 + 16 and 2 from the first, 1, 4 + 9 and 0 from the second.
    # Class 0 has probability 3/4, 1/2 and 1/4 at the target samples; class 1 has 1/4, 1/2 and 3/4.
    expected = [
        [0.1 + 2 * (LN4 - LN3), 2.5 + 2 * LN2, 0.2 + 2 * LN4],
        [0.1 + 2 * LN4, 1.3 + 2 * LN2, 2 * (LN4 - LN3)],
    ]
    assert found.numpy() == pytest.approx(torch.tensor(expected).numpy(), abs=1e-6)


def test_gradient_of_the_cost_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    source, target, logits = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 4), (5, 4), (5, 2))
    )
    labels = torch.tensor([0, 1, 1])
    assert torch.autograd.gradcheck(
        lambda *given: joint_cost(*given[:2], labels, given[2], 0.3, 0.7), (source, target, logits)
    )


def test_equal_samples_cost_nothing_and_have_a_finite_gradient():
    rows = torch.full((2, 3), 0.1, requires_grad=True)
    cost = joint_cost(rows, rows, torch.tensor([0, 0]), torch.tensor([[50.0, 0.0], [50.0, 0.0]]), 1.0, 1.0)
    cost.sum().backward()
    assert float(cost.detach().max()) == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(rows.grad).all()


def test_exact_plan_is_the_cheapest_matching_even_if_the_cheapest_pair_is_not_in_it():
    # The diagonal costs 1 + 9, the other matching 2 + 3.
    assert exact_plan(torch.tensor([[1.0, 2.0], [3.0, 9.0]])).tolist() == [[0, 0.5], [0.5, 0]]


def test_exact_plan_moves_all_mass_between_batches_of_different_sizes():
    # Each source sample has mass 1/2, each target sample 1/3; the target sample in the middle is filled by both.
    plan = exact_plan(torch.tensor([[0.0, 1.0, 5.0], [5.0, 1.0, 0.0]]))
    assert plan.numpy() == pytest.approx(torch.tensor([[1 / 3, 1 / 6, 0], [0, 1 / 6, 1 / 3]]).numpy())


def test_each_class_of_a_batch_has_the_same_mass():
    assert class_masses(torch.tensor([2, 0, 2, 2])).tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    # One class: uniform; and classes that are not in the batch have no mass to give.
    assert class_masses(torch.tensor([3, 3])).tolist() == [0.5, 0.5]
    assert class_masses(torch.zeros(0, dtype=torch.long)).tolist() == []


def test_rows_of_the_plan_have_the_masses_of_their_classes():
    # The rare class has half of the mass, of which the target sample at cost 0 takes no more than its third.
    masses = class_masses(torch.tensor([0, 0, 1]))
    plan = exact_plan(torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 2.0], [2.0, 2.0, 0.0]]), masses)
    assert plan.sum(dim=1).tolist() == pytest.approx([0.25, 0.25, 0.5])
    assert plan.sum(dim=0).tolist() == pytest.approx([1 / 3] * 3)
    assert plan[2, 2].item() == pytest.approx(1 / 3)


@pytest.mark.parametrize("n_batches", [1, 3])
def test_plan_joins_batches_and_weighs_their_classes_alike(n_batches):
    method = by_hand(4, n_batches=n_batches, feature_weight=0.5, label_weight=2.0)
    batches = [random_batch(step) for step in range(4)]
    for step, batch in enumerate(batches):
        found = method.step(batch)
        joined = batches[max(0, step + 1 - n_batches) : step + 1]
        source, target = (torch.cat([getattr(one, side) for one in joined]) for side in ("source", "target"))
        labels = torch.cat([one.source_labels for one in joined])
        # Features and logits are the inputs.
        cost = joint_cost(source, target, labels, target, 0.5, 2.0)
        count = torch.bincount(labels)
        masses = 1 / count[labels] / (count > 0).sum()
        expected = float((exact_plan(cost, masses) * cost).sum())
        assert float(found.parts["transport"].detach()) == pytest.approx(expected, rel=1e-5)


def random_batch(step: int) -> Batch:
    generator = torch.Generator().manual_seed(step)
    source, target = torch.randn(2, 4, 2, generator=generator)
    return Batch(source, torch.tensor([0, 0, 0, step % 2]), target, torch.arange(4), step, generator)


def test_memory_is_empty_after_the_training_and_there_is_none_for_one_batch():
    method = by_hand()
    method.step(batch_of_four())
    assert int((method.source_memory.ids >= 0).sum()) == 2
    method.forget_samples()
    assert not (method.source_memory.ids >= 0).any()
    assert not (method.target_memory.ids >= 0).any()
    assert by_hand(n_batches=1).source_memory is None


def test_batch_of_one_class_and_one_target_sample_has_a_loss_and_a_gradient():
    method = by_hand()
    batch = Batch(torch.ones(3, 2), torch.zeros(3, dtype=torch.long), torch.zeros(1, 2), torch.zeros(1).long(), 0, None)
    losses = method.step(batch)
    losses.total.backward()
    # All mass goes to one sample: 0.01 times the squared distance 2, and half of -ln 1/2.
    assert float(losses.parts["transport"].detach()) == pytest.approx(0.02 + LN2 / 2, rel=1e-5)
    assert torch.isfinite(method.bottleneck.weight.grad).all()


def test_cost_that_is_no_number_is_an_error_and_not_a_plan():
    with pytest.raises(DataError, match="cost"):
        exact_plan(torch.tensor([[0.0, math.nan], [1.0, 0.0]]))


def test_losses_of_a_step_worked_by_hand():
    losses = by_hand(feature_weight=0.5, label_weight=2.0).step(batch_of_four())
    # Cross-entropy of the source: -ln 3/4 and -ln 1/2.
    # The plan pairs the first source sample with the second target sample: distance 0, probability 3/4 of its class;
    # and the second with the first: distance (ln 3)², probability 3/4. The other pairs are farther and less probable.
    source, transport = (LN4 - LN3 + LN2) / 2, (2 * (LN4 - LN3) + 0.5 * LN3**2 + 2 * (LN4 - LN3)) / 2
    assert float(losses.parts["source"].detach()) == pytest.approx(source, rel=1e-5)
    assert float(losses.parts["transport"].detach()) == pytest.approx(transport, rel=1e-5)
    assert float(losses.total.detach()) == pytest.approx(source + transport, rel=1e-5)


def test_paired_samples_approach_each_other():
    method = by_hand(feature_weight=0.5, label_weight=0.0)
    source = torch.tensor([[0.0, 0.0], [9.0, 0.0]], requires_grad=True)
    target = torch.tensor([[9.0, 2.0], [1.0, 0.0]], requires_grad=True)
    losses = method.transport_losses(source, target, torch.tensor([0, 1]))
    losses.parts["transport"].backward()
    # d/dt of 1/2 · 0.5 |s - t|² is (t - s) / 2: the pairs are (0, 0) with (1, 0), and (9, 0) with (9, 2).
    assert target.grad.tolist() == [[0, 1], [0.5, 0]]
    assert source.grad.tolist() == [[-0.5, 0], [0, -1]]


def test_losses_are_those_of_the_whole_batch_that_is_gathered():
    method, batch = by_hand(), batch_of_four()
    gathered = Batch(
        batch.source,
        batch.source_labels.repeat(2),
        batch.target,
        batch.target_ids.repeat(2),
        batch.step,
        batch.generator,
        gather=lambda rows: rows.repeat(2, 1),
    )
    # Another process has the same rows: each pair twice, with half of the mass.
    one, both = method.step(batch), method.step(gathered)
    assert float(both.total.detach()) == pytest.approx(float(one.total.detach()), rel=1e-6)


def test_unknown_is_entropy_above_half_of_its_maximum():
    # H(p) = ln(2)/2 if the larger of two probabilities is 0.8900: a logit of 2.0907.
    decision = by_hand().decide(torch.tensor([[2.08, 0.0], [2.10, 0.0], [0.0, 2.10]]))
    assert decision.known.tolist() == [False, True, True]
    assert decision.nearest.tolist() == [0, 0, 1]


@pytest.mark.parametrize("method", ["deepjdot", "ts-pot"])
def test_without_pot_training_does_not_start_and_a_saved_model_still_predicts(method, tmp_path, monkeypatch):
    toy = make_toy_domains(samples_per_class=10)
    data = toy.x_source, toy.y_source, toy.x_target
    fitted = UniDAClassifier(method, steps=2, n_private_classes=1, random_state=0).fit(*data)
    fitted.save(tmp_path / "run")
    # An entry None makes every import of the module fail.
    monkeypatch.setitem(sys.modules, "ot", None)
    steps = []
    with pytest.raises(MissingPackageError, match=r"needs ot, .* Run `pip install 'uniot\[transport\]'`\."):
        UniDAClassifier(method, steps=2).fit(*data, on_step=lambda *step: steps.append(step))
    assert not steps
    loaded = UniDAClassifier.load(tmp_path / "run")
    assert loaded.predict(toy.x_target).tolist() == fitted.labels_.tolist()
