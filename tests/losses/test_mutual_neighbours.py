"""Who is whose neighbour, on a circle where similarity is the cosine of an angle."""

from __future__ import annotations

import math

import pytest
import torch

from uniot.losses import IndexedFeatures, mutual_neighbours, neighbour_contrastive_loss


def at(degrees: list[float], ids: list[int]) -> IndexedFeatures:
    angles = torch.tensor(degrees) * math.pi / 180
    return IndexedFeatures(torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor(ids))


def test_neighbours_across_domains_must_choose_each_other():
    own = at([0, 20, 90], [0, 1, 2])
    other = at([15, 100], [-1, -2])
    # 0 and 20 degrees both choose 15, which chooses 20; 90 and 100 choose each other.
    assert mutual_neighbours(own, own, other, 1).tolist() == [[False, False], [True, False], [False, True]]


def test_further_down_the_list_more_are_mutual():
    own = at([0, 20, 90], [0, 1, 2])
    other = at([15, 100], [-1, -2])
    # 100 has 90 and 20 nearest, so 0 is not among its two.
    assert mutual_neighbours(own, own, other, 2).tolist() == [[True, False], [True, True], [False, True]]


def test_sample_is_never_its_own_neighbour_nor_a_rival_to_itself():
    # Sample 7 is in the bank with an older feature, at 1 degree.
    own = at([1, 10, 60], [7, 8, 9])
    anchors = at([0], [7])
    assert mutual_neighbours(anchors, own, own, 1).tolist() == [[False, True, False]]


def test_domain_of_nothing_but_the_anchor_has_no_neighbours():
    own = at([0], [7])
    assert mutual_neighbours(own, own, own, 3).tolist() == [[False]]


def test_neighbours_are_those_of_plain_loops():
    generator = torch.Generator().manual_seed(0)
    own, other = (
        IndexedFeatures(torch.nn.functional.normalize(torch.randn(n, 3, generator=generator), dim=1), ids)
        for n, ids in ((12, torch.arange(12)), (9, -1 - torch.arange(9)))
    )
    similarity = own.features @ other.features.t()
    expected = [
        [
            int((similarity[i] > similarity[i, j]).sum()) < 3 and int((similarity[:, j] > similarity[i, j]).sum()) < 3
            for j in range(9)
        ]
        for i in range(12)
    ]
    assert mutual_neighbours(own, own, other, 3).tolist() == expected
    assert 0 < sum(map(sum, expected)) < 36


def test_contrast_worked_by_hand():
    logits = torch.tensor([[math.log(2), 0.0, 0.0, 50.0], [0.0, 0.0, 0.0, 0.0]])
    hidden = torch.tensor([[False, False, False, True], [True, False, False, False]])
    positives = torch.tensor([[True, True, False, False], [False] * 4])
    # p = (1/2, 1/4, 1/4) for the first row; the second has no neighbours and does not count.
    assert float(neighbour_contrastive_loss(logits, positives, hidden)) == pytest.approx(
        (math.log(2) + math.log(4)) / 2
    )


def test_batch_without_neighbours_has_zero_loss_and_finite_gradients():
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    loss = neighbour_contrastive_loss(logits, nothing, nothing)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.equal(logits.grad, torch.zeros(3, 4))
