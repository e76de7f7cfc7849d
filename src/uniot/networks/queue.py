"""A first-in first-out memory of target features, and the neighbours found in it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uniot.errors import SettingsError


class FeatureQueue(nn.Module):
    """The last `size` target features with the ids of their samples; the oldest is overwritten first."""

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
        return len(self.ids)

    @torch.no_grad()
    def push(self, features: Tensor, ids: Tensor) -> None:
        """Adds features (n, d) with their sample ids (n,)."""
        size = len(self)
        start = int(self.cursor)
        places = torch.arange(start, start + len(ids), device=ids.device) % size
        # Where more rows come than places exist, only the last ones would survive.
        self.features[places[-size:]] = features[-size:].to(self.features)
        self.ids[places[-size:]] = ids[-size:]
        self.cursor.fill_((start + len(ids)) % size)


def nearest_neighbours(anchors: Tensor, anchor_ids: Tensor, queue: FeatureQueue) -> Tensor:
    """The most similar feature of another sample, from the queue and the batch together.

    Only an anchor's own entries are hidden from it; other anchors may still choose them. A target of a single
    sample is its own neighbour.

    Args:
        anchors: (n, d), unit rows; gradients flow into neighbours that come from the batch.
        anchor_ids: (n,), sample of each anchor.
        queue: features of earlier batches.

    Returns:
        (n, d).

    Paper: Eq. (13), "its nearest neighbor feature".
    """
    candidates = torch.cat([queue.features, anchors])
    ids = torch.cat([queue.ids, anchor_ids])
    with torch.no_grad():
        similarity = anchors @ candidates.t()
        similarity.masked_fill_(anchor_ids[:, None] == ids, -torch.inf)
        # An entry that was never filled is nobody's neighbour.
        similarity.masked_fill_(ids < 0, -torch.inf)
        nearest = similarity.argmax(dim=1)
        alone = torch.isinf(similarity.amax(dim=1))
        own = len(queue) + torch.arange(len(anchors), device=anchors.device)
        nearest = torch.where(alone, own, nearest)
    return candidates[nearest]
