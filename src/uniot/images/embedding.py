"""Embeddings of image files: read and decoded ahead by threads, computed in batches, looked up in a store.

Each distinct image is computed once.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from uniot.errors import DataError
from uniot.images.backbones import Backbone
from uniot.images.decoding import UnreadableImage
from uniot.images.inference import FrozenTrunk
from uniot.images.splitting import Split
from uniot.io.csv_tables import write_table
from uniot.io.text import listed

if TYPE_CHECKING:
    from uniot.images.backbones import ImageReader
    from uniot.images.files import ImageFile
    from uniot.images.preparation import Pixels, Preparation
    from uniot.images.store import EmbeddingStore, EmbeddingTable, Rows

OnProgress = Callable[[int, int, int, float], None]
"""Callback with files done, total files (0 if unknown), computed rows, and files per second.

It is called before the first file, while the network is prepared, and at the end, too.
"""

_BATCHES_AHEAD = 2
_SECONDS_BETWEEN_CALLS = 0.1
_MAX_WORKERS = 16


class UnusableImage(DataError):
    """An image cannot be read or decoded, and none may be skipped."""


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read or decoded, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class ImageEmbeddings:
    """Embeddings of the files that could be read, in their order.

    Attributes:
        values: one row per kept file, float16, (n_kept, ...).
        files: the kept files, (n_kept,).
        kept: their indices among all given files, (n_kept,).
        skipped: the files that could not be read, and why.
        contents: SHA-256 of each kept file's bytes, in hexadecimal, (n_kept,).
        computed: number of rows that were computed; the others were stored, or belong to identical files.
        seconds: duration.
    """

    values: Rows
    files: list[ImageFile]
    kept: NDArray[np.int64]
    skipped: list[Skipped]
    contents: list[str]
    computed: int
    seconds: float

    @classmethod
    def none(cls) -> ImageEmbeddings:
        """Return the embeddings of no files."""
        return cls(np.empty((0, 0), np.float16), [], np.empty(0, np.int64), [], [], 0, 0.0)


@dataclass(frozen=True)
class ReadOptions:
    """How the files of a collection are read.

    Attributes:
        store: store of embeddings between runs; none if None.
        strict: whether a file that cannot be read stops the run.
        workers: threads that read and decode; one per core if None.
        progress: from the name of a collection ("source", "target", "images") to its progress callback.
    """

    store: EmbeddingStore | None = None
    strict: bool = False
    workers: int | None = None
    progress: Callable[[str], OnProgress] | None = None

    def on_progress(self, collection: str) -> OnProgress | None:
        """Return the progress callback of a collection; None if there is none."""
        return None if self.progress is None else self.progress(collection)


class ProcessGroup(Protocol):
    """Processes that share the work, as `uniot.training.processes` starts them."""

    count: int
    device: torch.device

    def part(self, size: int) -> slice:
        """Return the slice of `size` consecutive items that this process handles."""
        ...

    def wait(self) -> None:
        """Wait until every process has called this (a barrier)."""
        ...


def embed_images(
    files: Sequence[ImageFile],
    reader: ImageReader,
    options: ReadOptions,
    processes: ProcessGroup | None = None,
    *,
    collection: str = "images",
) -> ImageEmbeddings:
    """Return the output of the backbone's frozen part for every image that can be read.

    Args:
        files: the images.
        reader: backbone, and what of it is trained.
        options: how files are read.
        processes: processes that share the work.
        collection: name for the progress: "source", "target" or "images".
    """
    if processes is not None:
        reader.split.trunk.to(processes.device)
    read = partial(extract, network=reader.split, store=options.store, workers=options.workers)
    if processes is not None and processes.count > 1 and options.store is not None:
        # Each process computes its part; afterwards the store holds all of them for everybody.
        with suppress(DataError):  # a part without any readable image is no error of the whole
            read(files[processes.part(len(files))])
        processes.wait()
    return read(files, strict=options.strict, on_progress=options.on_progress(collection))


def lost_classes(files: Sequence[ImageFile], read: ImageEmbeddings) -> dict[str, Skipped]:
    """Return the classes of which no image could be read, each with one of the files that were skipped.

    Args:
        files: labelled images.
        read: those that could be read.

    Raises:
        DataError: some are lost, and a single class is left.
    """
    left = {str(file.label) for file in read.files}
    label_of = {file.name: str(file.label) for file in files}
    lost: dict[str, Skipped] = {}
    for skipped in read.skipped:
        if label_of[skipped.name] not in left:
            lost.setdefault(label_of[skipped.name], skipped)
    if lost and len(left) < 2:
        none_of = "; ".join(f"{label!r}, such as {one.name} ({one.reason})" for label, one in islice(lost.items(), 3))
        raise DataError(
            f"only one class has images that can be read, {listed(left)!r}. No image can be read of {none_of}. Replace "
            "these files, or add images of another class."
        )
    return lost


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write path and reason of each file that could not be read; no file if there are none."""
    write_table(path, ("path", "reason"), [(one.name, one.reason) for one in skipped])


