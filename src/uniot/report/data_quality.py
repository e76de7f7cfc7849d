"""Source labels that look wrong, and near-duplicates, as the run folder lists them."""

from __future__ import annotations

from dataclasses import dataclass

from uniot.data_quality.tables import (
    NEAR_DUPLICATES,
    SUSPECT_LABELS,
    NearDuplicate,
    SuspectLabel,
    read_near_duplicates,
    read_suspect_labels,
)
from uniot.pictures import Collection
from uniot.report.finished_run import FinishedRun
from uniot.report.thumbnails import Picture, data_uri, read_thumbnails

_MOST_LABELS, _MOST_PAIRS = 40, 24
_SIDE, _MOST_BYTES = 96, 300_000


@dataclass(frozen=True)
class ShownLabel:
    """A label that looks wrong, and the picture of its sample, a data URI."""

    line: SuspectLabel
    picture: str | None


@dataclass(frozen=True)
class ShownPair:
    """Two samples that are nearly the same, and their pictures."""

    line: NearDuplicate
    pictures: tuple[str | None, str | None]


@dataclass(frozen=True)
class Faults:
    """What is listed, the clearest first.

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


def read_faults(run: FinishedRun) -> Faults | None:
    """Read both tables of a run; None if it has neither."""
    labels = read_suspect_labels(run.folder / SUSPECT_LABELS)
    pairs = read_near_duplicates(run.folder / NEAR_DUPLICATES)
    if not labels and not pairs:
        return None
    shown_labels = labels[:_MOST_LABELS]
    shown_pairs = sorted(pairs, key=lambda pair: pair.where != "both")[:_MOST_PAIRS]
    wanted: list[Picture] = [("source", line.row) for line in shown_labels]
    wanted += [picture for pair in shown_pairs for picture in _pictures(pair)]
    read = read_thumbnails(run.pictures, wanted, _SIDE, _MOST_BYTES)

    def uri(picture: Picture) -> str | None:
        return data_uri(read[picture]) if picture in read else None

    return Faults(
        [ShownLabel(line, uri(("source", line.row))) for line in shown_labels],
        len(labels),
        sum(line.clear for line in labels),
        [ShownPair(pair, (uri(_pictures(pair)[0]), uri(_pictures(pair)[1]))) for pair in shown_pairs],
        len(pairs),
    )


def _pictures(pair: NearDuplicate) -> tuple[Picture, Picture]:
    first: Collection = "target" if pair.where == "target" else "source"
    second: Collection = "source" if pair.where == "source" else "target"
    return (first, pair.first_row), (second, pair.second_row)
