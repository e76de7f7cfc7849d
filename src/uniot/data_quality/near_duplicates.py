"""Find near-duplicates within and between the source and the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from uniot.errors import DataError
from uniot.io.arrays import as_inputs, scaled_rows
from uniot.neighbours import Neighbours

_BLOCK = 4096


def unit_centre(embeddings: np.ndarray) -> np.ndarray:
    """Return the mean of unit rows in double precision, (n_features,), of embeddings (n_samples, n_features)."""
    rough = scaled_rows(embeddings, 1.0).double().mean(dim=0).numpy()
    # The rounding of float32 is as small as what is left after the first mean is subtracted.
    left = scaled_rows(embeddings, 1.0, centre=rough).double().mean(dim=0).numpy()
    return np.asarray(rough + left)


def map_unit_rows(embeddings: np.ndarray, centre: np.ndarray, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to centred unit rows block by block, so that wide embeddings are never copied as a whole.

    Args:
        embeddings: rows of any norm, (n_samples, n_features).
        centre: subtracted from the unit rows, (n_features,).
        function: function of some of these, (n_rows, n_features), that returns as many rows.

    Returns:
        The results for all rows, (n_samples, ...).
    """
    blocks = (embeddings[start : start + _BLOCK] for start in range(0, len(embeddings), _BLOCK))
    return torch.cat([function(scaled_rows(block, 1.0, centre=centre)) for block in blocks])


# Maximum distance of a pair, as a fraction of the median distance to the fifth neighbour.
_NEAR = 0.15
_NEIGHBOURS = 5
# Distances below this part of the mean distance to the centre are rounding.
_ROUNDING = 1e-5
# More rows do not improve the centre.
_MOST_CENTRED_ROWS = 1000
# Neighbours are searched among random projections of this width with one more coordinate: an index is twice as fast if
# the sum is a multiple of eight. Distances use the embeddings themselves.
_WIDTH = 127


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Pairs of nearly identical samples, the most similar first.

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
    A number that is added to all embeddings makes all distances smaller, and is therefore no reason to list a pair.

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
    filled = [collection for collection in collections if len(collection)]
    some = np.concatenate([one[:: -(-len(one) // _MOST_CENTRED_ROWS)] for one in filled])
    centre = unit_centre(some)
    centred = scaled_rows(some, 1.0, centre=centre)
    # Half the mean squared distance to the centre, the unit of a cosine distance.
    spread = float(centred.double().square().sum(dim=1).mean()) / 2
    rows = _searched_rows(filled, centre, centred)
    near = Neighbours(rows, _NEIGHBOURS).of_stored
    distance = _distances(collections, centre, near)
    ids = torch.arange(len(rows))
    distance[near == ids[:, None]] = torch.inf
    in_source = ids < len(source)
    # The sample itself is at infinity, so the largest finite distance is that of the farthest neighbour.
    farthest = torch.where(distance.isinf(), 0, distance).amax(dim=1)
    usual = torch.where(in_source, farthest[in_source].median(), farthest[~in_source].median())
    limit = (_NEAR * usual).clamp_min(_ROUNDING * spread)
    place, column = torch.nonzero(distance <= torch.minimum(limit[:, None], limit[near]), as_tuple=True)
    return _pairs(place, near[place, column], distance[place, column], len(source))


def _pairs(one: Tensor, other: Tensor, distance: Tensor, n_source: int) -> NearDuplicates:
    """Return each pair once, the most similar first."""
    pairs = torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1).numpy()
    place = np.unique(pairs, axis=0, return_index=True)[1]
    order = place[np.argsort(distance.numpy()[place], kind="stable")]
    pairs, similarity = pairs[order], (1 - distance.numpy()[order]).astype(np.float32)
    return NearDuplicates(pairs[:, 0], pairs[:, 1], similarity, n_source)


def _searched_rows(collections: Sequence[np.ndarray], centre: np.ndarray, some: Tensor) -> Tensor:
    """Return unit rows among which neighbours are searched, (n_samples, width).

    Args:
        collections: embeddings, (n_samples, n_features) each.
        centre: mean of the unit embeddings, (n_features,).
        some: some of the unit embeddings less the centre, (n, n_features).
    """
    project = _projection(len(centre))
    # One more coordinate of a usual size tells samples apart that lie in one direction from the centre.
    size = (some @ project).square().sum(dim=1).mean().sqrt()

    def searched(block: Tensor) -> Tensor:
        return F.normalize(torch.cat([block @ project, size.expand(len(block), 1)], dim=1), dim=1)

    return torch.cat([map_unit_rows(one, centre, searched) for one in collections])


def _projection(width: int) -> Tensor:
    if width <= _WIDTH:
        return torch.eye(width)
    return torch.randn(width, _WIDTH, generator=torch.Generator().manual_seed(0))


def _distances(collections: tuple[np.ndarray, np.ndarray], centre: np.ndarray, near: Tensor) -> Tensor:
    """Return the cosine distance of each sample to its neighbours, (n_samples, n_neighbours), from the embeddings."""
    ids = torch.arange(len(near))
    found = []
    for block in ids.split(max(1, _BLOCK // near.shape[1])):
        rows, others = _rows(collections, centre, block), _rows(collections, centre, near[block].flatten())
        # Computed from the difference, because 1 - cosine loses precision for nearly equal rows.
        apart = others.view(len(block), -1, rows.shape[1]) - rows[:, None]
        found.append(apart.square().sum(dim=2) / 2)
    return torch.cat(found)


def _rows(collections: tuple[np.ndarray, np.ndarray], centre: np.ndarray, ids: Tensor) -> Tensor:
    """Return unit embeddings relative to the centre, (n_ids, n_features), float32."""
    source, target = collections
    in_source = (ids < len(source)).numpy()
    rows = np.empty((len(ids), source.shape[1]), dtype=np.result_type(source, target))
    rows[in_source] = source[ids.numpy()[in_source]]
    rows[~in_source] = target[ids.numpy()[~in_source] - len(source)]
    return scaled_rows(rows, 1.0, centre=centre)
