from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from uniot.errors import SettingsError
from uniot.losses import FeatureQueue, nearest_neighbours


def feature(*ids: int) -> torch.Tensor:
    """A recognisable feature for each id."""
    return torch.tensor([[float(i), -float(i)] for i in ids])


def push(queue: FeatureQueue, *ids: int) -> None:
    queue.push(feature(*ids), torch.tensor(ids))


def filled(features: torch.Tensor, ids: list[int]) -> FeatureQueue:
    queue = FeatureQueue(len(ids), features.shape[1])
    queue.push(features, torch.tensor(ids))
    return queue


def naive_neighbours(anchors, anchor_ids, queue) -> torch.Tensor:
    """One anchor and one candidate at a time."""
    found = []
    for i, anchor in enumerate(anchors):
        best, best_similarity = anchor, -float("inf")
        for j, candidate in enumerate(queue.features):
            is_other = int(queue.ids[j]) >= 0 and int(queue.ids[j]) != int(anchor_ids[i])
            if is_other and float(anchor @ candidate) > best_similarity:
                best, best_similarity = candidate, float(anchor @ candidate)
        for j, candidate in enumerate(anchors):
            if int(anchor_ids[j]) != int(anchor_ids[i]) and float(anchor @ candidate) > best_similarity:
                best, best_similarity = candidate, float(anchor @ candidate)
        found.append(best)
    return torch.stack(found)


# --- first in, first out ----------------------------------------------------------------------------------


def test_new_queue_holds_nobody():
    assert FeatureQueue(3, 2).ids.tolist() == [-1, -1, -1]


def test_oldest_entry_is_overwritten_first():
    queue = FeatureQueue(4, 2)
    push(queue, 1, 2)
    push(queue, 3, 4)
    push(queue, 5)
    assert queue.ids.tolist() == [5, 2, 3, 4]
    push(queue, 6, 7)
    assert queue.ids.tolist() == [5, 6, 7, 4]


def test_batch_that_reaches_past_the_end_goes_on_at_the_beginning():
    queue = FeatureQueue(5, 2)
    push(queue, 1, 2, 3)
    push(queue, 4, 5, 6)
    assert queue.ids.tolist() == [6, 2, 3, 4, 5]
    assert torch.equal(queue.features, feature(6, 2, 3, 4, 5))


def test_of_a_batch_longer_than_the_queue_the_last_rows_stay_in_order():
    queue = FeatureQueue(3, 2)
    push(queue, 9)
    push(queue, 1, 2, 3, 4, 5)
    assert sorted(queue.ids.tolist()) == [3, 4, 5]
    assert torch.equal(queue.features, feature(*queue.ids.tolist()))
    push(queue, 6)
    assert sorted(queue.ids.tolist()) == [4, 5, 6]


def test_queue_remembers_the_last_of_a_long_stream_whatever_the_batches():
    queue = FeatureQueue(7, 2)
    generator = torch.Generator().manual_seed(0)
    pushed: list[int] = []
    for _ in range(60):
        size = int(torch.randint(0, 11, (1,), generator=generator))
        ids = list(range(len(pushed), len(pushed) + size))
        queue.push(feature(*ids).reshape(-1, 2), torch.tensor(ids, dtype=torch.long))
        pushed += ids
        assert sorted(i for i in queue.ids.tolist() if i >= 0) == pushed[-7:]


def test_features_in_the_queue_carry_no_gradient():
    queue = FeatureQueue(2, 2)
    queue.push(feature(1, 2).requires_grad_(), torch.tensor([1, 2]))
    assert not queue.features.requires_grad


def test_queue_is_part_of_the_state_that_is_saved():
    queue = FeatureQueue(3, 2)
    push(queue, 1, 2)
    other = FeatureQueue(3, 2)
    other.load_state_dict(queue.state_dict())
    push(queue, 3, 4)
    push(other, 3, 4)
    assert torch.equal(queue.ids, other.ids)
    assert torch.equal(queue.features, other.features)


def test_queue_without_a_place_is_refused():
    with pytest.raises(SettingsError, match="the queue has size 0; give at least 1"):
        FeatureQueue(0, 4)


# --- neighbours -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_are_those_of_a_search_one_by_one(seed):
    generator = torch.Generator().manual_seed(seed)
    features = F.normalize(torch.randn(30, 4, generator=generator), dim=1)
    queue = FeatureQueue(20, 4)
    queue.push(features[:14], torch.randint(0, 12, (14,), generator=generator))
    anchors, ids = features[14:24], torch.randint(0, 12, (10,), generator=generator)
    assert torch.equal(nearest_neighbours(anchors, ids, queue), naive_neighbours(anchors, ids, queue))


def test_anchor_is_never_its_own_neighbour():
    anchors = F.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]]), dim=1)
    ids = torch.tensor([0, 1, 2])
    neighbours = nearest_neighbours(anchors, ids, filled(anchors, [0, 1, 2]))
    assert torch.equal(neighbours, anchors[[2, 2, 0]])


def test_entry_hidden_from_its_own_anchor_is_seen_by_the_others():
    # Sample 5 stands in the queue; the reference would hide its column from every anchor of the batch.
    queue = filled(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), [5, 6])
    anchors = torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    neighbours = nearest_neighbours(anchors, torch.tensor([5, 7]), queue)
    assert neighbours[1].tolist() == [1.0, 0.0]
    assert neighbours[0].tolist() == pytest.approx([0.8, 0.6])


def test_place_that_was_never_filled_is_nobodys_neighbour():
    queue = FeatureQueue(3, 2)
    queue.push(torch.tensor([[-1.0, 0.0]]), torch.tensor([9]))
    # An empty place is the zero vector, which has a larger cosine than −1.
    assert nearest_neighbours(torch.tensor([[1.0, 0.0]]), torch.tensor([1]), queue).tolist() == [[-1.0, 0.0]]


def test_target_of_a_single_sample_is_its_own_neighbour():
    anchor = torch.tensor([[0.6, 0.8]])
    queue = filled(anchor.repeat(4, 1), [0, 0, 0, 0])
    assert torch.equal(nearest_neighbours(anchor, torch.tensor([0]), queue), anchor)


def test_gradients_reach_a_neighbour_from_the_batch_and_none_from_the_queue():
    queue = filled(torch.tensor([[1.0, 0.0]]), [9])
    anchors = torch.tensor([[0.9, 0.1], [-1.0, 0.0], [-0.9, 0.1]], requires_grad=True)
    nearest_neighbours(anchors, torch.tensor([0, 1, 2]), queue).sum().backward()
    # Anchor 0 chooses the queue, 1 and 2 choose each other.
    assert anchors.grad.tolist() == [[0, 0], [1, 1], [1, 1]]
