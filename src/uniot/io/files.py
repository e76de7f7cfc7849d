"""Read untrusted files within bounds, write files atomically, and lock folders against a second writer."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from uniot.errors import DataError, RunFolderError

MOST_IMAGE_BYTES = 185_000_000
"""Largest size of an encoded image; a photograph of 200 megapixels takes a third of it."""
MOST_TEXT_BYTES = 1 << 30
"""Largest size of a text file that is read as a whole: the names of about ten million images."""
MOST_SETTINGS_BYTES = 1 << 24
"""Largest size of a file of settings or scores."""

_MOST_DIGITS = 300
_LOCK = ".lock"
# The names of `temporary_path`.
_PARTIAL = re.compile(r"\..+\.\d+-\d+\.partial", re.ASCII | re.DOTALL)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading in binary, without ever blocking. Symbolic links are followed.

    Returns:
        The open file.

    Raises:
        OSError: the path is a pipe, a device or a folder, or cannot be opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0)), "rb")
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISREG(mode):
        return file
    file.close()
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: the file is larger than `most_bytes`, and was not read; or it cannot be opened.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # A file may grow while it is read, and virtual files such as those in /proc report a size of 0.
        data = file.read(min(size, most_bytes) + 1) if size <= most_bytes else b""
        if len(data) == size + 1:
            data += file.read(most_bytes + 1 - len(data))
        if size > most_bytes or len(data) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
        return data


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, has NaN or Infinity, a number of more than 300 digits, or is nested beyond
            Python's recursion limit.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


if sys.platform == "win32":
    import msvcrt

    def _lock_file(descriptor: int) -> None:
        """Lock an open file for this process, or raise OSError."""
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock_file(descriptor: int) -> None:
        """Lock an open file for this process, or raise OSError."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_lock(path: Path) -> BinaryIO:
    """Open the file of a lock, or create it; raise OSError for a link or a pipe.

    The folder may come from somebody else: opening a link would change the file that it points to.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666), "rb+", buffering=0)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return cast(BinaryIO, file)
    file.close()
    raise OSError(errno.EINVAL, f"{path.name} is not a regular file", str(path))


@contextmanager
def file_lock(path: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Lock a file exclusively for the block; the system releases the lock if the process dies.

    Run folders, labelling pages and embedding stores all use this lock. The file is removed at the end of the block.

    Args:
        path: file of the lock; created if it does not exist.
        wait_seconds: how long to wait for a process that holds the lock.

    Raises:
        BlockingIOError: another process still holds the lock.
        OSError: the file cannot be opened.
    """
    end = time.monotonic() + wait_seconds
    while (lock := _acquired(path)) is None:
        if time.monotonic() >= end:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock", str(path))
        time.sleep(0.01)
    with lock:
        try:
            yield
        finally:
            # Windows does not remove a file that a waiting process has open.
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _acquired(path: Path) -> BinaryIO | None:
    """Return the open, locked file; None if another process holds the lock."""
    lock = _open_lock(path)
    try:
        _lock_file(lock.fileno())
        # The lock counts only if the file is still there: the process that held it removes it.
        if os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
            return lock
    except OSError:
        pass
    lock.close()
    return None


def temporary_path(path: Path) -> Path:
    """Return a path beside `path` that no other thread or process uses, to be renamed to `path` when it is complete."""
    # Two threads may write the same file: the labelling page exports while its publisher writes.
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `path` if the block succeeds, and removed if it fails.

    Raises:
        RunFolderError: the file cannot be written.
    """
    partial = temporary_path(path)
    try:
        with _folder_made(path.parent):
            try:
                yield partial
                with partial.open("rb+") as written:
                    os.fsync(written.fileno())
                partial.replace(path)
            finally:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror or error}). Check that the folder exists, that you may write "
            "to it, and that the disk has space; then run the same command again."
        ) from error


@contextmanager
def _folder_made(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; remove those created here if the block fails and leaves them empty."""
    made = list(takewhile(lambda place: not place.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for place in made:
                place.rmdir()
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def only_one_writer(folder: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Lock a folder against other writers for the block.

    Temporary files of a killed process are removed, unless the caller waits: several short writers may then use the
    folder at the same time as a process that writes other files in it. A folder that is created here and that a failure
    leaves empty is removed.

    Args:
        folder: created if it does not exist.
        wait_seconds: how long to wait for another writer.

    Raises:
        RunFolderError: the folder cannot be written, or another process is writing to it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(_folder_made(folder))
            stack.enter_context(file_lock(folder / _LOCK, wait_seconds))
        except BlockingIOError:
            raise RunFolderError(
                f"another uniot process is writing to {folder}. Wait for it, or give another folder."
            ) from None
        except OSError as error:
            raise RunFolderError(
                f"{folder} cannot be written ({error.strerror}). Give a folder that you may write to."
            ) from error
        if not wait_seconds:
            remove_partial_files(folder)
        yield


def remove_partial_files(folder: Path) -> None:
    """Remove what a killed process left of `temporary_path` in a folder and below it, but not in folders of others."""
    below = [inner for inner in folder.iterdir() if inner.is_dir() and not inner.is_symlink()]
    for inner in (folder, *(inner for inner in below if not (inner / _LOCK).exists())):
        for path in inner.glob(".*.partial"):
            if not _PARTIAL.fullmatch(path.name):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def check_exists(path: Path) -> None:
    """Raise DataError if a collection does not exist; the message suggests a similar name in the same folder."""
    if path.exists():
        return
    try:
        beside = [other.name for other in path.parent.iterdir()]
    except OSError:
        beside = []
    alike = get_close_matches(path.name, beside, n=1)
    advice = "Give a folder of images, a list file, or a file of embeddings."
    if alike:
        advice = f"Did you mean {path.with_name(alike[0])}?"
    raise DataError(f"{path} does not exist. {advice}")