def skipped_beside(table: Path) -> Path:
    """Return the path of the table of unreadable images beside a table: `new.skipped.csv` for `new.csv`."""
    return table.with_name(f"{table.stem}.skipped.csv")


def extract(
    files: Sequence[ImageFile],
    network: Backbone | Split,
    store: EmbeddingStore | None = None,
    *,
    batch_size: int = 16,
    workers: int | None = None,
    strict: bool = False,
    on_progress: OnProgress | None = None,
) -> ImageEmbeddings:
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
    extractor = _Extractor(_split(network), store, batch_size, workers, strict, on_progress)
    (extraction,) = extractor.blocks(files, len(files), _nothing if extractor.split.cut == "all" else None)
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
) -> Iterator[ImageEmbeddings]:
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
        return _Extractor(split, store, batch_size, workers, strict, on_progress).blocks(files, block_size)
    prepared = partial(_prepared, split.preparation)
    return _Extractor(split, None, batch_size, workers, strict, on_progress).blocks(files, block_size, prepared)


def _split(network: Backbone | Split) -> Split:
    return network.split("none") if isinstance(network, Backbone) else network


def _nothing(images: Sequence[Pixels]) -> Rows:
    return np.empty((len(images), 0), dtype=np.float16)


def _prepared(preparation: Preparation, images: Sequence[Pixels]) -> Rows:
    rows: Rows = preparation.normalise(torch.from_numpy(np.stack(images))).to(torch.float16).numpy()
    return rows


class _AtOnce:
    """An executor that calls a function immediately."""

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
class _Extractor:
    """Options of an extraction."""

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
    ) -> Iterator[ImageEmbeddings]:
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


@dataclass(frozen=True, eq=False)
class ReadImage:
    """What was read from a file.

    Attributes:
        content: SHA-256 of its bytes.
        known: its row in the store; None if it must be computed.
        pixels: pixels for the network, if its row must be computed.
    """

    content: bytes
    known: Rows | None = None
    pixels: Pixels | None = None


def read_in_order(
    files: Iterable[ImageFile],
    preparation: Preparation,
    table: EmbeddingTable | None,
    *,
    workers: int | None,
    ahead: int,
) -> Generator[tuple[ImageFile, ReadImage | Skipped], None, None]:
    """Yield the files in order, read and decoded by threads at most `ahead` files ahead of the caller.

    Threads are enough, because reading, hashing, decoding and resizing release the GIL; unlike processes they need no
    copies and never outlive a killed caller.

    Args:
        files: the images.
        preparation: transform of the decoded images.
        table: stored rows; an image whose row is there is not decoded.
        workers: number of threads; one per core if None.
        ahead: number of files that are read ahead.
    """
    workers = workers or min(_MAX_WORKERS, available_cores())
    pool = ThreadPoolExecutor(workers, thread_name_prefix="read")
    waiting: deque[tuple[ImageFile, Future[ReadImage | Skipped]]] = deque()
    try:
        for file in files:
            waiting.append((file, pool.submit(_read, file, preparation, table)))
            if len(waiting) > max(ahead, workers):
                first, result = waiting.popleft()
                yield first, result.result()
        while waiting:
            first, result = waiting.popleft()
            yield first, result.result()
    finally:
        pool.shutdown(cancel_futures=True)


