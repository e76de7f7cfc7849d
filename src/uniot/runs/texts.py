"""The texts and links of a run's samples, which a person sees in place of pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from uniot.errors import DataError, RunFolderError
from uniot.io.files import MOST_TEXT_BYTES, parse_json, read_bounded, write_text
from uniot.io.shown import Shown, shortened
from uniot.io.text import as_utf8
from uniot.runs.files import RunFiles

Collection = Literal["source", "target"]

# A run folder keeps at most this number of letters; longer texts of very large collections are cut further.
_MOST_LETTERS = 1 << 26
_LENGTHS = (10_000, 2_000, 400)
_LONGEST_ADDRESS = 2000


class Texts:
    """Texts or links by collection and row; row 0 of the target is the first line of predictions.csv.

    Attributes:
        are_links: whether they are addresses, which a page shows as links.
    """

    def __init__(self, texts: dict[Collection, list[str]], *, are_links: bool) -> None:
        self._texts = texts
        self.are_links = are_links

    @classmethod
    def open(cls, run: Path) -> Texts | None:
        """Return the texts of a run folder; None if the run has none.

        Raises:
            RunFolderError: the file is damaged.
        """
        path = RunFiles(run).shown
        if not path.is_file():
            return None
        try:
            content = parse_json(read_bounded(path, MOST_TEXT_BYTES))
            if not isinstance(content, dict) or content.get("kind") not in ("text", "link"):
                raise ValueError("not the texts of a run")
            texts: dict[Collection, list[str]] = {
                "source": _texts(content, "source"),
                "target": _texts(content, "target"),
            }
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read ({error}). Make the run again.") from None
        return cls(texts, are_links=content["kind"] == "link")

    @property
    def kind(self) -> Literal["text", "link"]:
        """Return what they are, in the singular; the name of their column in a table."""
        return "link" if self.are_links else "text"

    def count(self, collection: Collection) -> int:
        """Return the number of texts of a collection; 0 for a source that shows none."""
        return len(self._texts[collection])

    def of(self, collection: Collection, row: int) -> str:
        """Return the text of a sample; empty if its collection shows none.

        Raises:
            DataError: there is no such row.
        """
        texts = self._texts[collection]
        if not texts:
            return ""
        if not 0 <= row < len(texts):
            raise DataError(f"the {collection} has {len(texts)} texts, and number {row} was requested.")
        return texts[row]

    def short(self, collection: Collection, row: int, most: int) -> str:
        """Return the text of a sample in one line, cut to `most` letters."""
        return in_a_line(self.of(collection, row), most)

    def address(self, collection: Collection, row: int) -> str | None:
        """Return the address that a sample links to; None if it shows a text, or an address that is not of the web."""
        return web_address(self.of(collection, row)) if self.are_links else None

    def all(self, collection: Collection) -> list[str]:
        """Return all texts of a collection, (n_samples,)."""
        return self._texts[collection]


def write_texts(folder: Path, source: Shown | None, target: Shown) -> None:
    """Write the texts or links of both collections to a run folder."""
    given = {name: [] if shown is None else shown.values for name, shown in (("source", source), ("target", target))}
    every = [text for values in given.values() for text in values]
    longest = next(
        (one for one in _LENGTHS if sum(min(len(text), one) for text in every) <= _MOST_LETTERS), _LENGTHS[-1]
    )
    texts = {name: [as_utf8(text) for text in shortened(values, longest)] for name, values in given.items()}
    write_text(RunFiles(folder).shown, json.dumps({"kind": target.kind, **texts}, ensure_ascii=False))


def in_a_line(text: str, most: int) -> str:
    """Return a text without line breaks, cut to `most` letters."""
    # A few times as many letters, because some of them may be blanks.
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"


def web_address(text: str) -> str | None:
    """Return the address that a page may link to: http or https, with a host; None for everything else."""
    address = text.strip()
    if len(address) > _LONGEST_ADDRESS or any(letter.isspace() or not letter.isprintable() for letter in address):
        return None
    try:
        parts = urlsplit(address)
        is_of_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    return address if is_of_web else None


def _texts(content: dict[str, Any], collection: Collection) -> list[str]:
    texts = content.get(collection)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{collection} is not a list of texts")
    return shortened(texts)
