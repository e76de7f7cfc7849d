"""Thumbnails of the pictures of a run: many at once within a limit of bytes, or one at a time from a cache."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import BoundedSemaphore, Lock

from uniot.errors import DataError
from uniot.runs.pictures import Collection, Pictures

Picture = tuple[Collection, int]
"""A picture: its collection and its row there."""
# Pillow decodes outside of Python's lock, and files may lie on a slow disk.
_THREADS = 4
_AT_ONCE = 64
# Number of pictures from which the size of all is estimated.
_TRIED = 24


def read_thumbnails(
    pictures: Pictures | None, wanted: Iterable[Picture], side: int, most_bytes: int
) -> dict[Picture, bytes]:
    """Return pictures as JPEG, in order until the limit of bytes; missing files are left out.

    Args:
        pictures: pictures of the run; the result is empty if None.
        wanted: pictures to read; duplicates are read once.
        side: longest side in pixels.
        most_bytes: limit of the sum of all sizes.

    Returns:
        The JPEG bytes of each picture that was read.
    """
    if pictures is None:
        return {}
    found: dict[Picture, bytes] = {}
    room = most_bytes
    queue = iter(dict.fromkeys(wanted))
    with ThreadPoolExecutor(_THREADS) as threads:
        while block := list(islice(queue, _AT_ONCE)):
            for picture, jpeg in zip(block, threads.map(lambda one: _read(pictures, one, side), block), strict=True):
                if jpeg is None:
                    continue
                room -= len(jpeg)
                if room < 0:
                    return found
                found[picture] = jpeg
    return found


def fitting_side(pictures: Pictures | None, wanted: Sequence[Picture], sides: Sequence[int], most_bytes: int) -> int:
    """Return the first of `sides` at which all pictures are likely to fit into `most_bytes`, or else the last."""
    step = max(1, len(wanted) // _TRIED)
    for side in sides[:-1]:
        tried = read_thumbnails(pictures, wanted[::step], side, most_bytes).values()
        if len(wanted) * sum(map(len, tried)) <= most_bytes * len(tried):
            return side
    return sides[-1]


def _read(pictures: Pictures, picture: Picture, side: int) -> bytes | None:
    try:
        return pictures.thumbnail(*picture, side)
    except DataError:
        return None


THUMBNAIL_SIDE, LARGE_SIDE = 160, 720
_MAX_CACHE_BYTES = 1 << 28
# Decoding a large photograph takes up to a gigabyte of memory.
_MAX_DECODERS = max(2, min(4, os.cpu_count() or 2))


class ThumbnailCache:
    """Draws thumbnails and caches them in a file of the run folder, which drops the oldest when it is full.

    If the cache cannot be read or written, thumbnails are drawn each time.

    Args:
        pictures: of the run.
        path: of the cache.
        digest: of the run; the cache of another run is emptied.
        max_bytes: total size of the cached thumbnails.
    """

    def __init__(self, pictures: Pictures, path: Path, digest: str, max_bytes: int = _MAX_CACHE_BYTES) -> None:
        self._pictures, self._max_bytes = pictures, max_bytes
        self._decoders, self._lock = BoundedSemaphore(_MAX_DECODERS), Lock()
        self._bytes = 0
        self._cache = _open_cache(path, digest)
        if self._cache is not None:
            self._bytes = self._cache.execute("SELECT COALESCE(SUM(LENGTH(jpeg)), 0) FROM thumbnails").fetchone()[0]

    @property
    def has_source(self) -> bool:
        """Return whether there are pictures of the labelled samples."""
        return self._pictures.count("source") > 0

    def small(self, collection: Collection, row: int) -> bytes:
        """Return a thumbnail as JPEG.

        Raises:
            DataError: the picture does not exist or cannot be read any more.
        """
        key = f"{collection} {row}"
        jpeg = self._cached(key)
        if jpeg is None:
            jpeg = self._draw(collection, row, THUMBNAIL_SIDE)
            self._add(key, jpeg)
        return jpeg

    def large(self, collection: Collection, row: int) -> bytes:
        """Return a picture as JPEG in a size to look at closely; it is not cached."""
        return self._draw(collection, row, LARGE_SIDE)

    def close(self) -> None:
        """Close the cache."""
        with self._lock:
            if self._cache is not None:
                self._cache.close()
                self._cache = None

    def _draw(self, collection: Collection, row: int, side: int) -> bytes:
        with self._decoders:
            return self._pictures.thumbnail(collection, row, side)

    def _cached(self, key: str) -> bytes | None:
        def find(cache: sqlite3.Connection) -> bytes | None:
            found = cache.execute("SELECT jpeg FROM thumbnails WHERE key = ?", (key,)).fetchone()
            return None if found is None else bytes(found[0])

        return self._with_cache(find)

    def _add(self, key: str, jpeg: bytes) -> None:
        def add(cache: sqlite3.Connection) -> None:
            added = cache.execute("INSERT OR IGNORE INTO thumbnails (key, jpeg) VALUES (?, ?)", (key, jpeg)).rowcount
            self._bytes += len(jpeg) * added
            while self._bytes > self._max_bytes:
                oldest, size = cache.execute("SELECT id, LENGTH(jpeg) FROM thumbnails ORDER BY id LIMIT 1").fetchone()
                cache.execute("DELETE FROM thumbnails WHERE id = ?", (oldest,))
                self._bytes -= size

        self._with_cache(add)

    def _with_cache(self, use: Callable[[sqlite3.Connection], bytes | None]) -> bytes | None:
        with self._lock:
            if self._cache is None:
                return None
            try:
                return use(self._cache)
            except sqlite3.Error:
                self._cache.close()
                self._cache = None
                return None


def _open_cache(path: Path, digest: str) -> sqlite3.Connection | None:
    if path.is_symlink():
        return None  # in a shared folder a link may point to any database
    for _ in range(2):
        cache = None
        try:
            cache = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            cache.execute("PRAGMA journal_mode = WAL")
            cache.execute("PRAGMA synchronous = NORMAL")
            cache.execute("CREATE TABLE IF NOT EXISTS run (digest TEXT PRIMARY KEY)")
            cache.execute(
                "CREATE TABLE IF NOT EXISTS thumbnails (id INTEGER PRIMARY KEY, key TEXT UNIQUE, jpeg BLOB NOT NULL)"
            )
            if cache.execute("SELECT digest FROM run").fetchall() != [(digest,)]:
                cache.execute("DELETE FROM thumbnails")
                cache.execute("DELETE FROM run")
                cache.execute("INSERT INTO run (digest) VALUES (?)", (digest,))
            return cache
        except sqlite3.DatabaseError:
            if cache is not None:
                cache.close()
            # A damaged cache is replaced.
            with suppress(OSError):
                for part in ("", "-wal", "-shm"):
                    path.with_name(path.name + part).unlink(missing_ok=True)
    return None
