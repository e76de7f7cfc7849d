"""Fills a table without end, or as often as it is told; a process of its own in the tests of the store."""

from __future__ import annotations

import sys
from itertools import count, islice
from pathlib import Path

import numpy as np

from uniot.images.store import EmbeddingStore


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def row(number: int) -> np.ndarray:
    return np.arange(number, number + 64, dtype=np.int64).astype(np.float16)


if __name__ == "__main__":
    folder, first, batches = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with EmbeddingStore(folder).table("network") as table:
        for batch in islice(count(), batches or None):
            numbers = range(first + 10 * batch, first + 10 * batch + 10)
            table.put_many([key(number) for number in numbers], np.stack([row(number) for number in numbers]))
            print(numbers.stop, flush=True)  # noqa: T201
