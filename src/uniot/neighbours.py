"""Nearest neighbours among target samples: exact or approximate search, averages, and landmarks that summarise them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.errors import RunFolderError, import_optional
from uniot.io.arrays import in_blocks
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors

# Up to this number of rows the search is exact; beyond, an inverted file is searched.
MOST_COMPARED_WITH_ALL = 50_000
_PROBED_LISTS = 16
# A fixed batch size makes the result independent of the batch composition.
_BLOCK = 128
# A sample is far from the target if its nearest rows are farther than those of all but this part of the stored ones.
_NEAREST_ROWS, _PART_FAR = 5, 0.15
# A query with this cosine to a stored row is that row, in half precision.
_SAME_ROW = 1 - 1e-3
# Number of rows whose neighbourhoods are averaged at a time, which bounds the memory.
_AVERAGED_BLOCK = 4096


class Neighbours:
    """Nearest-neighbour search among stored unit rows.

    A neighbourhood is the `k` + 1 nearest stored rows; that of a stored row contains the row itself.

    Attributes:
        rows: stored unit rows, (n, width).
        k: number of neighbours besides the nearest, at most n - 1.
    """

    def __init__(self, rows: Tensor, k: int, of_stored: Tensor | None = None) -> None:
        """Store rows (n, width); `of_stored`, (n, k + 1), skips the search for their neighbourhoods."""
        self.rows = rows
        self.k = min(k, len(rows) - 1)
        if of_stored is not None:
            self.of_stored = of_stored

    @classmethod
    def read(cls, stored: StoredTensors, width: int) -> Neighbours:
        """Return the stored neighbours in a space of `width` dimensions; raises RunFolderError if damaged."""
        rows = stored.take("rows", (None, width), torch.float16)
        nearest = stored.take("nearest", (len(rows), None), torch.int32, low=0, high=len(rows) - 1)
        if not nearest.numel():
            raise RunFolderError(f"{stored.where} has a target without neighbours. {MAKE_AGAIN}")
        return cls(rows.float(), nearest.shape[1] - 1, nearest.long())

    def tensors(self) -> dict[str, Tensor]:
        """Return what a run folder stores: rows in half precision, and the neighbourhood of each."""
        return {"rows": self.rows.half(), "nearest": self.of_stored.to(torch.int32)}

    @cached_property
    def of_stored(self) -> Tensor:
        """Return the neighbourhood of each stored row, (n, k + 1)."""
        return self.of(self.rows)

    @torch.no_grad()
    def of(self, queries: Tensor) -> Tensor:
        """Return the indices of the stored rows nearest to each query (m, width), nearest first, (m, k + 1)."""
        return in_blocks(self._search, queries, _BLOCK)

    @cached_property
    def smoothed(self) -> Tensor:
        """Return the mean of the neighbourhood of each stored row, (n, width)."""
        return mean_over(self.of_stored, self.rows)

    def is_far(self, rows: Tensor) -> Tensor:
        """Return which unit rows (m, width) are farther from the stored ones than these are from each other, (m,)."""
        cosines = in_blocks(self._cosines, rows, _BLOCK)
        return (cosines[:, :_NEAREST_ROWS].mean(dim=1) < self._least_cosine) & (cosines[:, 0] < _SAME_ROW)

    @cached_property
    def _least_cosine(self) -> float:
        """Return the mean cosine to the nearest other rows that nearly all stored rows reach."""
        # The first neighbour of a stored row is the row itself.
        others = in_blocks(self._cosines, self.rows, _BLOCK)[:, 1 : _NEAREST_ROWS + 1]
        reached = others.mean(dim=1).sort().values if others.shape[1] else torch.zeros(1)
        return float(reached[int(_PART_FAR * len(reached))])

    def _cosines(self, queries: Tensor) -> Tensor:
        """Return the cosine of each query to its nearest stored rows, the largest first, (m, k + 1)."""
        return torch.einsum("mw,mkw->mk", queries, self.rows[self._search(queries)])

    def transform(self, rows: Tensor) -> Tensor:
        """Return the direction of the mean of the smoothed rows over the neighbourhood of each row.

        Args:
            rows: unit rows, (m, width), searched for as one batch.

        Returns:
            Unit rows, (m, width).
        """
        return F.normalize(self.smoothed[self._search(rows)].mean(dim=1), dim=1)

    def _search(self, queries: Tensor) -> Tensor:
        # An exported graph has no inverted file: it searches exactly.
        if torch.compiler.is_exporting() or self._lists is None:
            return (queries @ self.rows.t()).topk(self.k + 1, dim=1).indices
        found = torch.from_numpy(self._lists.search(queries.numpy(), self.k + 1)[1])
        # If the searched lists hold too few rows, the nearest replaces those that are missing.
        return torch.where(found < 0, found[:, :1].clamp_min(0), found)

    @cached_property
    def _lists(self) -> Any:
        """Return the inverted file of many rows; None if they are few enough for an exact search."""
        n_rows, width = self.rows.shape
        if n_rows <= MOST_COMPARED_WITH_ALL:
            return None
        faiss = import_optional("faiss", "large", f"finding the neighbours of {n_rows} samples")
        n_lists = int(4 * n_rows**0.5)
        lists = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(width), width, n_lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        # A local variable keeps the memory alive, which the index does not.
        rows = np.ascontiguousarray(self.rows.numpy())
        # 40 rows per list are enough; spread over the rows, whose order may not be random.
        lists.train(rows[:: max(1, n_rows // (40 * n_lists))])
        lists.add(rows)
        lists.nprobe = _PROBED_LISTS
        return lists


def mean_over(neighbourhoods: Tensor, values: Tensor) -> Tensor:
    """Return the mean of values (n, n_features) over each neighbourhood (m, k), (m, n_features)."""
    return torch.cat([values[block].mean(dim=1) for block in neighbourhoods.split(_AVERAGED_BLOCK)])


# Every landmark averages at least this many samples, and every sample belongs to one group.
LEAST_SAMPLES = 5
# Below this many samples the linear map would depend on single ones; it is left at zero.
_LEAST_ROWS_OF_MAP = 20
# Landmarks of a larger target are fitted to a random sample of it.
_MOST_ROWS = 20_000
# Chosen on Office-31, PACS and digits (benchmarks/without_target.py): landmarks per query, softmax temperature of the
# cosine, and the penalty of the ridge regression. A penalty that is independent of the target's size keeps the map
# of a small target small.
_NEAREST, _TEMPERATURE, _RIDGE = 16, 0.1, 0.3
_SPLIT_ITERATIONS = 6
# The smaller side of a split has at least this part of the samples, which bounds the number of splits.
_LEAST_PART = 20
_FITTED_BLOCK = 1024


@dataclass(frozen=True)
class Landmarks:
    """Means of groups of target samples, in half precision.

    Attributes:
        keys: mean direction of each group before the transform, (m, p), unit rows.
        values: mean of each group after the transform, (m, p).
        linear: map from a sample to what the landmarks leave unexplained, (p, p).
    """

    keys: Tensor
    values: Tensor
    linear: Tensor

    @classmethod
    def read(cls, stored: StoredTensors, width: int) -> Landmarks:
        """Return the stored landmarks in a space of `width` dimensions; raises RunFolderError if damaged."""
        keys = stored.take("keys", (None, width), torch.float16)
        return cls(
            keys=keys,
            values=stored.take("values", (len(keys), width), torch.float16),
            linear=stored.take("linear", (width, width), torch.float16),
        )

    def transform(self, rows: Tensor) -> Tensor:
        """Return an estimate of the transformed rows, (n, p) unit rows, for unit rows (n, p)."""
        return F.normalize(self.weighted_values(rows) + rows @ self.linear.float(), dim=1)

    def weighted_values(self, rows: Tensor) -> Tensor:
        """Return the weighted mean of the values whose keys are nearest to each row, (n, p)."""
        cosines, nearest = (rows @ self.keys.float().t()).topk(min(_NEAREST, len(self.keys)), dim=1)
        weights = (cosines / _TEMPERATURE).softmax(dim=1)
        return (weights[:, :, None] * self.values.float()[nearest]).sum(dim=1)


@torch.no_grad()
def fit_landmarks(rows: Tensor, transformed: Tensor, generator: torch.Generator) -> Landmarks | None:
    """Fit landmarks that map rows to transformed rows.

    Args:
        rows: target samples, (n, p), unit rows.
        transformed: the same samples by the transform that is summarised, (n, p), unit rows.
        generator: for the choice of samples of a target of more than 20 000.

    Returns:
        The landmarks; None for fewer than `LEAST_SAMPLES` rows, whose mean would reveal them.
    """
    if len(rows) < LEAST_SAMPLES:
        return None
    if len(rows) > _MOST_ROWS:
        some = torch.randperm(len(rows), generator=generator)[:_MOST_ROWS].sort().values
        rows, transformed = rows[some], transformed[some]
    groups = similar_groups(transformed)
    keys, values = F.normalize(_group_means(rows, groups), dim=1).half(), _group_means(transformed, groups).half()
    width = rows.shape[1]
    landmarks = Landmarks(keys, values, torch.zeros(width, width, dtype=torch.half))
    if len(rows) < _LEAST_ROWS_OF_MAP:
        return landmarks
    gram, product = _RIDGE * torch.eye(width, dtype=torch.double), torch.zeros(width, width, dtype=torch.double)
    for block, wanted in zip(rows.split(_FITTED_BLOCK), transformed.split(_FITTED_BLOCK), strict=True):
        unexplained = wanted - landmarks.weighted_values(block)
        gram += block.double().t() @ block.double()
        product += block.double().t() @ unexplained.double()
    return Landmarks(keys, values, torch.linalg.solve(gram, product).half())


def similar_groups(rows: Tensor, least: int = LEAST_SAMPLES) -> Tensor:
    """Split rows into groups of `least` to 2 `least` - 1 similar ones by recursive two-means.

    Args:
        rows: (n, p).
        least: least size of a group; a single smaller group if there are fewer rows.

    Returns:
        Group index of each row, (n,).
    """
    groups = torch.zeros(len(rows), dtype=torch.long)
    waiting, n_groups = [torch.arange(len(rows))], 0
    while waiting:
        members = waiting.pop()
        if len(members) >= 2 * least:
            waiting.extend(_halves(rows, members, least))
        else:
            groups[members] = n_groups
            n_groups += 1
    return groups


def _halves(rows: Tensor, members: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Split members by two-means, both sides of at least `least` rows."""
    own, n = rows[members], len(members)
    fewest = max(least, n // _LEAST_PART)
    middle = own.mean(dim=0)
    # The row farthest from the mean gives the direction to start with.
    direction = own[(own - middle).square().sum(dim=1).argmax()] - middle
    order, cut = torch.arange(n), n // 2
    for _ in range(_SPLIT_ITERATIONS):
        position = (own - middle) @ direction
        before = order, cut
        order = position.argsort(stable=True)
        cut = min(max(int((position < 0).sum()), fewest), n - fewest)
        if cut == before[1] and torch.equal(order, before[0]):
            break
        left, right = own[order[:cut]].mean(dim=0), own[order[cut:]].mean(dim=0)
        middle, direction = (left + right) / 2, right - left
    return members[order[:cut]], members[order[cut:]]


def _group_means(rows: Tensor, groups: Tensor) -> Tensor:
    sizes = torch.bincount(groups)
    return rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, groups, rows) / sizes[:, None]
