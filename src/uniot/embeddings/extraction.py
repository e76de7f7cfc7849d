"""From image files to what a network makes of them: each read once, computed once, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from pathlib import Path

import numpy as np
import torch

from uniot.data.image_files import ImageFile
from uniot.embeddings.backbones import Backbone, Split
from uniot.embeddings.blocks import Block, Extraction
from uniot.embeddings.inference import FrozenTrunk
from uniot.embeddings.preparation import Pixels, Preparation
from uniot.embeddings.reading import ReadImage, Skipped, read_in_order
from uniot.embeddings.store import EmbeddingStore, Rows
from uniot.errors import DataError

OnProgress = Callable[[int, int, int, float], None]
"""Called with files done, files in all (0 if not known), rows computed, and files a second; once with all done."""

_BATCHES_AHEAD = 2
_SECONDS_BETWEEN_CALLS = 0.1


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
    """Embeddings of all files, or what the trunk of a split backbone makes of them, in one array.

    Of a network that is trained as a whole (cut "all") there is nothing to keep, and rows have no numbers: files are
    read to know which can be, and which are the same.

    A row does not depend on the other images of its batch, but it may, in the last digit, on `batch_size` and on the
    machine.

    Args:
        files: the images.
        network: whose numbers are wanted. It computes where its weights are.
        store: where rows are looked for first and kept, batch by batch; nowhere if None.
        batch_size: images that go through the network together.
        workers: threads that read and decode; one a core if None.
        strict: whether a file that cannot be used is an error; it is skipped otherwise.
        on_progress: told ten times a second.

    Raises:
        DataError: no file can be used; or one cannot, where `strict`.
        NumericalError: the network gives numbers beyond float16.
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
    """The same for any number of files in bounded memory: an extraction for every `block_size` files in turn.

    A block may have skipped all of its files; the error comes only where no block kept any. With a network that is
    trained as a whole, rows are the prepared images themselves, and the store is not used.
    """
    split = _split(network)
    if split.cut != "all":
        return _Job(split, store, batch_size, workers, strict, on_progress).blocks(files, block_size)
    prepared = partial(_prepared, split.preparation)
    return _Job(split, None, batch_size, workers, strict, on_progress).blocks(files, block_size, prepared)


def duplicates(source_contents: Sequence[str], target_contents: Sequence[str]) -> list[tuple[int, int]]:
    """Places in source and target that hold the same bytes; by target, each with the first such place of the source."""
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
    """A function that makes rows without delay."""

    streams = 0

    def __init__(self, function: Callable[[Sequence[Pixels]], Rows]) -> None:
        self._function = function

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        done: Future[Rows] = Future()
        done.set_result(self._function(images))
        return done


@dataclass(frozen=True)
class _Job:
    """How files become rows."""

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
        """An extraction for every `block_size` files; rows are made by `function` instead of the trunk, if given."""
        progress = _Progress(self.on_progress, length_hint(files))
        n_files = n_kept = n_computed = 0
        first_skipped: list[tuple[Path, str]] = []
        with ExitStack() as until_done:
            enter = until_done.enter_context
            table = None if self.store is None else enter(self.store.table(self.split.made_by))
            compute = enter(FrozenTrunk(self.split, self.batch_size)) if function is None else _AtOnce(function)
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
                progress.tell(n_files, n_computed + block.computed)
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
            raise DataError(
                f"{file.path} cannot be used ({skipped.reason}). Replace it or take it out; unless reading is strict, "
                "such files are skipped."
            )
        block.skipped.append(skipped)


def _nothing_usable(n_files: int, first: Path, reason: str) -> str:
    if n_files == 1:
        return f"{first} cannot be used ({reason}). Give another image."
    return (
        f"none of {n_files} images can be used, {first} first ({reason}). Check that they are images and can be read; "
        "paths in a list file are relative to the folder of the list."
    )


class _Progress:
    def __init__(self, on_progress: OnProgress | None, total: int) -> None:
        self._on_progress = on_progress
        self._total = total
        self._began = time.perf_counter()
        self._told = self._began

    def tell(self, done: int, computed: int) -> None:
        # When the last file is read, rows are still being computed: that all is done is told at the end.
        if time.perf_counter() - self._told >= _SECONDS_BETWEEN_CALLS and done != self._total:
            self._tell(done, self._total, computed)

    def end(self, done: int, computed: int) -> None:
        self._tell(done, done, computed)

    def _tell(self, done: int, total: int, computed: int) -> None:
        self._told = time.perf_counter()
        if self._on_progress is not None:
            self._on_progress(done, total, computed, done / max(self._told - self._began, 1e-9))
