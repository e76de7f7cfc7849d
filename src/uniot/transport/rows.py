"""Where the rows of a transport problem come from: a matrix in memory, or features met chunk by chunk."""

from __future__ import annotations

import mmap
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError
from uniot.transport.arrays import Array, as_tensor
from uniot.transport.finite import check_finite

_ROWS_AT_ONCE = 1 << 14


class Rows(Protocol):
    """Similarities of n samples to c classes, readable in any slice of rows."""

    n_classes: int

    def __len__(self) -> int: ...

    def chunk(self, start: int, stop: int) -> Tensor:
        """Rows start..stop of the similarity, shape (stop - start, c), floating point."""
        ...

    def every(self, stride: int) -> Tensor:
        """Each stride-th row, shape (ceil(n / stride), c)."""
        ...


class SimilarityRows:
    """A similarity matrix that is held in memory."""

    def __init__(self, similarity: Array) -> None:
        similarity = as_tensor(similarity, "similarity")
        if similarity.ndim != 2 or similarity.shape[1] == 0:
            raise DataError(
                f"similarity has shape {tuple(similarity.shape)}. "
                "Give a matrix with one row per sample and one column per class."
            )
        check_finite(similarity, "similarity")
        self._similarity = similarity if similarity.dtype == torch.float64 else similarity.float()
        self.n_classes = int(similarity.shape[1])

    def __len__(self) -> int:
        return int(self._similarity.shape[0])

    def chunk(self, start: int, stop: int) -> Tensor:
        return self._similarity[start:stop]

    def every(self, stride: int) -> Tensor:
        return self._similarity[::stride]


class FeatureRows:
    """Features and prototypes; the n × c matrix of their products is never held.

    Args:
        features: (n, d), a tensor or an array. A read-only `numpy.memmap` is read chunk by chunk and its
            pages are given back, so that memory stays bounded whatever n is.
        prototypes: (c, d).
    """

    def __init__(self, features: Array, prototypes: Array) -> None:
        prototypes = as_tensor(prototypes, "prototypes")
        if features.ndim != 2 or prototypes.ndim != 2 or features.shape[1] != prototypes.shape[1]:
            raise DataError(
                f"features have shape {tuple(features.shape)} and prototypes {tuple(prototypes.shape)}. "
                "Give (n, d) and (c, d) with the same d."
            )
        self._features = features
        self._prototypes = prototypes.t().contiguous()
        self.n_classes = int(prototypes.shape[0])

    def __len__(self) -> int:
        return int(self._features.shape[0])

    def chunk(self, start: int, stop: int) -> Tensor:
        return self._products(self._read(start, stop), first=start)

    def every(self, stride: int) -> Tensor:
        if isinstance(self._features, Tensor):
            return self._products(self._features[::stride], stride=stride)
        # A stride over a memory map touches nearly every page of it: read in blocks, and give each back.
        block = stride * max(1, _ROWS_AT_ONCE // stride)
        parts = []
        for start in range(0, len(self), block):
            parts.append(np.array(self._features[start : start + block : stride]))
            _give_pages_back(self._features)
        return self._products(torch.from_numpy(np.concatenate(parts)), stride=stride)

    def _read(self, start: int, stop: int) -> Tensor:
        part = self._features[start:stop]
        if isinstance(part, Tensor):
            return part
        copy = torch.from_numpy(np.array(part))
        _give_pages_back(self._features)
        return copy

    def _products(self, features: Tensor, first: int = 0, stride: int = 1) -> Tensor:
        products = features.to(self._prototypes) @ self._prototypes
        check_finite(products, "the product of features and prototypes", first, stride)
        return products


def _give_pages_back(array: Array) -> None:
    """Lets the system drop the pages of a read-only memory map that have been read."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and getattr(array, "mode", "") == "r" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
