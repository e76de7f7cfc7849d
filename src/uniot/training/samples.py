"""Samples that are read by index, in memory or on disk, and the batches of training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError
from uniot.images.decoding import UnreadableImage, decoded, memory_for_encoded, read_image
from uniot.io.arrays import scaled_rows

if TYPE_CHECKING:
    from uniot.images.files import ImageFile
    from uniot.images.preparation import Preparation

Augment = Callable[[Tensor, torch.Generator], Tensor]
WHOLE = slice(None)
_MOST_THREADS = 16


class Samples(Protocol):
    """Samples that are read by index: arrays in memory, or files on disk.

    Attributes:
        reads_files: whether a batch takes long to make, so that the next one is made in the background.
    """

    reads_files: bool

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return the samples at `indices[part]`, (n_samples, …).

        Args:
            indices: indices of the whole batch, (batch_size,).
            generator: for the augmentation of training; no augmentation if None. It is advanced for all of `indices`,
                so that a sample looks the same in whichever process it is made.
            part: the part of the batch that this process makes.
        """
        ...


class TensorSamples:
    """Samples in one tensor.

    Args:
        values: (n_samples, …).
        augment: (images, generator) -> images, for the batches of training; none if None.
    """

    reads_files = False

    def __init__(self, values: Tensor, augment: Augment | None = None) -> None:
        self.values = values
        self._augment = augment

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return rows of the tensor, augmented if there is a generator, (n_samples, …)."""
        if generator is None or self._augment is None:
            return self.values[indices[part]]
        return self._augment(self.values[indices], generator)[part]


class ScaledRows:
    """Embeddings in an array, which may be larger than memory if it is mapped; rows are scaled when they are read.

    Args:
        array: finite numbers of any numeric type, (n_samples, n_features).
        norm: Euclidean norm of the rows that are returned.
    """

    reads_files = False

    def __init__(self, array: np.ndarray, norm: float) -> None:
        self.array, self._norm = array, norm

    def __len__(self) -> int:
        return len(self.array)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return rows of the array as float32, (n_samples, n_features)."""
        return scaled_rows(self.array[indices[part].numpy()], self._norm)


class ImageSamples:
    """Image files, decoded when they are used.

    For training an image is resized to a square, cropped at random and mirrored half of the time, as in the paper;
    otherwise it is prepared as for prediction.
    """

    reads_files = True

    def __init__(self, files: Sequence[ImageFile], preparation: Preparation) -> None:
        self._files = files
        self._preparation = preparation
        # Pillow lets other threads work while it decodes and resizes.
        self._threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self._files)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return decoded images, augmented if there is a generator, (n_samples, 3, height, width)."""
        if generator is None:
            images = self._threads.map(self._as_predicted, indices[part].tolist())
        else:
            drawn = torch.rand(len(indices), 3, generator=generator)[part]
            images = self._threads.map(self._varied, indices[part].tolist(), drawn.tolist())
        return self._preparation.normalise(torch.from_numpy(np.stack(list(images))))

    @contextmanager
    def _opened(self, index: int) -> Iterator[bytes]:
        path = self._files[index].path
        with memory_for_encoded(path):
            try:
                data = read_image(path)
            except UnreadableImage as error:
                raise DataError(
                    f"{path} could be read before and no longer can be ({error.reason}). Bring it back, and run the "
                    "same command again."
                ) from None
            yield data

    def _as_predicted(self, index: int) -> np.ndarray:
        with self._opened(index) as data:
            return self._preparation.read(data)

    def _varied(self, index: int, drawn: list[float]) -> np.ndarray:
        preparation = self._preparation
        with self._opened(index) as data, decoded(data, shortest_side=preparation.decoded_side) as image:
            square = preparation.square(image)
        room = preparation.resize - preparation.crop + 1
        top, left = int(drawn[0] * room), int(drawn[1] * room)
        cut = square[:, top : top + preparation.crop, left : left + preparation.crop]
        return cut[:, :, ::-1] if drawn[2] < 0.5 else cut


class SomeSamples:
    """Some of the samples of a collection.

    Args:
        samples: the collection.
        rows: indices of the samples, (n_samples,).
    """

    def __init__(self, samples: Samples, rows: Tensor) -> None:
        self._samples, self._rows = samples, rows
        self.reads_files = samples.reads_files

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None, part: slice = WHOLE) -> Tensor:
        """Return the samples at these places among the chosen ones, (n_samples, …)."""
        return self._samples.batch(self._rows[indices], generator, part)


def in_order(samples: Samples, rows: int = 4096) -> Iterator[Tensor]:
    """Return all samples, some at a time."""
    return (samples.batch(ids) for ids in torch.arange(len(samples)).split(rows))


_SOURCE, _TARGET, _STEP = 0, 1, 2


def generator_for(seed: int, *purpose: int) -> torch.Generator:
    """Return the random generator of a purpose and a step, which depends on nothing else but the seed."""
    state = np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % 2**63)


class PairedBatches:
    """Class-balanced source batches and shuffled target batches, as index tensors.

    Args:
        source_classes: class index per source sample, (n_source,); every class occurs.
        n_target: number of target samples.
        batch_size: samples of each domain per batch; at most `n_target` of the target.
        seed: random seed of the order.
    """

    def __init__(self, source_classes: Tensor, n_target: int, batch_size: int, seed: int) -> None:
        self._by_class = torch.argsort(source_classes, stable=True)
        self._class_sizes = torch.bincount(source_classes)
        self._class_starts = self._class_sizes.cumsum(0) - self._class_sizes
        self._n_target = n_target
        self._batch_size = batch_size
        self._seed = seed
        self._round: tuple[int, Tensor] = (-1, torch.zeros(0, dtype=torch.long))

    def source(self, step: int) -> Tensor:
        """Return source indices of a step, (batch_size,): a class is drawn uniformly, then a sample of it."""
        generator = generator_for(self._seed, _SOURCE, step)
        classes = torch.randint(len(self._class_sizes), (self._batch_size,), generator=generator)
        place = torch.rand(self._batch_size, generator=generator, dtype=torch.float64)
        within = (place * self._class_sizes[classes]).long()
        return self._by_class[self._class_starts[classes] + within]

    def target(self, step: int) -> Tensor:
        """Return target indices of a step, (batch_size,), from a shuffled epoch without its incomplete last batch."""
        size = min(self._batch_size, self._n_target)
        in_round, position = divmod(step, self._n_target // size)
        if self._round[0] != in_round:
            generator = generator_for(self._seed, _TARGET, in_round)
            self._round = (in_round, torch.randperm(self._n_target, generator=generator))
        return self._round[1][position * size : (position + 1) * size]

    def generator(self, step: int) -> torch.Generator:
        """Return the generator for everything else that is random in a step."""
        return generator_for(self._seed, _STEP, step)
