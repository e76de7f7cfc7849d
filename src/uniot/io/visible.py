r"""Names as they are printed: control characters of class names and file names are shown as text, such as `\x1b`.

A terminal obeys them: it would change colours, clear the screen, set its title or fill the clipboard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

# Joiners are left out: Persian, Indic scripts and emoji need them.
HIDDEN = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e00ff"
)
"""Ranges of what cannot be seen, for a regular expression: control characters, soft hyphen, separators of lines and
paragraphs, what sets the direction of text, invisible spaces and tags, and halves of surrogate pairs."""
_IN_A_LINE = re.compile(f"[{HIDDEN}]")
_IN_TEXT = re.compile(f"(?![\t\n])[{HIDDEN}]")
# tqdm, the progress bar of many libraries, writes a line anew after a carriage return, and moves between its bars.
_OF_PROGRESS = re.compile(r"\r(?=[^\n]*\Z)|(?:\x1b\[A)+\Z")


def visible(line: str) -> str:
    r"""Return a line in which all that cannot be seen, line breaks and tabs included, is escaped, such as `\n`."""
    return _IN_A_LINE.sub(_escaped, line)


def visible_text(text: str) -> str:
    r"""Return text in which all that cannot be seen, except for line breaks and tabs, is escaped, such as `\x1b`."""
    return _IN_TEXT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class VisibleStream:
    """A text stream, such as standard output, that escapes what cannot be seen; line breaks and tabs are kept.

    Progress bars of libraries still redraw their line. There is no `buffer`: bytes would not be escaped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def rich_proxied_file(self) -> TextIO:
        """The stream below, to which consoles of rich write: they escape names and keep their own colours."""
        stream = self._stream
        # While rich shows a progress bar, its own stream lies in between.
        while (below := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = below
        return stream

    def write(self, text: str) -> int:
        """Write text, escaped; return its length."""
        progress = _OF_PROGRESS.match(text)
        start = 0 if progress is None else progress.end()
        self._stream.write(text[:start] + visible_text(text[start:]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "detach"):
            raise AttributeError(name)
        return getattr(self._stream, name)


def escape_output(stream: TextIO) -> TextIO:
    """Return a stream that escapes what cannot be seen; the same one if it does so already."""
    return stream if isinstance(stream, VisibleStream) else cast(TextIO, VisibleStream(stream))
