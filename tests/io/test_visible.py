"""What cannot be seen is escaped, and what people write is not."""

from __future__ import annotations

import io
import sys
import unicodedata
from contextlib import redirect_stdout

import pytest
import typer
from tqdm import tqdm

from uniot.io.visible import VisibleStream, escape_output, visible, visible_text

from hostile_names import Terminal  # isort: skip


@pytest.mark.parametrize(
    ("letter", "shown"),
    [
        ("\x1b", r"\x1b"),
        ("\x07", r"\x07"),
        ("\r", r"\r"),
        ("\x7f", r"\x7f"),
        ("\x80", r"\x80"),
        ("\x9b", r"\x9b"),
        ("\x9f", r"\x9f"),
        ("\xad", r"\xad"),
        ("\u200b", r"\u200b"),
        ("\u200f", r"\u200f"),
        ("\u2028", r"\u2028"),
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u2069", r"\u2069"),
        ("\ufeff", r"\ufeff"),
        ("\ud800", r"\ud800"),
        ("\udcff", r"\udcff"),
        ("\U000e0061", r"\U000e0061"),
    ],
)
def test_what_cannot_be_seen_is_escaped(letter, shown):
    assert visible(f"a{letter}b") == visible_text(f"a{letter}b") == f"a{shown}b"


def test_line_breaks_and_tabs_are_escaped_in_a_line_and_kept_in_text():
    assert visible("a\n\tb") == r"a\n\tb"
    assert visible_text("a\n\tb") == "a\n\tb"


def test_every_control_character_is_escaped():
    direction = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for letter in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(letter) in direction:
            assert visible(letter).isascii()
            assert visible(letter).isprintable()


def test_letters_of_all_languages_and_emoji_stay():
    # Zero-width joiners of Persian and of emoji; combining letters; a variation selector.
    names = ["größe→狗", "می\u200cخواهم", "👩\u200d🔬", "e\u0301", "❤\ufe0f", "שלום", "a b"]
    assert [visible(name) for name in names] == names


def test_bytes_cannot_be_written_past_the_filter():
    stream = VisibleStream(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert not hasattr(stream, "buffer")
    assert not hasattr(stream, "detach")
    assert (stream.encoding, stream.isatty(), stream.writable()) == ("ascii", False, True)
    with redirect_stdout(stream):
        with pytest.raises(TypeError):
            typer.echo(b"\x1b]0;t\x07")  # typer looks for the binary stream below
        typer.echo("\x1b]0;t\x07")
    stream.flush()
    assert b"\x1b" not in stream.rich_proxied_file.buffer.getvalue()


def test_bars_of_libraries_still_redraw_their_line():
    below = Terminal()
    stream = VisibleStream(below)
    for _ in tqdm(range(3), file=stream, desc="\x1b]0;x\x07", mininterval=0):
        pass
    assert below.getvalue().startswith("\r\\x1b]0;x\\x07:   0%|")
    assert below.getvalue().count("\r") >= 3
    stream.write("\x1b[A")
    assert below.getvalue().endswith("\x1b[A")


def test_stream_is_prepared_once():
    stream = escape_output(io.StringIO())
    assert escape_output(stream) is stream
    stream.writelines(["\x1b", "\n"])
    assert stream.getvalue() == "\\x1b\n"
