"""Samples as the training loop reads them: by index, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Augment = Callable[[Tensor, torch.Generator], Tensor]
WHOLE = slice(None)


class Samples(Protocol):
    """Anything that yields batches by index: arrays in memory, or files on disk.

    Attributes:
        reads_files: whether making a batch takes so long that the next one is made meanwhile.
    """

    reads_files: bool

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """The samples at `indices[part]`; with a generator as training sees them, without as they are.

        The generator is used up as for all of `indices`, so that processes that make different parts stay in step
        and a sample looks the same whichever of them makes it.
        """
        ...


class TensorSamples:
    """Samples that are held in one tensor."""

    reads_files = False

    def __init__(self, values: Tensor, augment: Augment | None = None) -> None:
        self.values = values
        self._augment = augment

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        if generator is None or self._augment is None:
            return self.values[indices[part]]
        return self._augment(self.values[indices], generator)[part]
