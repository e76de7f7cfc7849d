"""Read the inputs of a transport problem: tensors, rows in chunks, processes that share them, and threads."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from uniot.errors import DataError

Array = Tensor | np.ndarray
P = ParamSpec("P")
R = TypeVar("R")

_ROWS_AT_ONCE = 1 << 14
# Below this many entries, starting a second thread costs more time than it saves, above all on busy cores.
_SMALL_ENTRIES = 1 << 20


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
    """Gives access to slices of the rows of a similarity matrix, (n_samples, n_classes)."""

    n_classes: int

    def __len__(self) -> int: ...

    def chunk(self, start: int, stop: int) -> Tensor:
        """Return rows start..stop of the similarity in floating point, (stop - start, n_classes)."""
        ...

    def every(self, stride: int) -> Tensor:
        """Return every stride-th row, (ceil(n_samples / stride), n_classes)."""
        ...


class SimilarityRows:
    """Holds a similarity matrix in memory.

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
        self._similarity = similarity if similarity.dtype == torch.float64 else similarity.float()
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
    """Computes similarities of features and prototypes chunk by chunk; the whole matrix is never held.

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
        self._prototypes = prototypes.t().contiguous()
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
    """Connects the processes that share the rows of a problem."""

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


def one_thread_if_small(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run torch on one thread if its first array is small.

    Args:
        function: function whose first array argument is a similarity matrix.

    Returns:
        The decorated function.
    """

    @wraps(function)
    def on_one_thread(*args: P.args, **settings: P.kwargs) -> R:
        rows = next((value for value in args if isinstance(value, (Tensor, np.ndarray))), None)
        if rows is None or math.prod(rows.shape) > _SMALL_ENTRIES:
            return function(*args, **settings)
        with _one_torch_thread():
            return function(*args, **settings)

    return on_one_thread


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch and NumPy to one thread each, as a context manager."""
    with one_numpy_thread(), _one_torch_thread():
        yield


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _numpy_threads() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def one_numpy_thread() -> AbstractContextManager[object]:
    """Return a context that limits NumPy to one thread; torch's threads wait actively and would compete with more."""
    limited: AbstractContextManager[object] = _numpy_threads().limit(limits=1)
    return limited


@cache
def _start_torch_threads(number: int) -> None:
    """Let torch start its threads, as an operation on many numbers does."""
    torch.ones(number << 16).add_(1)


@contextmanager
def flushed_subnormals() -> Iterator[None]:
    """Round subnormal results of this thread to zero, as a context manager.

    Products of small kernel entries are subnormal, below rounding, and on some processors many times as slow. Threads
    that already run are not affected; one that starts in the block would keep flushing.
    """
    _start_torch_threads(torch.get_num_threads())
    tiny = np.finfo(np.float32).tiny
    was_on = bool(tiny * np.float32(0.5) == 0)
    if was_on or not torch.set_flush_denormal(True):
        yield
        return
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
