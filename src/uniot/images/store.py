"""Store embeddings of images on disk between runs, as float16 rows.

The key of a row is the SHA-256 of the file's bytes: a renamed or moved file is found, a changed one is not. There is a
SQLite database per network, cut and preparation. To clear the store, delete its folder while no run is active.
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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from uniot.errors import NumericalError, RunFolderError
from uniot.io.files import file_lock

Rows = NDArray[np.float16]
R = TypeVar("R")

_FORMAT = "uniot-embeddings-1"
_SECONDS_TO_WAIT = 60.0
# SQLite's default of 4 kB holds one embedding of 1280 numbers and leaves a third of the page empty.
_PAGE_BYTES = 16384
_KEYS_PER_QUERY = 500
_CHECKSUM_BYTES = 4


def default_folder() -> Path:
    """Return the default folder of the store: below `$UNIOT_CACHE`, or else below the user's cache folder."""
    chosen = os.environ.get("UNIOT_CACHE")
    return (Path(chosen).expanduser() if chosen else _user_cache() / "uniot") / "embeddings"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class EmbeddingStore:
    """A store of embeddings: a folder of databases, one per network, cut and preparation.

    Several processes of one machine may use it at the same time. On several machines set `$UNIOT_CACHE` to a folder
    of its own on each.

    Args:
        folder: the folder; `default_folder()` if None.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder

    def table(self, made_by: str) -> EmbeddingTable:
        """Open the table of a network.

        Args:
            made_by: key of network, weights, cut and preparation; its first word becomes part of the file name.

        Returns:
            The table, to be closed or used as a context manager.
        """
        word = re.sub(r"[^A-Za-z0-9_.-]", "_", made_by.split(maxsplit=1)[0])[:60]
        digest = hashlib.sha256(f"{_FORMAT} {made_by}".encode()).hexdigest()
        return EmbeddingTable(self.folder / f"{word}-{digest[:20]}.sqlite", made_by)

    def size(self) -> int:
        """Return the size on disk in bytes."""
        total = 0
        for file in self.folder.glob("*"):
            with suppress(OSError):  # SQLite may remove its side files at any time
                total += file.stat().st_size
        return total


class EmbeddingTable:
    """Rows by key, all of one shape; a row that is damaged on disk counts as absent.

    Rows given to `put_many` survive a kill of the process. A table is thread-safe.
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __len__(self) -> int:
        return self._try(lambda: int(self._connection.execute("SELECT count(*) FROM rows").fetchone()[0]))

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Rows]:
        """Return the stored rows by key; missing keys are left out."""
        return self._try(lambda: self._select(keys))

    def put_many(self, keys: Sequence[bytes], rows: Rows) -> None:
        """Store one row per key; all of them or, if it fails, none.

        Args:
            keys: digests of the files, (n_rows,).
            rows: float16 rows, (n_rows, ...).

        Raises:
            NumericalError: a number is not finite, or was beyond 65504, the range of float16.
            RunFolderError: the file cannot be written, or holds rows of another shape.
        """
        as_float16(rows, self._made_by.split(maxsplit=1)[0])
        self._try(lambda: self._insert(keys, rows))

    def _select(self, keys: Sequence[bytes]) -> dict[bytes, Rows]:
        found: dict[bytes, Rows] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            part = keys[start : start + _KEYS_PER_QUERY]
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
                    f"{self.path} holds rows of shape {self._shape_there()}, and rows of shape {shape} came: the file "
                    "is damaged. Delete it; the embeddings will be computed again."
                )
            self._connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", values)
            execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors roll back by themselves
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
        """Return a connection to an intact file, which is created if necessary.

        Args:
            damaged: identity of a damaged file, which another process may have replaced by now.
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
            # With a write-ahead log a commit survives a kill, and readers do not wait for the writer.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            connection.execute("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
            connection.execute("INSERT OR IGNORE INTO about VALUES ('made_by', ?)", [self._made_by])
            made_by = connection.execute("SELECT value FROM about WHERE name = 'made_by'").fetchone()
            if made_by != (self._made_by,):
                raise sqlite3.DatabaseError(f"it belongs to {made_by}")
        except BaseException:
            connection.close()
            raise
        self._shape = None
        self._file = _identity(self.path)
        return connection

    def _move_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.stem}-{time.time_ns()}.damaged")
        # The side files first: SQLite would apply them to a new database.
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
            f"embeddings cannot be stored in {self.path} ({error}). Check that the disk has room and that you may "
            "write to the folder, or set UNIOT_CACHE to another folder; then run the same command again. Stored "
            "embeddings are kept."
        )


def as_float16(outputs: NDArray[np.floating[Any]], name: str, *, of: str = "an image") -> Rows:
    """Return the outputs of the network `name` in float16; raise a NumericalError if they are not finite in it."""
    with np.errstate(over="ignore"):
        rows = outputs.astype(np.float16, copy=False)
    if not np.isfinite(rows).all():
        raise NumericalError(
            f"an output of {name} for {of} is not finite, or too large for float16 (beyond 65504). "
            "Check its weights, or choose another backbone."
        )
    return rows


def _checksum(key: bytes, shape: tuple[int, ...], numbers: bytes) -> bytes:
    return zlib.crc32(numbers, zlib.crc32(f"{shape}".encode(), zlib.crc32(key))).to_bytes(_CHECKSUM_BYTES, "little")


def _parsed_shape(text: object) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in json.loads(str(text)))
    except (ValueError, TypeError):
        raise sqlite3.DatabaseError(f"its rows have the shape {text!r}") from None


def _is_damage(error: sqlite3.Error) -> bool:
    # A damaged file raises exactly this class; a full disk, a lock and the like raise subclasses.
    return type(error) is sqlite3.DatabaseError


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder for the block, so that only one process at a time opens or moves a database in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / ".lock", _SECONDS_TO_WAIT):
        yield
