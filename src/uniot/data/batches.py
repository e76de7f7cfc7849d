"""Which samples a step sees. A pure function of seed and step, so that a resumed run sees the same ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_SOURCE, _TARGET, _STEP = 0, 1, 2


def generator_for(seed: int, *purpose: int) -> torch.Generator:
    """A generator of its own for each purpose and step."""
    state = np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % 2**63)


class PairedBatches:
    """Class-balanced source batches beside shuffled target batches, as index tensors."""

    def __init__(self, source_classes: Tensor, n_target: int, batch_size: int, seed: int) -> None:
        """Args.

        source_classes: (n_source,), class index of each source sample; every class occurs.
        n_target: number of target samples.
        batch_size: of both domains; at most `n_target` are taken from the target.
        seed: decides the order.
        """
        self._by_class = torch.argsort(source_classes, stable=True)
        self._class_sizes = torch.bincount(source_classes)
        self._class_starts = self._class_sizes.cumsum(0) - self._class_sizes
        self._n_target = n_target
        self._batch_size = batch_size
        self._seed = seed
        self._round: tuple[int, Tensor] = (-1, torch.zeros(0, dtype=torch.long))

    def source(self, step: int) -> Tensor:
        """A class for each place, each as likely as another, then a sample of the class."""
        generator = generator_for(self._seed, _SOURCE, step)
        classes = torch.randint(len(self._class_sizes), (self._batch_size,), generator=generator)
        place = torch.rand(self._batch_size, generator=generator, dtype=torch.float64)
        within = (place * self._class_sizes[classes]).long()
        return self._by_class[self._class_starts[classes] + within]

    def target(self, step: int) -> Tensor:
        """The next samples of a shuffled round; what does not fill a batch is left to the next round."""
        size = min(self._batch_size, self._n_target)
        in_round, position = divmod(step, self._n_target // size)
        if self._round[0] != in_round:
            generator = generator_for(self._seed, _TARGET, in_round)
            self._round = (in_round, torch.randperm(self._n_target, generator=generator))
        return self._round[1][position * size : (position + 1) * size]

    def generator(self, step: int) -> torch.Generator:
        """Decides everything else that is random in a step."""
        return generator_for(self._seed, _STEP, step)
