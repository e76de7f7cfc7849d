"""Small problems are solved by one thread: waking a second one costs more than it brings, most of all on busy cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
_SMALL_ENTRIES = 1 << 20


def one_thread_if_small(function: Callable[P, R]) -> Callable[P, R]:
    """Lets torch use one thread on the CPU while the function works on a similarity matrix with few entries."""

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
    """Keep torch and NumPy to one thread each."""
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
    """Keeps NumPy's threads out of the way of torch's, which wait actively: on few cores they starve each other."""
    limited: AbstractContextManager[object] = _numpy_threads().limit(limits=1)
    return limited
