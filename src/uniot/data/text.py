"""Text that goes into files and comes out of them: always UTF-8."""

from __future__ import annotations

from pathlib import Path

from uniot.errors import DataError
from uniot.untrusted import MOST_TEXT_BYTES, read_bounded


def as_utf8(text: str) -> str:
    r"""Text that UTF-8 can hold; a byte of a file name that is no text is written out, for instance as `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_text(path: Path, advice: str) -> str:
    """What a text file says, without a byte-order mark.

    Args:
        path: the file.
        advice: what to do where it is no text in UTF-8, for the message.
    """
    try:
        data = read_bounded(path, MOST_TEXT_BYTES)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give one that is yours to read.") from None
    try:
        text = data.decode("utf-8-sig")
        wrong_at = data.find(b"\0")  # UTF-16 often passes for UTF-8 but for these
    except UnicodeDecodeError as error:
        text, wrong_at = "", error.start
    if wrong_at >= 0:
        line = data.count(b"\n", 0, wrong_at) + 1
        raise DataError(f"line {line} of {path} is not UTF-8 text. {advice}")
    return text
