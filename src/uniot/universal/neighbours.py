"""The nearest of many stored rows, in blocks of one size, so that an answer does not depend on its company."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

_BLOCK = 128


class Neighbours:
    """Stored unit rows, and which of them are nearest.

    A neighbourhood is the `k` + 1 nearest stored rows. That of a stored row has the row itself in it.

    Attributes:
        rows: (n, p), unit rows.
        k: neighbours beside the nearest, as many as there are at most.
    """

    def __init__(self, rows: Tensor, k: int, of_stored: Tensor | None = None) -> None:
        """Keeps rows; `of_stored`, where it is known already, is not searched for again."""
        self.rows = rows
        self.k = min(k, len(rows) - 1)
        if of_stored is not None:
            self.of_stored = of_stored

    @cached_property
    def of_stored(self) -> Tensor:
        """(n, k + 1), the neighbourhood of each stored row."""
        return self.of(self.rows)

    @torch.no_grad()
    def of(self, queries: Tensor) -> Tensor:
        """(m, k + 1), indices of the stored rows nearest to each query (m, p), the nearest first."""
        return torch.cat([self._of_block(block) for block in queries.split(_BLOCK)])

    def averaged(self, queries: Tensor, values: Tensor) -> Tensor:
        """Mean of a value (n, d) of the stored rows over the neighbourhood of each query, (m, d)."""
        return values[self.of(queries)].mean(dim=1)

    @cached_property
    def smoothed(self) -> Tensor:
        """Each stored row as the mean of its neighbourhood, (n, p)."""
        return self.rows[self.of_stored].mean(dim=1)

    def _of_block(self, block: Tensor) -> Tensor:
        padded = torch.cat([block, block.new_zeros(_BLOCK - len(block), block.shape[1])])
        return (padded @ self.rows.t())[: len(block)].topk(self.k + 1, dim=1).indices
