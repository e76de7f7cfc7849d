"""What was found in the collections, as tables of a run folder."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from uniot.data.text import as_utf8
from uniot.errors import RunFolderError
from uniot.run_folder import write_table
from uniot.untrusted import MOST_TEXT_BYTES, read_bounded

SUSPECT_LABELS, NEAR_DUPLICATES = "suspect_labels.csv", "near_duplicates.csv"

_WHOLE, _FRACTION = re.compile(r"\d{1,15}", re.ASCII), re.compile(r"-?\d\.\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class SuspectLabel:
    """A line of suspect_labels.csv: a source sample, its row in the source, and what its label should perhaps be."""

    sample: str
    row: int
    label: str
    suggested: str
    score: float
    clear: bool


@dataclass(frozen=True)
class NearDuplicate:
    """A line of near_duplicates.csv.

    Attributes:
        where: `source`, `target`, or `both` for a source sample and a target sample.
        first: name of one sample.
        first_row: its row in its own collection.
        first_label: its label; of a target sample, what the run answers.
        second: name of the other, in the target where the pair is in both.
        second_row: likewise.
        second_label: likewise.
        similarity: cosine of their embeddings.
    """

    where: str
    first: str
    first_row: int
    first_label: str
    second: str
    second_row: int
    second_label: str
    similarity: float


def write_suspect_labels(path: Path, lines: Sequence[SuspectLabel]) -> None:
    """Write a line per label; without any, remove the file."""
    columns = ("sample", "row", "label", "suggested", "score", "clear")
    rows = (
        (one.sample, one.row, one.label, one.suggested, f"{one.score:.4f}", str(one.clear).lower()) for one in lines
    )
    write_table(path, columns, [[as_utf8(str(cell)) for cell in row] for row in rows])


def read_suspect_labels(path: Path) -> list[SuspectLabel]:
    """Read what `write_suspect_labels` wrote; nothing if there is no such file."""
    rows = _read(path, 6, whole=(1,), fractions=(4,))
    return [
        SuspectLabel(sample, int(row), label, suggested, float(score), clear == "true")
        for sample, row, label, suggested, score, clear in rows
    ]


def write_near_duplicates(path: Path, pairs: Sequence[NearDuplicate]) -> None:
    """Write a line per pair; without any, remove the file."""
    columns = ("where", "first", "first_row", "first_label", "second", "second_row", "second_label", "similarity")
    rows = (
        (
            pair.where,
            pair.first,
            pair.first_row,
            pair.first_label,
            pair.second,
            pair.second_row,
            pair.second_label,
            f"{pair.similarity:.6f}",
        )
        for pair in pairs
    )
    write_table(path, columns, [[as_utf8(str(cell)) for cell in row] for row in rows])


def read_near_duplicates(path: Path) -> list[NearDuplicate]:
    """Read what `write_near_duplicates` wrote; nothing if there is no such file."""
    rows = _read(path, 8, whole=(2, 5), fractions=(7,))
    return [
        NearDuplicate(where, first, int(first_row), label, second, int(second_row), other_label, float(similarity))
        for where, first, first_row, label, second, second_row, other_label, similarity in rows
    ]


def _read(path: Path, n_columns: int, whole: Iterable[int], fractions: Iterable[int]) -> list[list[str]]:
    """Return the rows of a table without its header; cells of the named columns are numbers of either kind."""
    forms = dict.fromkeys(whole, _WHOLE) | dict.fromkeys(fractions, _FRACTION)
    if not path.exists():
        return []
    try:
        text = read_bounded(path, MOST_TEXT_BYTES).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
        for row in rows:
            if len(row) != n_columns:
                raise ValueError(f"a line has {len(row)} cells, not {n_columns}")
            for place, form in forms.items():
                if not form.fullmatch(row[place]):
                    raise ValueError(f"{row[place][:20]!r} is no number")
    except (OSError, ValueError, csv.Error) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Remove it, or make the run again.") from None
    return rows
