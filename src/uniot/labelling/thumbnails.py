"""Small pictures of a run, kept in a file of the run folder so that each is drawn once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import BoundedSemaphore, Lock

from uniot.pictures import Collection, Pictures

FILE = "thumbnails.sqlite"
SIDE, LARGE_SIDE = 160, 720

_MOST_BYTES = 1 << 28
# A large photograph takes a gigabyte while it is decoded: only a few at a time.
_AT_ONCE = max(2, min(4, os.cpu_count() or 2))


class Thumbnails:
    """Draws thumbnails, or finds them in a cache that forgets the oldest when it is full.

    The cache is no more than that: where it cannot be read or written, pictures are drawn each time.

    Args:
        pictures: of the run.
        path: the file of the cache.
        digest: of the run; a cache of another run is emptied.
        most_bytes: of all the pictures in the cache.
    """

    def __init__(self, pictures: Pictures, path: Path, digest: str, most_bytes: int = _MOST_BYTES) -> None:
        self._pictures, self._most_bytes = pictures, most_bytes
        self._drawing, self._lock = BoundedSemaphore(_AT_ONCE), Lock()
        self._bytes = 0
        self._cache = _opened(path, digest)
        if self._cache is not None:
            self._bytes = self._cache.execute("SELECT COALESCE(SUM(LENGTH(jpeg)), 0) FROM thumbnails").fetchone()[0]

    def small(self, collection: Collection, row: int) -> bytes:
        """A thumbnail as JPEG; raises DataError where there is no such picture, or no longer."""
        key = f"{collection} {row}"
        jpeg = self._found(key)
        if jpeg is None:
            jpeg = self._drawn(collection, row, SIDE)
            self._keep(key, jpeg)
        return jpeg

    def large(self, collection: Collection, row: int) -> bytes:
        """The picture at a size to look at; it is not kept."""
        return self._drawn(collection, row, LARGE_SIDE)

    def close(self) -> None:
        """Ends the use of the file."""
        with self._lock:
            if self._cache is not None:
                self._cache.close()
                self._cache = None

    def _drawn(self, collection: Collection, row: int, side: int) -> bytes:
        with self._drawing:
            return self._pictures.thumbnail(collection, row, side)

    def _found(self, key: str) -> bytes | None:
        def find(cache: sqlite3.Connection) -> bytes | None:
            found = cache.execute("SELECT jpeg FROM thumbnails WHERE key = ?", (key,)).fetchone()
            return None if found is None else bytes(found[0])

        return self._tried(find)

    def _keep(self, key: str, jpeg: bytes) -> None:
        def keep(cache: sqlite3.Connection) -> None:
            added = cache.execute("INSERT OR IGNORE INTO thumbnails (key, jpeg) VALUES (?, ?)", (key, jpeg)).rowcount
            self._bytes += len(jpeg) * added
            while self._bytes > self._most_bytes:
                oldest, size = cache.execute("SELECT id, LENGTH(jpeg) FROM thumbnails ORDER BY id LIMIT 1").fetchone()
                cache.execute("DELETE FROM thumbnails WHERE id = ?", (oldest,))
                self._bytes -= size

        self._tried(keep)

    def _tried(self, use: Callable[[sqlite3.Connection], bytes | None]) -> bytes | None:
        with self._lock:
            if self._cache is None:
                return None
            try:
                return use(self._cache)
            except sqlite3.Error:
                self._cache.close()
                self._cache = None
                return None


def _opened(path: Path, digest: str) -> sqlite3.Connection | None:
    if path.is_symlink():
        return None  # somebody else may have made the folder, and the link may lead to any database
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
            # Damaged, or of another kind: nothing in it is worth keeping.
            with suppress(OSError):
                for part in ("", "-wal", "-shm"):
                    path.with_name(path.name + part).unlink(missing_ok=True)
    return None
