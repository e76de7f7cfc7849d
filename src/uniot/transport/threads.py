"""Threads and subnormal numbers, apart from the mathematics.

The solvers compute; how many threads they use and how the processor treats subnormal numbers is decided here, for the
duration of a `with` block. Every setting is restored at its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

# Below this many entries, starting a second thread costs more time than it saves, above all on busy cores.
_SMALL_ENTRIES = 1 << 20
_row_threads: ContextVar[int] = ContextVar("row_threads", default=1)


@contextmanager
def one_thread_if_small(entries: int) -> Iterator[None]:
    """Run torch on one thread if a matrix is small, as a context manager.

    Args:
        entries: number of entries of the matrix.
    """
    threads = torch.get_num_threads()
    if threads == 1 or entries > _SMALL_ENTRIES:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch and NumPy to one thread each, as a context manager."""
    with one_numpy_thread(), one_thread_if_small(0):
        yield


@contextmanager
def solver_arithmetic(entries: int) -> Iterator[None]:
    """Prepare for a solve, as a context manager: threads by size, and no subnormal numbers.

    Within the block torch and NumPy use one thread each. If the matrix is not small, `over_rows` uses as many threads
    as torch had before: a thread that works on its own rows waits for the others once per pass, not once per
    operation.

    Args:
        entries: number of entries of the similarity matrix.
    """
    threads = torch.get_num_threads() if entries > _SMALL_ENTRIES else 1
    token = _row_threads.set(threads)
    try:
        with one_thread(), flushed_subnormals():
            yield
    finally:
        _row_threads.reset(token)


def over_rows(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply a function to blocks of rows, on as many threads as `solver_arithmetic` allows.

    Args:
        function: mostly calls of NumPy and torch, during which other threads can run.
        items: the blocks.

    Returns:
        One result per block, in the order of the blocks.
    """
    threads = min(_row_threads.get(), len(items))
    if threads <= 1:
        return [function(item) for item in items]
    ends = [len(items) * part // threads for part in range(threads + 1)]
    parts = [items[begin:end] for begin, end in pairwise(ends)]
    # A copy of the context carries NumPy's handling of errors into the thread.
    others = [_pool(threads - 1).submit(copy_context().run, _applied, function, part) for part in parts[1:]]
    results = _applied(function, parts[0])
    for other in others:
        results += other.result()
    return results


def _applied(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    with torch.no_grad():
        return [function(item) for item in items]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "uniot-rows", initializer=_prepare_thread)


def _prepare_thread() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


if hasattr(os, "register_at_fork"):
    # A forked process has none of the threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


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
    """Round subnormal results of the calling thread to zero, as a context manager.

    Products of small kernel entries are subnormal, below rounding, and on some processors many times as slow. Threads
    that already run are not affected; one that starts within the block would keep flushing.
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
