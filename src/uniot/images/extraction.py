"""Compute the embeddings of image files; each distinct image is computed once and can be stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from uniot.errors import DataError
from uniot.images.backbones import Backbone
from uniot.images.reading import Block, Extraction, FrozenTrunk, ReadImage, Skipped, read_in_order
from uniot.images.splitting import Split

if TYPE_CHECKING:
    from uniot.images.files import ImageFile
    from uniot.images.preparation import Pixels, Preparation
    from uniot.images.store import EmbeddingStore, Rows

OnProgress = Callable[[int, int, int, float], None]
"""Callback with files done, total files (0 if unknown), computed rows, and files per second.

It is called before the first file, while the network is prepared, and at the end, too.
"""

_BATCHES_AHEAD = 2
_SECONDS_BETWEEN_CALLS = 0.1


class UnusableImage(DataError):
    """An image cannot be read or decoded, and none may be skipped."""


def extract(
    files: Sequence[ImageFile],
    network: Backbone | Split,
    store: EmbeddingStore | None = None,
    *,
    batch_size: int = 16,
    workers: int | None = None,
    strict: bool = False,
    on_progress: OnProgress | None = None,
) -> Extraction:
    """Compute the embeddings of images, or the outputs of a split backbone's trunk, in one array.

    If the whole network is trained (cut "all") there is nothing to store, and rows are empty: files are only read to
    find those that cannot be decoded and those that are identical.

    A row does not depend on the other images of its batch, but may differ in the last digit with `batch_size` and the
    machine.

    Args:
        files: the images, (n_files,).
        network: the network; it computes on the device of its weights.
        store: store in which rows are looked up and kept, batch by batch; None disables it.
        batch_size: number of images per batch.
        workers: number of threads that read and decode; one per core if None.
        strict: whether an unreadable file is an error; otherwise it is skipped.
        on_progress: callback, called ten times per second.

    Returns:
        Rows of the files that could be read, and the skipped files.

    Raises:
        DataError: no file can be read; or, if `strict`, one of them cannot (UnusableImage).
        NumericalError: an output of the network is beyond the range of float16.
        RunFolderError: the store cannot be written.
    """
    if not files:
        raise DataError("there are no images to read. Give at least one.")
    job = _Job(_split(network), store, batch_size, workers, strict, on_progress)
    (extraction,) = job.blocks(files, len(files), _nothing if job.split.cut == "all" else None)
    return extraction


def extract_blocks(
    files: Iterable[ImageFile],
    network: Backbone | Split,
    store: EmbeddingStore | None = None,
    *,
    block_size: int = 1024,
    batch_size: int = 16,
    workers: int | None = None,
    strict: bool = False,
    on_progress: OnProgress | None = None,
) -> Iterator[Extraction]:
    """Compute embeddings as `extract` does, for any number of files in bounded memory.

    If the whole network is trained, rows are the prepared images themselves, and the store is not used.

    Args:
        files: the images.
        network: as for `extract`.
        store: as for `extract`.
        block_size: number of files per block.
        batch_size: as for `extract`.
        workers: as for `extract`.
        strict: as for `extract`.
        on_progress: as for `extract`.

    Returns:
        One extraction per `block_size` files, in order. A block may consist of skipped files only; it is an error if
        all blocks do.
    """
    split = _split(network)
    if split.cut != "all":
        return _Job(split, store, batch_size, workers, strict, on_progress).blocks(files, block_size)
    prepared = partial(_prepared, split.preparation)
    return _Job(split, None, batch_size, workers, strict, on_progress).blocks(files, block_size, prepared)


def duplicates(source_contents: Sequence[str], target_contents: Sequence[str]) -> list[tuple[int, int]]:
    """Find target images that are also in the source, byte for byte.

    Args:
        source_contents: digests of the source's files, (n_source,).
        target_contents: digests of the target's files, (n_target,).

    Returns:
        Pairs of source and target index, sorted by target index; the first source image if there are several.
    """
    first: dict[str, int] = {}
    for place, content in enumerate(source_contents):
        first.setdefault(content, place)
    return [(first[content], place) for place, content in enumerate(target_contents) if content in first]


def _split(network: Backbone | Split) -> Split:
    return network.split("none") if isinstance(network, Backbone) else network


def _nothing(images: Sequence[Pixels]) -> Rows:
    return np.empty((len(images), 0), dtype=np.float16)


def _prepared(preparation: Preparation, images: Sequence[Pixels]) -> Rows:
    rows: Rows = preparation.normalise(torch.from_numpy(np.stack(images))).to(torch.float16).numpy()
    return rows


class _AtOnce:
    """Calls a function immediately, in place of an executor."""

    streams = 0

    def __init__(self, function: Callable[[Sequence[Pixels]], Rows], made_by: str) -> None:
        self._function = function
        self.made_by = made_by

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        """Call the function; return a finished future of its rows, (n_images, ...)."""
        done: Future[Rows] = Future()
        done.set_result(self._function(images))
        return done


@dataclass(frozen=True)
class _Job:
    """Holds the options of an extraction."""

    split: Split
    store: EmbeddingStore | None
    batch_size: int
    workers: int | None
    strict: bool
    on_progress: OnProgress | None

    def blocks(
        self,
        files: Iterable[ImageFile],
        block_size: int,
        function: Callable[[Sequence[Pixels]], Rows] | None = None,
    ) -> Iterator[Extraction]:
        """Yield one extraction per `block_size` files; `function`, if given, computes rows instead of the trunk."""
        progress = _Progress(self.on_progress, length_hint(files))
        n_files = n_kept = n_computed = 0
        first_skipped: list[tuple[Path, str]] = []
        with ExitStack() as until_done:
            enter = until_done.enter_context
            compute: FrozenTrunk | _AtOnce
            if function is None:
                compute = enter(FrozenTrunk(self.split, self.batch_size))
            else:
                compute = _AtOnce(function, self.split.made_by)
            table = None if self.store is None else enter(self.store.table(compute.made_by))
            ahead = _BATCHES_AHEAD * self.batch_size * max(1, compute.streams)
            read = read_in_order(files, self.split.preparation, table, workers=self.workers, ahead=ahead)
            block = Block(block_size, self.batch_size, compute, table)
            for n_files, (file, image) in enumerate(enter(closing(read)), start=1):
                if isinstance(image, ReadImage):
                    block.take(n_files - 1, file, image)
                    n_kept += 1
                else:
                    self._skip(file, image, block)
                    first_skipped = first_skipped or [(file.path, image.reason)]
                progress.update(n_files, n_computed + block.computed)
                if n_files % block_size == 0:
                    yield block.finished()
                    n_computed += block.computed
                    block = Block(block_size, self.batch_size, compute, table)
            if n_files % block_size:
                yield block.finished()
        if first_skipped and not n_kept:
            raise DataError(_nothing_usable(n_files, *first_skipped[0]))
        progress.end(n_files, n_computed + block.computed)

    def _skip(self, file: ImageFile, skipped: Skipped, block: Block) -> None:
        if self.strict:
            raise UnusableImage(f"{file.path} cannot be used ({skipped.reason}). Replace or remove it.")
        block.skipped.append(skipped)


def _nothing_usable(n_files: int, first: Path, reason: str) -> str:
    if n_files == 1:
        return f"{first} cannot be used ({reason}). Give another image."
    return (
        f"none of {n_files} images can be used; the first is {first} ({reason}). Check that they are images and can be "
        "read; paths in a list file are relative to the folder of the list."
    )


class _Progress:
    def __init__(self, on_progress: OnProgress | None, total: int) -> None:
        self._on_progress = on_progress
        self._total = total
        self._began = time.perf_counter()
        self._call(0, total, 0)

    def update(self, done: int, computed: int) -> None:
        """Report the progress, at most ten times per second."""
        # When the last file is read, rows are still being computed; the last call comes from `end`.
        if time.perf_counter() - self._last_call >= _SECONDS_BETWEEN_CALLS and done != self._total:
            self._call(done, self._total, computed)

    def end(self, done: int, computed: int) -> None:
        """Report that all files are done."""
        self._call(done, done, computed)

    def _call(self, done: int, total: int, computed: int) -> None:
        self._last_call = time.perf_counter()
        if self._on_progress is not None:
            self._on_progress(done, total, computed, done / max(self._last_call - self._began, 1e-9))
