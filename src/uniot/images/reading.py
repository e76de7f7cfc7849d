"""Read and decode image files in threads ahead of the network, and compute their embeddings in batches."""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uniot.images.decoding import UnreadableImage
from uniot.images.graphs import ENGINE, Graph, graph_of
from uniot.images.splitting import inference_form
from uniot.images.store import EmbeddingTable, Rows, check_finite

if TYPE_CHECKING:
    from uniot.images.files import ImageFile
    from uniot.images.preparation import Pixels, Preparation
    from uniot.images.splitting import Split

_MAX_WORKERS = 16
# Of torch. More would hardly be faster, and each takes the memory of a batch.
_MAX_STREAMS = 4


@dataclass(frozen=True)
class Skipped:
    """Names a file that could not be read or decoded, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class ReadImage:
    """Holds what was read from a file.

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


@dataclass(frozen=True, eq=False)
class Extraction:
    """Holds the embeddings of the files that could be read, in their order.

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
    def none(cls) -> Extraction:
        """Return the extraction of no files."""
        return cls(np.empty((0, 0), np.float16), [], np.empty(0, np.int64), [], [], 0, 0.0)


class Compute(Protocol):
    """Computes `streams` batches at a time, as an executor does."""

    streams: int

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        """Compute the rows of a batch; return their future, (n_images, ...)."""
        ...


class FrozenTrunk:
    """Computes the outputs of a backbone's trunk in batches; a context manager.

    On a CPU several threads compute one batch each: with ONNX Runtime if it is installed, else with torch. Unlike the
    threads of one operation they never wait for each other, so that decoding at the same time does not slow them down.

    The outputs for an image are independent of the batch composition, to the last bit: ONNX Runtime computes one image
    at a time, torch batches of a fixed size.

    Attributes:
        streams: number of batches that are computed at a time.
        made_by: key of everything that determines the outputs, for the store.
    """

    def __init__(self, split: Split, batch_size: int) -> None:
        self._split = split
        self._batch_size = batch_size
        self._graph = graph_of(split)
        self._cores = torch.get_num_threads()
        # The two differ by rounding, so that their rows are stored apart.
        self.made_by = split.made_by if self._graph is None else f"{split.made_by}, with {ENGINE}"
        most = _MAX_STREAMS if self._graph is None else _MAX_WORKERS
        self.streams = min(most, self._cores) if split.device.type == "cpu" else 1

    def __enter__(self) -> FrozenTrunk:
        # The threads share the cores evenly.
        share = (self._cores // self.streams,)
        self._threads = ThreadPoolExecutor(self.streams, "compute", torch.set_num_threads, share)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        # A thread's setting is also inherited by threads that start later.
        torch.set_num_threads(self._cores)

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]:
        """Compute the outputs for at most `batch_size` images; return their future, (n_images, ...)."""
        if self._graph is None:
            return self._threads.submit(self._rows, self._network, images)
        return self._threads.submit(self._rows_of_graph, self._graph, images)

    @cached_property
    def _network(self) -> nn.Module:
        # Built with the first image: if the store has all rows, it is not needed.
        return inference_form(self._split.trunk, self._split.preparation.crop)

    def _rows_of_graph(self, graph: Graph, images: Sequence[Pixels]) -> Rows:
        return check_finite(np.stack([graph.row(image) for image in images]), self._split.name)

    def _rows(self, network: nn.Module, images: Sequence[Pixels]) -> Rows:
        size = self._split.preparation.crop
        batch = np.zeros((self._batch_size, size, size, 3), dtype=np.uint8)
        for place, image in enumerate(images):
            batch[place] = image.transpose(1, 2, 0)
        with torch.inference_mode():
            # The memory layout stays channels last, like the network's.
            pixels = torch.from_numpy(batch).to(self._split.device).permute(0, 3, 1, 2)
            values: Tensor = network(self._split.preparation.normalise(pixels))
            return check_finite(values[: len(images)].to(torch.float16).cpu().numpy(), self._split.name)


class Block:
    """Collects the rows of consecutive files, which are computed in batches as the files arrive.

    Attributes:
        skipped: files that could not be read.
        computed: number of rows computed so far.
    """

    def __init__(self, capacity: int, batch_size: int, compute: Compute, table: EmbeddingTable | None) -> None:
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

    def finished(self) -> Extraction:
        """Return the embeddings of the block, after waiting for the last batch."""
        self._start()
        self._collect(leave=0)
        values = np.empty((0, 0), dtype=np.float16) if self._values is None else self._values[: len(self._files)]
        for row in self._repeats:
            values[row] = values[self._row_of[self._contents[row]]]
        return Extraction(
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
