"""Image files read, recognised and decoded ahead of the network, in their order."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from uniot.data.decoding import UnreadableImage, read_image
from uniot.data.image_files import ImageFile
from uniot.embeddings.preparation import Pixels, Preparation
from uniot.embeddings.store import EmbeddingTable, Rows

_MOST_WORKERS = 16


@dataclass(frozen=True)
class Skipped:
    """A file that could not be used."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class ReadImage:
    """A file that could be used.

    Attributes:
        content: SHA-256 of its bytes.
        known: its row, where there is one.
        pixels: as the network takes them, where its row must be computed.
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
    """Every file as it was read, by threads that are at most `ahead` files ahead of the caller.

    Threads and not processes: reading, hashing, decoding and resizing all let other threads work meanwhile, and there
    is nothing to start, to copy, or to outlive a caller that is killed.
    """
    workers = workers or min(_MOST_WORKERS, available_cores())
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
    """Cores that this process may use; in a container fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read(file: ImageFile, preparation: Preparation, table: EmbeddingTable | None) -> ReadImage | Skipped:
    try:
        data = read_image(file.path)
        content = hashlib.sha256(data).digest()
        known = table.get_many([content]).get(content) if table is not None else None
        if known is not None:
            return ReadImage(content, known=known)
        return ReadImage(content, pixels=preparation.read(data))
    except UnreadableImage as error:
        return Skipped(file.name, error.reason)
    except MemoryError:
        return Skipped(file.name, "not enough memory")
