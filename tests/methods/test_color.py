"""CoLOR: losses and multipliers against the authors' code, and the choice of the head by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.losses import false_rejection_losses, rejection_lagrangian, rejection_rates
from uniot.methods import resolved_settings
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.color import CoLOR, chosen_head
from uniot.methods.registry import create_method

# RecallConstrainedClassification.closure and recall_from_logits of Shra1-25/CoLOR
# (src/algorithm/precision_at_recall_multiple_recalls_w_labels.py and src/core_utils.py, commit f8f3079) on the arrays
# of `arrays`, whose heads have two logits each; the multipliers after three steps of Adam with the rate 0.02.
OFFICIAL = {
    "false": [0.7438656687736511, 0.1786084771156311, 0.29582926630973816],
    "recall": [0.6666666865348816, 0.3333333432674408, 0.8333333134651184],
    "proxy": [0.7057055234909058, 0.3560914993286133, 0.7314555048942566],
    "lagrangian": -0.08335888385772705,
    "multipliers": [0.940000057220459, 0.4399999678134918, 1.940000057220459],
}
LEAST, MULTIPLIERS = torch.tensor([0.02, 0.25, 0.45]), torch.tensor([1.0, 0.5, 2.0])


def arrays() -> tuple[torch.Tensor, torch.Tensor]:
    """Log-odds of a rejection, which are the difference of the authors' two logits."""
    logits = torch.from_numpy(np.random.default_rng(2).normal(size=(10, 6)) * 2).float()
    log_odds = logits[:, 1::2] - logits[:, ::2]
    return log_odds[:4], log_odds[4:]


def build(n_heads: int = 3, **options) -> CoLOR:
    options = {"n_heads": n_heads, "dropout": 0.0, **options}
    settings = Settings.checked(method="color", feature_size=4, steps=10, batch_size=4, method_options=options)
    torch.manual_seed(0)
    method = create_method(resolved_settings(settings, 40), 5, 3)
    assert isinstance(method, CoLOR)
    return method


def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randn(2, 6, 5, generator=generator)
    return Batch(source, torch.arange(6) % 3, target, torch.arange(6), 0, generator)


def test_losses_are_those_of_the_authors_code():
    source, target = arrays()
    false, (hard, soft) = false_rejection_losses(source), rejection_rates(target)
    assert false.tolist() == pytest.approx(OFFICIAL["false"], abs=1e-5)
    assert hard.tolist() == pytest.approx(OFFICIAL["recall"], abs=1e-5)
    assert soft.tolist() == pytest.approx(OFFICIAL["proxy"], abs=1e-5)
    total = rejection_lagrangian(false, soft, LEAST, MULTIPLIERS)
    assert total.item() == pytest.approx(OFFICIAL["lagrangian"], abs=1e-5)


def test_multipliers_move_as_in_the_authors_code():
    method, (hard, _) = build(), rejection_rates(arrays()[1])
    method.multipliers.copy_(MULTIPLIERS)
    for step in range(3):
        method.move_multipliers(LEAST - hard, step)
    assert method.multipliers.tolist() == pytest.approx(OFFICIAL["multipliers"], abs=1e-5)
    method.multipliers.fill_(0.01)
    method.move_multipliers(-torch.ones(3), 3)
    assert float(method.multipliers.min()) >= 0


def test_lagrangian_worked_by_hand():
    # One head: log 2 for the source; at log-odds 0 it rejects one half, 0.2 more than it has to.
    false, (hard, soft) = false_rejection_losses(torch.zeros(2, 1)), rejection_rates(torch.zeros(4, 1))
    assert (hard.item(), soft.item()) == (0, 0.5)
    total = rejection_lagrangian(false, soft, torch.tensor([0.3]), torch.tensor([3.0]))
    assert total.item() == pytest.approx(math.log(2) - 3 * 0.2)


def test_gradient_keeps_the_source_and_rejects_the_target_and_no_multiplier_is_trained_by_it():
    source, target = (rows.requires_grad_(True) for rows in arrays())
    multipliers = MULTIPLIERS.clone().requires_grad_(True)
    rejection_lagrangian(false_rejection_losses(source), rejection_rates(target)[1], LEAST, multipliers).backward()
    assert bool((source.grad > 0).all())
    assert bool((target.grad < 0).all())
    assert multipliers.grad is None


def test_without_samples_nothing_is_rejected_and_nothing_is_lost():
    assert false_rejection_losses(torch.zeros(0, 2)).tolist() == [0, 0]
    assert [rates.tolist() for rates in rejection_rates(torch.zeros(0, 2))] == [[0, 0], [0, 0]]


def test_head_is_the_one_that_rejects_most_of_the_target_and_spares_the_source():
    target = torch.tensor([0.1, 0.5, 0.9])
    assert chosen_head(torch.tensor([0.0, 0.004, 0.2]), target, 0.005) == 1
    assert chosen_head(torch.tensor([0.0, 0.0, 0.005]), target, 0.005) == 2
    # None spares it: the one that rejects least of it.
    assert chosen_head(torch.tensor([0.3, 0.1, 0.2]), target, 0.005) == 1


def test_total_is_the_lagrangian_and_the_penalty_per_head():
    method, given = build(penalty=0.1), batch()
    losses = method.step(given)
    squares = sum(float(weight.detach().square().sum()) for weight in method.parameters())
    source, target = (torch.relu(method.bottleneck(rows)) for rows in (given.source, given.target))
    false, (_, soft) = false_rejection_losses(method.heads(source)), rejection_rates(method.heads(target))
    lagrangian = rejection_lagrangian(false, soft, method.least_rates, torch.ones(3)).item()
    expected = lagrangian / 3 + losses.parts["source"].item() + 0.1 * squares
    assert losses.total.item() == pytest.approx(expected, rel=1e-5)
    assert method.least_rates.tolist() == pytest.approx([0.02, 0.235, 0.45])


def test_the_chosen_head_decides():
    method = build(n_heads=2)
    with torch.no_grad():
        method.heads.weight.zero_()
        method.heads.bias.copy_(torch.tensor([-1.0, 1.0]))
    rows = torch.rand(4, 4)
    final = FinalFeatures(rows, torch.zeros(4).long(), torch.zeros(4).bool(), rows, lambda: rows, torch.Generator())
    assert not method.is_finalized()
    method.finalize(final)
    assert method.is_finalized()
    # The second head rejects everything, the source too.
    assert int(method.chosen) == 0
    assert method.score(rows).tolist() == pytest.approx([1 / (1 + math.exp(-1))] * 4)
    assert method.decide(rows).known.all()


@pytest.mark.medium
def test_a_target_without_private_classes_keeps_its_order():
    toy = make_toy_domains(n_common=4, n_source_private=2, n_target_private=0, samples_per_class=20, seed=1)
    model = UniDAClassifier("color", steps=100, feature_size=32, n_private_classes=1, random_state=0)
    model.fit(toy.x_source, toy.y_source, toy.x_target)
    nearest = model.classes_[model.model_.target.nearest]
    assert (nearest == toy.oracle_y_target).mean() > 0.8
