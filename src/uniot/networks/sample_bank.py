"""The latest embedding or feature of each sample that was seen, up to a number of samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from uniot.errors import SettingsError


class SampleBank(nn.Module):
    """A row and a label for each sample, by its id; where there is no more room, the one that came first gives way.

    A bank takes no space until the first row comes, and none after `clear`; a saved one has the size that it had.
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
        """Takes in rows of different samples, at most as many as there is room for.

        Args:
            rows: (n, width).
            ids: (n,), which sample each is, from zero.
            labels: (n,); left out, a sample that is here keeps its label and a new one has -1.

        Returns:
            The place of each, (n,).
        """
        if not len(self.ids):
            self._resize(self.capacity)
        same = self.ids == ids[:, None]
        places, is_here = same.int().argmax(dim=1), same.any(dim=1)
        n_new = int((~is_here).sum())
        # A sample that is about to be updated must not give its place to a new one.
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
        """Places that hold a sample, in order."""
        return torch.nonzero(self.ids >= 0).flatten()

    def clear(self) -> None:
        """Forgets every sample."""
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
