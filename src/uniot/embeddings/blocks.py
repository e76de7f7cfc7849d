"""Rows of consecutive files, put together from what is known and what is computed in batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uniot.data.image_files import ImageFile
from uniot.embeddings.preparation import Pixels
from uniot.embeddings.reading import ReadImage, Skipped
from uniot.embeddings.store import EmbeddingTable, Rows


@dataclass(frozen=True, eq=False)
class Extraction:
    """What a network made of the files that could be read, in their order.

    Attributes:
        values: a row for each file kept, float16.
        files: the files kept.
        kept: their places among all files given.
        skipped: the files that could not be used, and why.
        contents: SHA-256 of each kept file's bytes, in hexadecimal.
        computed: rows that were computed; the others were known, or are those of another file with the same content.
        seconds: that it took.
    """

    values: Rows
    files: list[ImageFile]
    kept: NDArray[np.int64]
    skipped: list[Skipped]
    contents: list[str]
    computed: int
    seconds: float


class Compute(Protocol):
    """Where batches are computed, `streams` of them at a time."""

    streams: int

    def submit(self, images: Sequence[Pixels]) -> Future[Rows]: ...


class Block:
    """Rows of consecutive files, computed in batches as the files come in."""

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
        """Gives a file its row, and computes those that wait when they fill a batch."""
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
                # One batch more than are computed at a time, so that nobody waits for this thread.
                self._collect(leave=self._compute.streams + 1)

    def finished(self) -> Extraction:
        """All rows, when the last is computed."""
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
        # Another process, or the block before this one, may have computed some since they were looked for.
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
