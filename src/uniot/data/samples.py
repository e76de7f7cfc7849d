"""Samples as the training loop reads them: by index, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Augment = Callable[[Tensor, torch.Generator], Tensor]


class Samples(Protocol):
    """Anything that yields batches by index: arrays in memory now, files on disk as well."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The samples at `indices`; with a generator as training sees them, without as they are."""
        ...


class TensorSamples:
    """Samples that are held in one tensor."""

    def __init__(self, values: Tensor, augment: Augment | None = None) -> None:
        self.values = values
        self._augment = augment

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> Tensor:
        picked = self.values[indices]
        if generator is None or self._augment is None:
            return picked
        return self._augment(picked, generator)
