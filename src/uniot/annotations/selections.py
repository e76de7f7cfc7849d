"""Selections of target samples as text, which reports, addresses of pages and the command line have in common.

`doubtful` is all samples that no person decided about, the most doubtful first. `like-12` is the samples most similar
to row 12. `rows-1a2b3c4d:3-9,15` is single rows of the run whose digest begins with 1a2b3c4d.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from uniot.errors import DataError

MOST_SELECTED = 5000
MOST_LETTERS = 60_000
"""Letters of a selection; 5000 rows take at most as many."""
DIGEST_LETTERS = 8

_ROW = "(?:0|[1-9][0-9]{0,8})"
_RANGE = f"{_ROW}(?:-{_ROW})?"
_ROWS = re.compile(f"rows-([0-9a-f]{{{DIGEST_LETTERS}}}):({_RANGE}(?:,{_RANGE})*)", re.ASCII)
_LIKE = re.compile(f"like-({_ROW})", re.ASCII)


@dataclass(frozen=True)
class Selection:
    """A selection of target samples.

    Attributes:
        kind: how the samples are chosen.
        rows: the rows of `rows`, ascending, or the row of `like`; empty for `doubtful`.
    """

    kind: Literal["doubtful", "like", "rows"]
    rows: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, digest: str, n_samples: int) -> Selection:
        """Return the selection that a text describes.

        Args:
            text: such as `doubtful`, `like-12` or `rows-1a2b3c4d:3-9,15`.
            digest: of the run that the rows belong to.
            n_samples: number of target samples of the run.

        Raises:
            DataError: the text is no selection, belongs to another run, or has too many or missing rows.
        """
        if text == "doubtful":
            return cls("doubtful")
        like, single = _LIKE.fullmatch(text), _ROWS.fullmatch(text)
        if like is not None:
            found = cls("like", (int(like[1]),))
        elif single is not None:
            if single[1] != digest[:DIGEST_LETTERS]:
                raise DataError(
                    "this selection belongs to another run, or to an earlier one in this folder. Make the report again "
                    "with `uniot report`, and select there."
                )
            found = cls("rows", _rows(single[2]))
        else:
            raise DataError(f"{text[:40]!r} is no selection of samples. Give doubtful, like-12, or rows of a report.")
        if found.rows[-1] >= n_samples:
            raise DataError(f"there is no row {found.rows[-1]}: this run has rows 0 to {n_samples - 1}.")
        return found


def selection_text(rows: Iterable[int], digest: str) -> str:
    """Return the text of a selection of single rows, at least one, of the run with a digest."""
    return f"rows-{digest[:DIGEST_LETTERS]}:{rows_text(rows)}"


def rows_text(rows: Iterable[int]) -> str:
    """Return rows in ascending order as text, such as 3-9,15."""
    parts: list[list[int]] = []
    for row in sorted(set(rows)):
        if parts and row == parts[-1][1] + 1:
            parts[-1][1] = row
        else:
            parts.append([row, row])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _rows(text: str) -> tuple[int, ...]:
    rows: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, end = int(first), int(last or first)
        # Checked before the rows are counted out: a range may name a billion.
        if end < start or len(rows) + end - start >= MOST_SELECTED:
            raise DataError(
                f"the selection has the rows {part}. Give ranges such as 3-9, and at most {MOST_SELECTED:,} rows."
            )
        rows.update(range(start, end + 1))
    return tuple(sorted(rows))
