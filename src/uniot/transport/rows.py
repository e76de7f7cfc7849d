"""The rows of a transport problem: given as an array, computed chunk by chunk, or shared between processes."""

from __future__ import annotations

import mmap
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError

Array = Tensor | np.ndarray

_ROWS_AT_ONCE = 1 << 14


def as_tensor(values: Array, name: str) -> Tensor:
    """Convert values to a tensor.

    Args:
        values: a tensor, an array, or anything that NumPy converts to one.
        name: name of the argument, for error messages.

    Returns:
        A tensor as it is; otherwise a tensor that shares the memory of the array if possible.

    Raises:
        DataError: the values are not numbers.
    """
    if isinstance(values, Tensor):
        return values
    try:
        # torch shares neither read-only memory nor negative strides.
        return torch.from_numpy(np.require(values, requirements=("C", "W")))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read as numbers ({error}). Give a tensor or an array of floats.") from None


def check_finite(values: Tensor, name: str, first: int = 0, stride: int = 1) -> None:
    """Raise a DataError that names the first row and column of a matrix that is NaN or infinite.

    Args:
        values: every `stride`-th row of the matrix from row `first` on, (n_rows, n_columns).
        name: name of the matrix.
        first: index of the first row.
        stride: distance between two rows.
    """
    # A NaN or infinity makes the sum NaN or infinite, and a sum costs a fraction of an element-wise test.
    if bool(torch.isfinite(values.sum())):
        return
    wrong = (~torch.isfinite(values)).nonzero()
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise DataError(
            f"{name} holds {float(values[row, column])} in row {first + stride * row}, column {column}, "
            f"one of {len(wrong)} such values. Remove or repair them first."
        )


class Rows(Protocol):
    """Rows of a similarity matrix, (n_samples, n_classes), that are read in slices."""

    n_classes: int

    def __len__(self) -> int: ...

    def chunk(self, start: int, stop: int) -> Tensor:
        """Return rows start..stop of the similarity in floating point, (stop - start, n_classes)."""
        ...

    def every(self, stride: int) -> Tensor:
        """Return every stride-th row, (ceil(n_samples / stride), n_classes)."""
        ...


class SimilarityRows:
    """Rows of a similarity matrix that is in memory.

    Args:
        similarity: (n_samples, n_classes).
    """

    def __init__(self, similarity: Array) -> None:
        similarity = as_tensor(similarity, "similarity")
        if similarity.ndim != 2 or similarity.shape[1] == 0:
            raise DataError(
                f"similarity has shape {tuple(similarity.shape)}. "
                "Give a matrix with one row per sample and one column per class."
            )
        check_finite(similarity, "similarity")
        self._similarity = (similarity if similarity.dtype == torch.float64 else similarity.float()).detach()
        self.n_classes = int(similarity.shape[1])

    def __len__(self) -> int:
        return int(self._similarity.shape[0])

    def chunk(self, start: int, stop: int) -> Tensor:
        """Return rows start..stop, (stop - start, n_classes)."""
        return self._similarity[start:stop]

    def every(self, stride: int) -> Tensor:
        """Return every stride-th row, (ceil(n_samples / stride), n_classes)."""
        return self._similarity[::stride]


class FeatureRows:
    """Rows that are computed from features and prototypes chunk by chunk; the whole matrix is never in memory.

    Args:
        features: (n_samples, n_features), a tensor or an array. A read-only `numpy.memmap` is read chunk by chunk and
            its pages are released, so that memory is bounded for any n_samples.
        prototypes: (n_classes, n_features).
    """

    def __init__(self, features: Array, prototypes: Array) -> None:
        prototypes = as_tensor(prototypes, "prototypes")
        if features.ndim != 2 or prototypes.ndim != 2 or features.shape[1] != prototypes.shape[1]:
            raise DataError(
                f"features have shape {tuple(features.shape)} and prototypes {tuple(prototypes.shape)}. "
                "Give (n, d) and (c, d) with the same d."
            )
        self._features = features
        self._prototypes = prototypes.detach().t().contiguous()
        self.n_classes = int(prototypes.shape[0])

    def __len__(self) -> int:
        return int(self._features.shape[0])

    def chunk(self, start: int, stop: int) -> Tensor:
        """Return the products of rows start..stop with the prototypes, (stop - start, n_classes)."""
        return self._products(self._read(start, stop), first=start)

    def every(self, stride: int) -> Tensor:
        """Return the products of every stride-th row, (ceil(n_samples / stride), n_classes)."""
        if isinstance(self._features, Tensor):
            return self._products(self._features[::stride], stride=stride)
        # A stride over a memory map reads nearly every page: read in blocks, and release each.
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
    """Release the pages of a read-only memory map that have been read."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and getattr(array, "mode", "") == "r" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class Shards(Protocol):
    """The processes that share the rows of a problem."""

    @property
    def rank(self) -> int:
        """Return the index of this process, from zero."""
        ...

    @property
    def count(self) -> int:
        """Return the number of processes."""
        ...

    def add(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes (all-reduce), of the same shape."""
        ...


def total(shards: Shards | None, values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes; the tensor itself without `shards`."""
    return values if shards is None else shards.add(values)


def before_and_all(shards: Shards | None, value: float) -> tuple[float, float]:
    """Return the sum of a value over the processes of lower rank, and over all processes."""
    if shards is None:
        return 0.0, value
    of_each = torch.zeros(shards.count, dtype=torch.float64)
    of_each[shards.rank] = value
    of_each = shards.add(of_each)
    return float(of_each[: shards.rank].sum()), float(of_each.sum())
