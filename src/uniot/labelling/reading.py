"""What a person reads of samples: their texts and links, in whole or cut, and the samples that contain some words."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.runs.texts import Collection

MOST_SEARCH_LETTERS = 200
# Letters of a text: in a tile of the gallery, as an example of a class, and as an example in a list.
IN_TILE, IN_EXAMPLE, IN_LIST = 320, 200, 60
_MOST_WORDS = 12
# Letters before the first word that was searched for, in a text that is cut around it.
_BEFORE_FOUND = 60


class SampleTexts:
    """Texts of the samples, and a search in texts and names.

    Args:
        target: samples to label.
    """

    def __init__(self, target: TargetSamples) -> None:
        self._target, self._texts = target, target.texts

    def shown(
        self, collection: Collection, row: int, most: int | None = None, words: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the text of a sample as JSON values, `text`, `cut` and `href`; empty if the run has no texts.

        Args:
            collection: of the sample.
            row: of the sample.
            most: letters from which on the text is cut; None for the whole text.
            words: that were searched for, as `searched` returns them; a text that is cut begins shortly before them.
        """
        if self._texts is None or not self._texts.count(collection):
            return {}
        text, href = self._texts.of(collection, row), self._texts.address(collection, row)
        if most is None or len(text) <= most:
            return {"text": text, "cut": False, "href": href}
        start = _start(text, most, words)
        part = text[start : start + most]
        ends = "" if start + most >= len(text) else "…"
        return {"text": f"{'…' if start else ''}{part}{ends}", "cut": True, "href": href}

    def example(self, collection: Collection, row: int) -> str:
        """Return the beginning of a text in one line, for lists; empty if the run has no texts, or links."""
        if self._texts is None or self._texts.are_links or row < 0 or not self._texts.count(collection):
            return ""
        return self._texts.short(collection, row, IN_LIST)

    def matching(self, words: Sequence[str]) -> np.ndarray:
        """Return whether the text or name of each target sample contains all words, (n_samples,), bool.

        Args:
            words: as `searched` returns them.
        """
        found = (all(word in text for word in words) for text in self._searchable)
        return np.fromiter(found, dtype=bool, count=len(self._searchable))

    @cached_property
    def _searchable(self) -> list[str]:
        names = self._target.names
        if self._texts is None:
            return [_plain(name) for name in names]
        return [_plain(f"{name}\n{text}") for name, text in zip(names, self._texts.all("target"), strict=True)]


def searched(text: str) -> tuple[str, ...]:
    """Return the words that a person searches for, in lower case and without accents."""
    return tuple(dict.fromkeys(_plain(text).split()))[:_MOST_WORDS]


def _start(text: str, most: int, words: Sequence[str]) -> int:
    """Return where a text that is cut begins: at its beginning, or shortly before the first word that was found."""
    lower = text.casefold()
    places = [place for place in (lower.find(word) for word in words) if place >= 0]
    first = min(places, default=0)
    return 0 if first + _BEFORE_FOUND < most else min(first - _BEFORE_FOUND, len(text) - most)


def _plain(text: str) -> str:
    """Return text in lower case and without accents."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKD", text.casefold()).translate(_marks())


@cache
def _marks() -> dict[int, None]:
    return {code: None for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code))}
