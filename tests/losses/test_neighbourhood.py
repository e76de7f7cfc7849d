from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.losses import neighbourhood_clustering_loss

LN2 = math.log(2)


def naive(target, prototypes, remembered, temperature) -> float:
    """One sample and one candidate at a time."""
    total = 0.0
    for i, anchor in enumerate(target):
        others = [row for j, row in enumerate(target) if j != i]
        scores = [float(anchor @ row) / temperature for row in [*prototypes, *others, *remembered]]
        normaliser = sum(math.exp(score) for score in scores)
        shares = [math.exp(score) / normaliser for score in scores]
        total -= sum(share * math.log(share) for share in shares)
    return total / len(target)


def test_loss_of_two_samples_worked_by_hand():
    # Both samples are e₁, one prototype is e₂. With τ = 1/ln 3 each is like the other with 3 and the prototype with 1:
    # (3/4, 1/4), whose entropy is ln 4 - 3/4 ln 3.
    target = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    logits = torch.zeros(2, 1)
    loss = neighbourhood_clustering_loss(target, logits, torch.zeros(2, 0), temperature=1 / math.log(3))
    assert float(loss) == pytest.approx(2 * LN2 - 0.75 * math.log(3))


def test_remembered_samples_count_as_those_of_the_batch_do():
    # A remembered e₁ as well: (3, 3, 1)/7.
    target = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    loss = neighbourhood_clustering_loss(target, torch.zeros(2, 1), torch.ones(2, 1), temperature=1 / math.log(3))
    assert float(loss) == pytest.approx(6 / 7 * math.log(7 / 3) + 1 / 7 * math.log(7))


@pytest.mark.parametrize("seed", range(3))
def test_loss_is_that_of_a_sum_sample_by_sample(seed):
    generator = torch.Generator().manual_seed(seed)
    target, prototypes, remembered = (F.normalize(torch.randn(n, 4, generator=generator), dim=1) for n in (5, 3, 6))
    loss = neighbourhood_clustering_loss(target, target @ prototypes.t() / 0.2, target @ remembered.t(), 0.2)
    assert float(loss) == pytest.approx(naive(target, prototypes, remembered, 0.2), rel=1e-5)


def test_single_sample_without_memory_is_like_the_classes_alone():
    loss = neighbourhood_clustering_loss(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), torch.zeros(1, 0))
    assert float(loss) == pytest.approx(LN2)


def test_samples_that_lie_together_attract_each_other():
    target = F.normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]]), dim=1).requires_grad_()
    neighbourhood_clustering_loss(target, torch.zeros(3, 1), torch.zeros(3, 0), temperature=0.5).backward()
    step = -target.grad
    # The first moves down towards the second, the second up towards the first.
    assert float(step[0, 1]) < 0 < float(step[1, 1])
