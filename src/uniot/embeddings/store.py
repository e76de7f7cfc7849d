"""What a network made of images, kept on disk between runs: float16 rows by the content of the file.

A row is found by the SHA-256 of the file's bytes, so a file that was renamed or moved is known and one that was changed
is not. There is a database for each network, cut and preparation. All of it can be computed again: to clear the store,
delete its folder while no run is going on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from uniot.errors import NumericalError, RunFolderError
from uniot.run_folder import lock_file, open_lock

Rows = NDArray[np.float16]
R = TypeVar("R")

_FORMAT = "uniot-embeddings-1"
_SECONDS_TO_WAIT = 60.0
# SQLite's own 4 kB would hold one embedding of 1280 numbers and leave a third of the page empty.
_PAGE_BYTES = 16384
_KEYS_A_QUERY = 500
_CHECKSUM_BYTES = 4


def default_folder() -> Path:
    """Where embeddings are kept: below `$UNIOT_CACHE`, or else below the system's folder for a user's caches."""
    chosen = os.environ.get("UNIOT_CACHE")
    return (Path(chosen).expanduser() if chosen else _user_cache() / "uniot") / "embeddings"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class EmbeddingStore:
    """A folder of databases, one for each way to make embeddings. Any number of processes may use it at once.

    Processes on several machines may not: give each machine a folder of its own through `$UNIOT_CACHE`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder

    def table(self, made_by: str) -> EmbeddingTable:
        """The rows that were made in one way.

        Args:
            made_by: names network, weights, cut and preparation; begins with a word for people to know it by.
        """
        word = re.sub(r"[^A-Za-z0-9_.-]", "_", _first_word(made_by))[:60]
        digest = hashlib.sha256(f"{_FORMAT} {made_by}".encode()).hexdigest()
        return EmbeddingTable(self.folder / f"{word}-{digest[:20]}.sqlite", made_by)

    def size(self) -> int:
        """Bytes on disk."""
        total = 0
        for file in self.folder.glob("*"):
            with suppress(OSError):  # SQLite removes its side files when it likes
                total += file.stat().st_size
        return total


