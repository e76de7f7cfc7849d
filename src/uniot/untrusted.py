"""Read files that somebody else may have made: regular files only, never more than expected, and JSON without traps."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

MOST_IMAGE_BYTES = 1 << 28
"""Most bytes of an encoded image; a photograph of 200 megapixels takes a quarter of it."""
MOST_TEXT_BYTES = 1 << 30
"""Most bytes of a text file that is read as a whole: the names of some ten million images."""
MOST_SETTINGS_BYTES = 1 << 24
"""Most bytes of a file of settings or scores."""

_MOST_DIGITS = 300


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading in binary; a pipe, a device or a folder is an OSError, and opening one never blocks.

    Symbolic links are followed.
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
    """Return the bytes of a regular file; one that is larger than `most_bytes` is an OSError and is not read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # A file may grow while it is read, and those of the system itself claim to be empty.
        data = file.read(min(size, most_bytes) + 1) if size <= most_bytes else b""
        if len(data) == size + 1:
            data += file.read(most_bytes + 1 - len(data))
        if size > most_bytes or len(data) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
        return data


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; whatever is wrong with it is a ValueError.

    Numbers that JSON does not have (NaN, Infinity), numbers of more than 300 digits and nesting beyond Python's limit
    are refused.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)
