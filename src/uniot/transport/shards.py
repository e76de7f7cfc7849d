"""Rows that lie in several processes, one after another."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Shards(Protocol):
    """The processes that share the rows of a problem, in the order of their ranks."""

    @property
    def rank(self) -> int:
        """Number of this process, from zero."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def add(self, values: Tensor) -> Tensor:
        """The sum over the processes, an all-reduce as a rule."""
        ...


def total(shards: Shards | None, values: Tensor) -> Tensor:
    """The sum of a vector over the processes."""
    return values if shards is None else shards.add(values)


def before_and_all(shards: Shards | None, value: float) -> tuple[float, float]:
    """What the processes before this one bring together, and what all of them do."""
    if shards is None:
        return 0.0, value
    of_each = torch.zeros(shards.count, dtype=torch.float64)
    of_each[shards.rank] = value
    of_each = shards.add(of_each)
    return float(of_each[: shards.rank].sum()), float(of_each.sum())