class EmbeddingTable:
    """Rows by key, all of one shape. A row that is damaged on disk counts as absent.

    What `put_many` was given is kept even if the process is killed right after it. Threads may share a table.
    """

    def __init__(self, path: Path, made_by: str) -> None:
        self.path = path
        self._made_by = made_by
        self._lock = threading.Lock()
        self._shape: tuple[int, ...] | None = None
        self._file: tuple[int, int] | None = None
        self._connection = self._opened()

    def __enter__(self) -> EmbeddingTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._connection.close()

    def __len__(self) -> int:
        return self._try(lambda: int(self._connection.execute("SELECT count(*) FROM rows").fetchone()[0]))

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Rows]:
        """The rows of those keys that are there."""
        return self._try(lambda: self._select(keys))

    def put_many(self, keys: Sequence[bytes], rows: Rows) -> None:
        """Keeps one row a key: all of them or, where it fails, none.

        Raises:
            NumericalError: a number is not finite; with float16, none beyond 65504 is.
            RunFolderError: the file cannot be written, or holds rows of another shape.
        """
        check_finite(rows, _first_word(self._made_by))
        self._try(lambda: self._insert(keys, rows))

    def _select(self, keys: Sequence[bytes]) -> dict[bytes, Rows]:
        found: dict[bytes, Rows] = {}
        for start in range(0, len(keys), _KEYS_A_QUERY):
            part = keys[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(part))
            for key, value in self._connection.execute(f"SELECT key, value FROM rows WHERE key IN ({marks})", part):
                row = self._row(key, value)
                if row is not None:
                    found[key] = row
        return found

    def _row(self, key: bytes, value: bytes) -> Rows | None:
        shape = self._shape_there()
        numbers = value[_CHECKSUM_BYTES:]
        if shape is None or value[:_CHECKSUM_BYTES] != _checksum(key, shape, numbers):
            return None
        return np.frombuffer(numbers, dtype="<f2").reshape(shape).astype(np.float16, copy=False)

    def _insert(self, keys: Sequence[bytes], rows: Rows) -> None:
        shape = rows.shape[1:]
        numbers = [row.astype("<f2", copy=False).tobytes() for row in rows]
        values = [(key, _checksum(key, shape, row) + row) for key, row in zip(keys, numbers, strict=True)]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            execute("INSERT OR IGNORE INTO about VALUES ('shape', ?)", [json.dumps(shape)])
            if self._shape_there() != shape:
                raise RunFolderError(
                    f"{self.path} holds rows of shape {self._shape_there()}, and rows of shape {shape} came, which "
                    "only a damaged file can bring about. Delete it; the embeddings will be computed again."
                )
            self._connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", values)
            execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have rolled back already
                execute("ROLLBACK")
            self._shape = None
            raise

    def _shape_there(self) -> tuple[int, ...] | None:
        if self._shape is None:
            there = self._connection.execute("SELECT value FROM about WHERE name = 'shape'").fetchone()
            self._shape = None if there is None else _parsed_shape(there[0])
        return self._shape

    def _try(self, operation: Callable[[], R]) -> R:
        with self._lock:
            try:
                return operation()
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise self._unusable(error) from error
            self._connection.close()
            self._connection = self._opened(damaged=self._file)
            try:
                return operation()
            except sqlite3.Error as error:
                raise self._unusable(error) from error

    def _opened(self, damaged: tuple[int, int] | None = None) -> sqlite3.Connection:
        """A connection to a sound file, which is made where there is none.

        Args:
            damaged: the file that was found damaged; another process may have put a sound one in its place by now.
        """
        try:
            with _alone(self.path.parent):
                if damaged is not None and self.path.exists() and _identity(self.path) == damaged:
                    self._move_aside()
                try:
                    return self._connected()
                except sqlite3.Error as error:
                    if not _is_damage(error):
                        raise
                self._move_aside()
                return self._connected()
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            # A commit survives the end of the process at any moment; readers and a writer do not wait for each other.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            connection.execute("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
            connection.execute("INSERT OR IGNORE INTO about VALUES ('made_by', ?)", [self._made_by])
            made_by = connection.execute("SELECT value FROM about WHERE name = 'made_by'").fetchone()
            if made_by != (self._made_by,):
                raise sqlite3.DatabaseError(f"it says that it was made by {made_by}")
        except BaseException:
            connection.close()
            raise
        self._shape = None
        self._file = _identity(self.path)
        return connection

    def _move_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.stem}-{time.time_ns()}.damaged")
        # The side files first: beside a new database they would be taken for its own.
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        warnings.warn(
            f"{self.path} is damaged and was moved to {aside.name}, which can be deleted; "
            "the embeddings are computed again.",
            stacklevel=2,
        )

    def _unusable(self, error: Exception) -> RunFolderError:
        return RunFolderError(
            f"embeddings cannot be kept in {self.path} ({error}). Check that the disk has room and that the folder is "
            "yours to write, or set UNIOT_CACHE to another folder; then run the same command again: what is kept "
            "already is not lost."
        )


def check_finite(rows: Rows, name: str) -> None:
    """Refuses rows that the network called `name` should not have made, or that float16 cannot hold."""
    if not np.isfinite(rows).all():
        raise NumericalError(
            f"what {name} makes of an image is not finite, or too large for float16 (beyond 65504). "
            "Check its weights, or choose another backbone."
        )


def _checksum(key: bytes, shape: tuple[int, ...], numbers: bytes) -> bytes:
    return zlib.crc32(numbers, zlib.crc32(f"{shape}".encode(), zlib.crc32(key))).to_bytes(_CHECKSUM_BYTES, "little")


def _parsed_shape(text: object) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in json.loads(str(text)))
    except (ValueError, TypeError):
        raise sqlite3.DatabaseError(f"its rows have the shape {text!r}") from None


def _first_word(text: str) -> str:
    return text.split(maxsplit=1)[0]


def _is_damage(error: sqlite3.Error) -> bool:
    # Where the file itself is wrong the error is of this class; a full disk, a lock and the like have classes below it.
    return type(error) is sqlite3.DatabaseError


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process opens a database in this folder or moves one aside."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_lock(folder / ".lock") as lock:
        end = time.monotonic() + _SECONDS_TO_WAIT
        while True:
            try:
                lock_file(lock.fileno())
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        yield
