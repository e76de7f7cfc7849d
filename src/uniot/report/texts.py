"""The texts of the report: cut so that all that are shown fit into a number of bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniot.runs.thumbnails import Picture

if TYPE_CHECKING:
    from uniot.runs.run import Run
    from uniot.runs.texts import Texts

# Letters of a text, the first at which all texts fit; a link that is cut is no link.
_LENGTHS = (400, 240, 140, 80, 40)
# Pictures take most of the page; without them there is room for texts.
_MOST_BYTES, _MOST_BYTES_WITH_PICTURES = 3_000_000, 600_000
# An angle bracket takes six bytes in the data of a script, and up to five in HTML.
_ESCAPED_BYTES = 6


@dataclass(frozen=True)
class ShownText:
    """A text on the page, and the address that it links to if it is one."""

    text: str
    href: str | None


class ReportTexts:
    """Texts and links of samples, in one line and cut to the same length.

    Args:
        run: the run; without texts, no sample has one.
        wanted: samples whose texts may be on the page.
    """

    def __init__(self, run: Run, wanted: Iterable[Picture]) -> None:
        self._texts: Texts | None = run.texts
        room = _MOST_BYTES if run.pictures is None else _MOST_BYTES_WITH_PICTURES
        samples = list(dict.fromkeys(wanted)) if self._texts is not None else []
        self._length = next((one for one in _LENGTHS[:-1] if self._size(samples, one, room) <= room), _LENGTHS[-1])

    def of(self, sample: Picture) -> ShownText | None:
        """Return the text of a sample; None if it has none."""
        collection, row = sample
        if self._texts is None or not 0 <= row < self._texts.count(collection):
            return None
        text = self._texts.of(collection, row)
        return ShownText(self._texts.short(collection, row, self._length), self._address(text, sample))

    def _address(self, text: str, sample: Picture) -> str | None:
        return None if self._texts is None or len(text) > self._length else self._texts.address(*sample)

    def _size(self, samples: list[Picture], length: int, most: int) -> int:
        """Return how many bytes the texts take on the page; any larger number if they take more than `most`."""
        size = 0
        self._length = length
        for sample in samples:
            shown = self.of(sample)
            if shown is not None:
                escaped = sum(map(shown.text.count, "<>&\"'\\"))
                size += len(shown.text.encode("utf-8", "replace")) + (_ESCAPED_BYTES - 1) * escaped
            if size > most:
                break
        return size