def available_cores() -> int:
    """Return the number of cores that this process may use; in a container fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read(file: ImageFile, preparation: Preparation, table: EmbeddingTable | None) -> ReadImage | Skipped:
    try:
        with file.opened() as data:
            content = hashlib.sha256(data).digest()
            known = table.get_many([content]).get(content) if table is not None else None
            if known is not None:
                return ReadImage(content, known=known)
            return ReadImage(content, pixels=preparation.read(data))
    except UnreadableImage as error:
        return Skipped(file.name, error.reason)
    except MemoryError:
        return Skipped(file.name, "not enough memory")


class BatchExecutor(Protocol):
    """An executor that computes `streams` batches at a time."""

    streams: int

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        """Compute the rows of a batch; return their future, (n_images, ...)."""
        ...


class Block:
    """The rows of consecutive files, which are computed in batches as the files arrive.

    Attributes:
        skipped: files that could not be read.
        computed: number of rows computed so far.
    """

    def __init__(self, capacity: int, batch_size: int, compute: BatchExecutor, table: EmbeddingTable | None) -> None:
        self.skipped: list[Skipped] = []
        self.computed = 0
        self._capacity = capacity
        self._batch_size = batch_size
        self._compute = compute
        self._table = table
        self._began = time.perf_counter()
        self._values: Rows | None = None
        self._files: list[ImageFile] = []
        self._kept: list[int] = []
        self._contents: list[bytes] = []
        self._row_of: dict[bytes, int] = {}
        self._repeats: list[int] = []
        self._waiting: dict[bytes, Pixels] = {}
        self._running: deque[tuple[list[bytes], Future[Rows]]] = deque()

    def take(self, place: int, file: ImageFile, image: ReadImage) -> None:
        """Add a file, and start to compute a batch when enough files wait."""
        row = len(self._files)
        self._files.append(file)
        self._kept.append(place)
        self._contents.append(image.content)
        if self._row_of.setdefault(image.content, row) != row:
            self._repeats.append(row)
        elif image.known is not None:
            self._fill(image.content, image.known)
        elif image.pixels is not None:
            self._waiting[image.content] = image.pixels
            if len(self._waiting) == self._batch_size:
                self._start()
                # One batch more than are computed at a time keeps all streams busy.
                self._collect(leave=self._compute.streams + 1)

    def finished(self) -> ImageEmbeddings:
        """Return the embeddings of the block, after waiting for the last batch."""
        self._start()
        self._collect(leave=0)
        values = np.empty((0, 0), dtype=np.float16) if self._values is None else self._values[: len(self._files)]
        for row in self._repeats:
            values[row] = values[self._row_of[self._contents[row]]]
        return ImageEmbeddings(
            values,
            self._files,
            np.array(self._kept, dtype=np.int64),
            self.skipped,
            [content.hex() for content in self._contents],
            self.computed,
            time.perf_counter() - self._began,
        )

    def _start(self) -> None:
        # Another process, or the previous block, may have stored some rows in the meantime.
        known = self._table.get_many(list(self._waiting)) if self._table is not None else {}
        for content, row in known.items():
            self._fill(content, row)
        new = {content: pixels for content, pixels in self._waiting.items() if content not in known}
        self._waiting = {}
        if new:
            self._running.append((list(new), self._compute.submit(list(new.values()))))

    def _collect(self, *, leave: int) -> None:
        while len(self._running) > leave:
            contents, computed = self._running.popleft()
            rows = computed.result()
            if self._table is not None:
                self._table.put_many(contents, rows)
            for content, row in zip(contents, rows, strict=True):
                self._fill(content, row)
            self.computed += len(contents)

    def _fill(self, content: bytes, row: Rows) -> None:
        if self._values is None:
            self._values = np.empty((self._capacity, *row.shape), dtype=np.float16)
        self._values[self._row_of[content]] = row
