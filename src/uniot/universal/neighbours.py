"""The nearest of many stored rows, in blocks of one size, so that an answer does not depend on its company."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.errors import DataError

# Up to so many rows all pairs are compared; beyond, those of the nearest lists of an inverted file.
MOST_COMPARED_WITH_ALL = 50_000
_PROBED_LISTS = 16
_BLOCK = 128
# Rows whose neighbourhoods are averaged at a time.
_AVERAGED_BLOCK = 4096


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
        return mean_over(self.of(queries), values)

    @cached_property
    def smoothed(self) -> Tensor:
        """Each stored row as the mean of its neighbourhood, (n, p)."""
        return mean_over(self.of_stored, self.rows)

    def twice_averaged(self, queries: Tensor) -> Tensor:
        """Return the direction of the mean of the smoothed rows over the neighbourhood of each query, (m, p)."""
        return F.normalize(self.averaged(queries, self.smoothed), dim=1)

    def _of_block(self, block: Tensor) -> Tensor:
        padded = torch.cat([block, block.new_zeros(_BLOCK - len(block), block.shape[1])])
        if self._lists is None:
            return (padded @ self.rows.t())[: len(block)].topk(self.k + 1, dim=1).indices
        found = torch.from_numpy(self._lists.search(padded.numpy(), self.k + 1)[1][: len(block)])
        # Where the lists hold too few rows, the nearest counts for those that are missing.
        return torch.where(found < 0, found[:, :1].clamp_min(0), found)

    @cached_property
    def _lists(self) -> Any:
        """The inverted file of many rows; None where they are few."""
        n_rows, width = self.rows.shape
        if n_rows <= MOST_COMPARED_WITH_ALL:
            return None
        faiss = _import_faiss(n_rows)
        n_lists = int(4 * n_rows**0.5)
        lists = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(width), width, n_lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        # Kept, for the index does not keep it itself.
        rows = np.ascontiguousarray(self.rows.numpy())
        # Enough to place the lists; spread over the rows, whose order may mean something.
        lists.train(rows[:: max(1, n_rows // (40 * n_lists))])
        lists.add(rows)
        lists.nprobe = _PROBED_LISTS
        return lists


def mean_over(neighbourhoods: Tensor, values: Tensor) -> Tensor:
    """Mean of values (n, d) over each neighbourhood (m, k), (m, d)."""
    return torch.cat([values[block].mean(dim=1) for block in neighbourhoods.split(_AVERAGED_BLOCK)])


def _import_faiss(n_rows: int) -> Any:
    try:
        return import_module("faiss")
    except ImportError as error:
        raise DataError(
            f"the neighbours of {n_rows} samples are looked for with a package that cannot be imported ({error}). "
            "Run `pip install 'uniot[large]'`."
        ) from None
