"""Memories of target features: a queue of the latest ones, and a bank with one row per sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from uniot.errors import DataError, SettingsError


class FeatureQueue(nn.Module):
    """The last `size` target features with their sample ids, first in, first out.

    `len(queue)` is its size, full or not; `queue.n_stored` is the number of features that it holds so far.

    Attributes:
        features: (size, feature_size); rows of zeros where nothing is stored yet.
        ids: sample id per row, (size,); -1 where nothing is stored yet.
        cursor: next place to write, a scalar.

    Example:
        >>> queue = FeatureQueue(3, 2)
        >>> queue.push(torch.eye(2), torch.tensor([7, 8]))
        >>> queue.n_stored, len(queue)
        (2, 3)
        >>> queue.push(torch.eye(2), torch.tensor([9, 7]))
        >>> queue.ids
        tensor([7, 8, 9])
    """

    features: Tensor
    ids: Tensor
    cursor: Tensor

    def __init__(self, size: int, feature_size: int) -> None:
        super().__init__()
        if size < 1:
            raise SettingsError(f"the queue has size {size}; give at least 1.")
        self.register_buffer("features", torch.zeros(size, feature_size))
        self.register_buffer("ids", torch.full((size,), -1, dtype=torch.long))
        self.register_buffer("cursor", torch.zeros((), dtype=torch.long))

    def __len__(self) -> int:
        """Return the size, the number of places for features, whether they are filled or not."""
        return len(self.ids)

    @property
    def n_stored(self) -> int:
        """Number of features that are stored; `len(queue)` once the queue is full."""
        return int((self.ids >= 0).sum())

    def require_full(self) -> None:
        """Raise a DataError if a place is still empty."""
        if self.n_stored < len(self):
            raise DataError(
                f"the queue holds {self.n_stored} of {len(self)} features; the loss needs a full queue. Before the "
                "first step, call queue.push(features, sample_ids) with unit features of the target until "
                "queue.n_stored == len(queue), or give a smaller queue_size."
            )

    @torch.no_grad()
    def push(self, features: Tensor, ids: Tensor) -> None:
        """Add features (n, feature_size) with their sample ids (n,), overwriting the oldest.

        Raises:
            DataError: the features have another width, or another number than the ids.
        """
        width = self.features.shape[1]
        if features.shape != (len(ids), width):
            raise DataError(
                f"the queue expects features of shape (n, feature_size) = ({len(ids)}, {width}) for {len(ids)} sample "
                f"ids, got {tuple(features.shape)}. Build it with feature_size={features.shape[-1]}, or give one "
                "feature of this width per id."
            )
        size = len(self)
        start = int(self.cursor)
        places = torch.arange(start, start + len(ids), device=ids.device) % size
        # With more rows than places, an index would occur twice and the order of writes is undefined.
        self.features[places[-size:]] = features[-size:].to(self.features)
        self.ids[places[-size:]] = ids[-size:]
        self.cursor.fill_((start + len(ids)) % size)

    @torch.no_grad()
    def clear(self) -> None:
        """Remove every feature."""
        self.features.zero_()
        self.ids.fill_(-1)
        self.cursor.zero_()


def nearest_neighbours(anchors: Tensor, anchor_ids: Tensor, queue: FeatureQueue) -> Tensor:
    """Return the most similar feature of another sample per anchor, from the queue and the batch together.

    Entries of an anchor's own sample are excluded for that anchor only. If there is no other sample, an anchor is its
    own neighbour.

    Args:
        anchors: unit rows, (n, d); gradients flow into neighbours that come from the batch.
        anchor_ids: sample id per anchor, (n,).
        queue: features of earlier batches.

    Returns:
        Neighbours, (n, d).

    Paper: Eq. (13), "its nearest neighbor feature".

    Example:
        >>> queue = FeatureQueue(2, 2)
        >>> queue.push(torch.eye(2), torch.tensor([7, 8]))
        >>> nearest_neighbours(torch.tensor([[1.0, 0.0]]), torch.tensor([7]), queue)  # sample 7 is the anchor itself
        tensor([[0., 1.]])
    """
    candidates = torch.cat([queue.features, anchors])
    ids = torch.cat([queue.ids, anchor_ids])
    with torch.no_grad():
        similarity = anchors @ candidates.t()
        similarity.masked_fill_(anchor_ids[:, None] == ids, -torch.inf)
        # Places that were never filled hold zeros, which are no features.
        similarity.masked_fill_(ids < 0, -torch.inf)
        nearest = similarity.argmax(dim=1)
        alone = torch.isinf(similarity.amax(dim=1))
        own = len(queue) + torch.arange(len(anchors), device=anchors.device)
        nearest = torch.where(alone, own, nearest)
    return candidates[nearest]


class SampleBank(nn.Module):
    """One row and one label per sample, by sample id; a full bank overwrites the sample that was added first.

    A bank allocates its memory with the first row and frees it with `clear`; its size is saved with its content.

    Attributes:
        rows: (capacity, width), or (0, width) if the bank is empty.
        ids: sample id per row, (capacity,); -1 where nothing is stored yet.
        labels: label per row, (capacity,); -1 for none.
        cursor: next place to overwrite, a scalar.

    Example:
        >>> bank = SampleBank(capacity=4, width=2)
        >>> _ = bank.put(torch.eye(2), torch.tensor([7, 8]))
        >>> _ = bank.put(torch.ones(1, 2), torch.tensor([7]))  # the newest row of a sample replaces the older one
        >>> bank.ids[bank.filled()]
        tensor([7, 8])
    """

    rows: Tensor
    ids: Tensor
    labels: Tensor
    cursor: Tensor

    def __init__(self, capacity: int, width: int) -> None:
        super().__init__()
        if capacity < 1:
            raise SettingsError(f"the bank has room for {capacity} samples; give room for at least 1.")
        self.capacity = capacity
        self.register_buffer("rows", torch.zeros(0, width))
        self.register_buffer("ids", torch.zeros(0, dtype=torch.long))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.long))
        self.register_buffer("cursor", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def put(self, rows: Tensor, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        """Add or update rows of different samples, at most `capacity`.

        Args:
            rows: (n, width).
            ids: sample id per row, from zero, (n,).
            labels: (n,); if None, stored samples keep their label and new ones get -1.

        Returns:
            Place of each row in the bank, (n,).
        """
        if not len(self.ids):
            self._resize(self.capacity)
        same = self.ids == ids[:, None]
        places, is_here = same.int().argmax(dim=1), same.any(dim=1)
        n_new = int((~is_here).sum())
        # A new sample must not overwrite one that the same call updates.
        updated = torch.zeros_like(self.ids, dtype=torch.bool)
        updated[places[is_here]] = True
        in_turn = (int(self.cursor) + torch.arange(self.capacity, device=ids.device)) % self.capacity
        chosen = in_turn[~updated[in_turn]][:n_new]
        places[~is_here] = chosen
        if n_new:
            self.cursor.fill_((int(chosen[-1]) + 1) % self.capacity)
            self.labels[chosen] = -1
        self.rows[places], self.ids[places] = rows.to(self.rows), ids
        if labels is not None:
            self.labels[places] = labels
        return places

    def filled(self) -> Tensor:
        """Return the places that hold a sample, ascending, (n_filled,)."""
        return torch.nonzero(self.ids >= 0).flatten()

    def clear(self) -> None:
        """Remove every sample."""
        self._resize(0)
        self.cursor.zero_()

    def _resize(self, size: int) -> None:
        self.rows = self.rows.new_zeros(size, self.rows.shape[1])
        self.ids = self.ids.new_full((size,), -1)
        self.labels = self.labels.new_full((size,), -1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}ids" in state_dict:
            self._resize(len(state_dict[f"{prefix}ids"]))
        super()._load_from_state_dict(state_dict, prefix, *args)
