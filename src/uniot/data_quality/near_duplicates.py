"""Find near-duplicates within and between the source and the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from uniot.errors import DataError
from uniot.io.arrays import as_inputs, scaled_rows
from uniot.methods.unincm.neighbours import Neighbours

_BLOCK = 4096


def map_unit_rows(embeddings: np.ndarray, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to unit rows block by block, so that wide embeddings are never copied as a whole.

    Args:
        embeddings: rows of any norm, (n_samples, n_features).
        function: function of some unit rows, (n_rows, n_features), that returns as many rows.

    Returns:
        The results for all rows, (n_samples, ...).
    """
    blocks = (embeddings[start : start + _BLOCK] for start in range(0, len(embeddings), _BLOCK))
    return torch.cat([function(scaled_rows(block, 1.0)) for block in blocks])


# Maximum distance of a pair, as a fraction of the median distance to the fifth neighbour.
_NEAR = 0.15
_NEIGHBOURS = 5
# Cosine distances below this are rounding.
_ROUNDING = 1e-5
# Neighbours are searched among random projections of this width; distances use the embeddings themselves.
_WIDTH = 128


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Lists pairs of nearly identical samples, the most similar first.

    Row numbers run through both collections: the target's follow the source's.

    Attributes:
        first: smaller row number of each pair, (n_pairs,).
        second: larger row number of each pair, (n_pairs,).
        similarity: cosine similarity of the embeddings, (n_pairs,).
        n_source: number of source samples.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    similarity: NDArray[np.float32]
    n_source: int

    @classmethod
    def none(cls, n_source: int) -> NearDuplicates:
        """Return no pairs."""
        rows = np.zeros(0, dtype=np.int64)
        return cls(rows, rows, np.zeros(0, dtype=np.float32), n_source)

    @property
    def where(self) -> NDArray[np.str_]:
        """Return the collection of each pair: `source`, `target`, or `both` for one sample in each, (n_pairs,)."""
        return np.where(self.second < self.n_source, "source", np.where(self.first < self.n_source, "both", "target"))

    def __len__(self) -> int:
        return len(self.first)

    def only(self, kept: np.ndarray) -> NearDuplicates:
        """Return the pairs that the mask `kept`, (n_pairs,), selects."""
        return NearDuplicates(self.first[kept], self.second[kept], self.similarity[kept], self.n_source)


@torch.no_grad()
def near_duplicates(X_source: Any, X_target: Any) -> NearDuplicates:
    """Find pairs of nearly identical samples within the source, within the target, and between the two.

    Two samples are near-duplicates if their cosine distance is below 0.15 times the median distance of a sample to its
    fifth nearest neighbour, in the collection of each of them. Each sample is compared with its five nearest ones.

    Args:
        X_source: embeddings of the source, (n_source, n_features), of any norm; None if there is no source.
        X_target: embeddings of the target by the same model, (n_target, n_features).

    Returns:
        The pairs, the most similar first.

    Raises:
        DataError: an array is not two-dimensional, holds values that are not finite, or has another number of columns.
    """
    target = as_inputs(X_target, "X_target")
    source = target[:0] if X_source is None else as_inputs(X_source, "X_source")
    if source.shape[1] != target.shape[1]:
        raise DataError(
            f"X_source has {source.shape[1]} columns and X_target {target.shape[1]}. Give embeddings by the "
            "same model for both."
        )
    collections = (source, target)
    project = _projection(source.shape[1])
    filled = [collection for collection in collections if len(collection)]
    rows = torch.cat([map_unit_rows(one, lambda block: F.normalize(block @ project, dim=1)) for one in filled])
    near = Neighbours(rows, _NEIGHBOURS).of_stored
    distance = _distances(collections, near)
    ids = torch.arange(len(rows))
    distance[near == ids[:, None]] = torch.inf
    in_source = ids < len(source)
    # The sample itself is at infinity, so the largest finite distance is that of the farthest neighbour.
    farthest = torch.where(distance.isinf(), 0, distance).amax(dim=1)
    usual = torch.where(in_source, farthest[in_source].median(), farthest[~in_source].median())
    limit = (_NEAR * usual).clamp_min(_ROUNDING)
    place, column = torch.nonzero(distance <= torch.minimum(limit[:, None], limit[near]), as_tuple=True)
    return _pairs(place, near[place, column], distance[place, column], len(source))


def _pairs(one: Tensor, other: Tensor, distance: Tensor, n_source: int) -> NearDuplicates:
    """Return each pair once, the most similar first."""
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
    """Return the cosine distance of each sample to its neighbours, (n_samples, n_neighbours), from the embeddings."""
    ids = torch.arange(len(near))
    found = []
    for block in ids.split(max(1, _BLOCK // near.shape[1])):
        rows, others = _rows(collections, block), _rows(collections, near[block].flatten())
        # Computed from the difference, because 1 - cosine loses precision for nearly equal rows.
        apart = others.view(len(block), -1, rows.shape[1]) - rows[:, None]
        found.append(apart.square().sum(dim=2) / 2)
    return torch.cat(found)


def _rows(collections: tuple[np.ndarray, np.ndarray], ids: Tensor) -> Tensor:
    source, target = collections
    in_source = (ids < len(source)).numpy()
    rows = np.empty((len(ids), source.shape[1]), dtype=np.float32)
    rows[in_source] = source[ids.numpy()[in_source]]
    rows[~in_source] = target[ids.numpy()[~in_source] - len(source)]
    return scaled_rows(rows, 1.0)
