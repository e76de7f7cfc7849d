"""Samples that are nearly the same: far nearer to each other than samples usually are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from uniot.data.arrays import as_inputs
from uniot.data_quality.rows import mapped, unit_rows
from uniot.errors import DataError
from uniot.universal.neighbours import Neighbours

# A pair is nearer than this fraction of the median distance to the fifth neighbour.
_NEAR = 0.15
_NEIGHBOURS = 5
# Cosine distances below this are rounding.
_ROUNDING = 1e-5
# Neighbours are looked for among random projections of this width; distances are those of the embeddings themselves.
_WIDTH = 128
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Pairs of samples that are nearly the same, the most similar first.

    Rows are numbered through both collections: those of the target follow those of the source.

    Attributes:
        first: row of one sample of each pair, (n_pairs,).
        second: row of the other, larger, (n_pairs,).
        similarity: cosine of their embeddings, (n_pairs,).
        n_source: samples of the source.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    similarity: NDArray[np.float32]
    n_source: int

    @property
    def where(self) -> NDArray[np.str_]:
        """Where each pair lies: `source`, `target`, or `both` for one sample in either, (n_pairs,)."""
        return np.where(self.second < self.n_source, "source", np.where(self.first < self.n_source, "both", "target"))

    def __len__(self) -> int:
        return len(self.first)

    def only(self, kept: np.ndarray) -> NearDuplicates:
        """Return the pairs that are kept, (n_pairs,), bool."""
        return NearDuplicates(self.first[kept], self.second[kept], self.similarity[kept], self.n_source)


@torch.no_grad()
def near_duplicates(X_source: Any, X_target: Any) -> NearDuplicates:
    """Find samples that are nearly the same, within the source, within the target, and between the two.

    Two samples are near-duplicates if their cosine distance is below 0.15 of what is usual in the collections of both:
    the median distance of a sample to its fifth nearest neighbour. Each sample is compared with its five nearest.

    Args:
        X_source: embeddings, (n_source, n_features), of any scale.
        X_target: embeddings of the same model, (n_target, n_features).
    """
    source, target = as_inputs(X_source, "X_source"), as_inputs(X_target, "X_target")
    if source.shape[1] != target.shape[1]:
        raise DataError(
            f"X_source has {source.shape[1]} columns and X_target {target.shape[1]}. Give embeddings of one and the "
            "same model for both."
        )
    collections = (source, target)
    project = _projection(source.shape[1])
    rows = torch.cat(
        [mapped(collection, lambda block: F.normalize(block @ project, dim=1)) for collection in collections]
    )
    near = Neighbours(rows, _NEIGHBOURS).of_stored
    distance = _distances(collections, near)
    ids = torch.arange(len(rows))
    distance[near == ids[:, None]] = torch.inf
    in_source = ids < len(source)
    # Itself is at infinity, so the largest finite distance is that to the farthest of the neighbours.
    farthest = torch.where(distance.isinf(), 0, distance).amax(dim=1)
    usual = torch.where(in_source, farthest[in_source].median(), farthest[~in_source].median())
    limit = (_NEAR * usual).clamp_min(_ROUNDING)
    place, column = torch.nonzero(distance <= torch.minimum(limit[:, None], limit[near]), as_tuple=True)
    return _pairs(place, near[place, column], distance[place, column], len(source))


def _pairs(one: Tensor, other: Tensor, distance: Tensor, n_source: int) -> NearDuplicates:
    """Return each pair once, the nearest first."""
    pairs = torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1).numpy()
    pairs, place = np.unique(pairs, axis=0, return_index=True)
    similarity = 1 - distance.numpy()[place]
    order = np.argsort(-similarity, kind="stable")
    return NearDuplicates(pairs[order, 0], pairs[order, 1], similarity[order], n_source)


def _projection(width: int) -> Tensor:
    if width <= _WIDTH:
        return torch.eye(width)
    return torch.randn(width, _WIDTH, generator=torch.Generator().manual_seed(0))


def _distances(collections: tuple[np.ndarray, np.ndarray], near: Tensor) -> Tensor:
    """Return the cosine distance of each sample to its neighbours, (n, k), by the embeddings themselves."""
    ids = torch.arange(len(near))
    found = []
    for block in ids.split(max(1, _BLOCK // near.shape[1])):
        rows, others = _rows(collections, block), _rows(collections, near[block].flatten())
        # Of the difference, for 1 - cosine loses its digits where two rows are nearly equal.
        apart = others.view(len(block), -1, rows.shape[1]) - rows[:, None]
        found.append(apart.square().sum(dim=2) / 2)
    return torch.cat(found)


def _rows(collections: tuple[np.ndarray, np.ndarray], ids: Tensor) -> Tensor:
    source, target = collections
    in_source = (ids < len(source)).numpy()
    rows = np.empty((len(ids), source.shape[1]), dtype=np.float32)
    rows[in_source] = source[ids.numpy()[in_source]]
    rows[~in_source] = target[ids.numpy()[~in_source] - len(source)]
    return unit_rows(rows)
