"""Text files, settings files, and counts, lists and commands in messages."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniot.errors import DataError, SettingsError
from uniot.io.files import MOST_SETTINGS_BYTES, MOST_TEXT_BYTES, open_regular, read_bounded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from uniot.config import ImageSettings, Settings

_LONGEST_NAME = 80
_WIDE_SHARE = 0.2
_MAX_LINE_BYTES = 1 << 20


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the word for one thing or for several; `many` if an s is not enough."""
    return one if number == 1 else many or f"{one}s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its word: `1 image`, `2,000 images`."""
    return f"{number:,} {plural(number, one, many)}"


def share_sentence(unknown: float, interval: tuple[float, float] | None) -> str:
    """Return the share of unknown samples and its interval, as a sentence; without one, a preference decides."""
    if interval is None:
        return f"Unknown: {100 * unknown:.0f} %, by the preference of the run."
    low, high = (round(100 * bound) for bound in interval)
    return f"Unknown: {100 * unknown:.0f} %, between {low} and {high} %."


def is_wide(interval: tuple[float, float]) -> bool:
    """Return whether an interval of the share of unknown samples calls for a person's answers."""
    return interval[1] - interval[0] > _WIDE_SHARE


def listed(names: Collection[object], most: int = 12) -> str:
    """Return the first `most` names separated by commas, followed by the number of the others.

    Names in messages are listed by this function alone: there may be thousands of them, and each may be very long.
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(_shortened(str(name)) for name in islice(names, most)) + more


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def quoted(word: object) -> str:
    """Return a word, such as a path, as a shell takes it: in quotation marks if it has blanks or special characters."""
    return subprocess.list2cmdline([str(word)]) if os.name == "nt" else shlex.quote(str(word))


def command(*words: object) -> str:
    """Return a command of uniot that can be pasted into a shell, such as `uniot report 'my run'`."""
    return " ".join(["uniot", *map(quoted, words)])


def as_utf8(text: str) -> str:
    r"""Return text that can be encoded as UTF-8; undecodable bytes of a file name are escaped, such as `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_text(path: Path, advice: str) -> str:
    """Read a text file of settings.

    Args:
        path: the file.
        advice: end of the error message if the file is not UTF-8 text.

    Returns:
        Its text, without a byte-order mark.

    Raises:
        DataError: the file cannot be read, or is not UTF-8 text.
    """
    return "".join(line for _, line in text_lines(path, advice, MOST_SETTINGS_BYTES))


def text_lines(path: Path, advice: str, most_bytes: int = MOST_TEXT_BYTES) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of a text file, with its line feed and without a byte-order mark.

    Args:
        path: the file.
        advice: end of the error message if the file is not UTF-8 text.
        most_bytes: largest size of the file.

    Raises:
        DataError: the file cannot be read or is too large, has a line without end, or is not UTF-8 text.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most_bytes:
                raise DataError(
                    f"{path} has {size} bytes; at most {most_bytes} bytes of text are read. Split the file."
                )
            number = 0
            while line := file.readline(_MAX_LINE_BYTES):
                number += 1
                # UTF-16 text often decodes as UTF-8, with NUL bytes in it.
                if b"\0" in line:
                    raise DataError(f"line {number} of {path} is not UTF-8 text. {advice}")
                if len(line) == _MAX_LINE_BYTES:
                    raise DataError(f"line {number} of {path} is longer than {_MAX_LINE_BYTES} bytes. {advice}")
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise DataError(f"line {number} of {path} is not UTF-8 text. {advice}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give a file that you may read.") from None


def read_settings(path: Path) -> tuple[Settings, ImageSettings | None]:
    """Return the settings of a TOML file.

    Args:
        path: a settings file, such as that of another run.

    Returns:
        The settings, and the image settings if the file has a table of them.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or has a setting that does not exist or is out of range.
    """
    # pydantic takes a tenth of a second, which `uniot --help` does not need.
    from uniot.config import ImageSettings, Settings

    try:
        values = _read_toml(path)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read ({error.strerror}). Give a settings file, such as that of another run."
        ) from None
    except ValueError as error:
        raise SettingsError(f"{path} is not valid TOML ({error}). Correct it or remove it.") from None
    values.pop("inputs", None)
    images = values.pop("images", None)
    return Settings.checked(**values), None if images is None else ImageSettings.checked(**images)


def read_inputs(path: Path) -> dict[str, str]:
    """Return where the data of a run came from.

    Args:
        path: the settings file of a run.

    Returns:
        The inputs by name; empty if the file has no table of them.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        inputs = _read_toml(path).get("inputs", {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read ({error}). Give a run made with `uniot adapt`.") from None
    return {str(name): str(value) for name, value in inputs.items()} if isinstance(inputs, dict) else {}


def _read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise ValueError if its text is malformed."""
    try:
        return tomllib.loads(read_bounded(path, MOST_SETTINGS_BYTES).decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def size_of(n_bytes: float) -> str:
    """Return a number of bytes in words, such as 1.5 MB."""
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"
