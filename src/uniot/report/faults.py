"""Labels that look wrong and near-duplicates, with their pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniot.data_quality.checks import (
    NearDuplicate,
    SuspectLabel,
    read_near_duplicates,
    read_suspect_labels,
)
from uniot.report.sheets import data_uri
from uniot.report.texts import ReportTexts, ShownText
from uniot.runs.thumbnails import Picture, read_thumbnails

if TYPE_CHECKING:
    from uniot.runs.pictures import Collection
    from uniot.runs.run import Run

_MOST_LABELS, _MOST_PAIRS = 40, 24
_SIDE, _MOST_BYTES = 96, 300_000


@dataclass(frozen=True)
class ShownLabel:
    """A suspect label, and the picture of its sample as a data URI, or its text."""

    line: SuspectLabel
    picture: str | None
    text: ShownText | None


@dataclass(frozen=True)
class ShownPair:
    """A pair of near-duplicates, and their pictures or texts."""

    line: NearDuplicate
    pictures: tuple[str | None, str | None]
    texts: tuple[ShownText | None, ShownText | None]


@dataclass(frozen=True)
class Faults:
    """Suspect labels and near-duplicates, the clearest first.

    Attributes:
        labels: some labels that look wrong.
        n_labels: all of them.
        n_clear: of these, how many are clear.
        pairs: some near-duplicates, those between the collections first.
        n_pairs: all of them.
    """

    labels: list[ShownLabel]
    n_labels: int
    n_clear: int
    pairs: list[ShownPair]
    n_pairs: int


def read_faults(run: Run) -> Faults | None:
    """Return suspect labels and near-duplicates of a run; None if it has neither."""
    labels = read_suspect_labels(run.files.suspect_labels)
    pairs = read_near_duplicates(run.files.near_duplicates)
    if not labels and not pairs:
        return None
    shown_labels = labels[:_MOST_LABELS]
    shown_pairs = sorted(pairs, key=lambda pair: pair.where != "both")[:_MOST_PAIRS]
    wanted: list[Picture] = [("source", line.row) for line in shown_labels]
    wanted += [picture for pair in shown_pairs for picture in _pictures(pair)]
    read, texts = read_thumbnails(run.pictures, wanted, _SIDE, _MOST_BYTES), ReportTexts(run, wanted)

    def uri(picture: Picture) -> str | None:
        return data_uri(read[picture]) if picture in read else None

    return Faults(
        [ShownLabel(line, uri(("source", line.row)), texts.of(("source", line.row))) for line in shown_labels],
        len(labels),
        sum(line.clear for line in labels),
        [_pair(pair, uri, texts) for pair in shown_pairs],
        len(pairs),
    )


def _pair(pair: NearDuplicate, uri: Callable[[Picture], str | None], texts: ReportTexts) -> ShownPair:
    first, second = _pictures(pair)
    return ShownPair(pair, (uri(first), uri(second)), (texts.of(first), texts.of(second)))


def _pictures(pair: NearDuplicate) -> tuple[Picture, Picture]:
    first: Collection = "target" if pair.where == "target" else "source"
    second: Collection = "source" if pair.where == "source" else "target"
    return (first, pair.first_row), (second, pair.second_row)
