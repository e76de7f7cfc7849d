"""A name that a terminal, rich and a spreadsheet would obey, and whether what was printed shows it as text."""

from __future__ import annotations

import io
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Literal
from unittest import mock

from uniot.cli import main
from uniot.cli.screen import print_anywhere

# Sets the title and the clipboard, colours, clears the screen with the 8-bit CSI, turns the direction of the text,
# forges a line, and has markup, an emoji code and braces.
HOSTILE = (
    "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[38;5;201mpink\x9b2J\u202e\u2066\u200b\x7f\r\n\tError: forged "
    "[bold]b [link=evil]l :dog: {0} {x}"
)
SHOWN = r"\x1b]0;owned\x07"
# What rich and typer write themselves: colours, the cursor, the return to the begin of a line.
OWN_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}

Mode = Literal["pipe", "terminal"]
MODES: tuple[Mode, ...] = ("pipe", "terminal")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Printed:
    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


def run(mode: Mode, *arguments: object, columns: int = 100) -> Printed:
    """Run a command in this process, on a terminal or in a pipe."""
    out, err = (Terminal(), Terminal()) if mode == "terminal" else (io.StringIO(), io.StringIO())
    code = 0
    with (
        mock.patch.object(sys, "argv", ["uniot", *map(str, arguments)]),
        mock.patch.dict(os.environ, COLUMNS=str(columns), TERM="xterm-256color"),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Printed(code, out.getvalue(), err.getvalue())


def control_characters(text: str, mode: Mode = "pipe") -> set[str]:
    """Return what is printed and cannot be seen, apart from line breaks and what rich writes on a terminal."""
    if mode == "terminal":
        assert "\x1b[38;5;201m" not in text, "a colour that a name has chosen"
        text = OWN_CODES.sub("", text)
    return {letter for letter in text if unicodedata.category(letter) in CONTROL and letter != "\n"}


def check(printed: str, mode: Mode = "pipe", *, shows: bool = True) -> None:
    assert control_characters(printed, mode) == set()
    # A table or a box may have broken the name into several lines.
    joined = re.sub(r"[\s│]", "", OWN_CODES.sub("", printed))
    line_breaks = re.findall(r"(?:\\n\\t|\\x0a\\x09)Error:forged", joined)
    assert len(line_breaks) == joined.count("Error:forged"), "a line that a name has forged"
    if shows:
        assert SHOWN in joined
        assert "[bold]b" in joined
        assert "🐶" not in joined


@contextmanager
def printing(mode: Mode, columns: int = 100) -> Iterator[io.StringIO]:
    """Prepare standard output and error as `main` does; yield what both are written to."""
    stream = Terminal() if mode == "terminal" else io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS=str(columns), TERM="xterm-256color"),
        mock.patch.object(warnings, "formatwarning"),
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        print_anywhere()
        yield stream
