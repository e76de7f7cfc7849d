"""Galleries as cards of the page: samples with their names, numbers and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from uniot.report.categories import Category
from uniot.report.finished_run import FinishedRun
from uniot.report.galleries import Galleries, Gallery
from uniot.report.thumbnails import Picture, data_uri, fitting_side, read_thumbnails

# With plotly's five megabytes and four thirds for base64, the page stays below 15 MB.
_MOST_BYTES = 3_600_000
# Longest side in pixels: a thumbnail enlarges, so it is as large as there is room for.
_SIDES = (384, 256, 192, 128)
_MOST_LISTED = 200


@dataclass(frozen=True)
class Sample:
    """A sample of the target in a gallery; without a picture, a data URI, its name has to do."""

    row: int
    name: str
    confidence: float
    picture: str | None


@dataclass(frozen=True)
class Card:
    """A category with some of its samples, and the picture of a labelled one if it is a source class.

    Attributes:
        category: what the card is of.
        typical: samples nearest to the centre.
        doubtful: the least sure of the others.
        labelled: picture of a source sample, a data URI.
        nearest: names of the source classes that a group is most similar to, with the mean similarity.
    """

    category: Category
    typical: list[Sample]
    doubtful: list[Sample]
    labelled: str | None
    nearest: list[tuple[str, float]]

    @property
    def count(self) -> int:
        """All members of the category."""
        return len(self.category.members)


@dataclass(frozen=True)
class Cards:
    """The largest categories of one kind; of the others, some names and how many there are."""

    shown: list[Card]
    left_out: list[Category]
    n_left_out: int

    @property
    def rows(self) -> list[int]:
        """Rows of the target that are on a card."""
        return [sample.row for card in self.shown for sample in (*card.typical, *card.doubtful)]


def make_cards(run: FinishedRun, *galleries: Galleries) -> list[Cards]:
    """Return the cards of each kind of gallery; they share the room for pictures."""
    wanted = _wanted([gallery for some in galleries for gallery in some.shown])
    side = fitting_side(run.pictures, wanted, _SIDES, _MOST_BYTES)
    pictures = read_thumbnails(run.pictures, wanted, side, _MOST_BYTES)
    return [
        Cards(
            [_card(run, gallery, pictures) for gallery in some.shown],
            some.left_out[:_MOST_LISTED],
            len(some.left_out),
        )
        for some in galleries
    ]


def _wanted(shown: list[Gallery]) -> list[Picture]:
    """Pictures of the galleries, the most important first."""
    wanted: list[Picture] = [("source", gallery.source_row) for gallery in shown if gallery.source_row is not None]
    wanted += [("target", int(row)) for gallery in shown for row in gallery.typical]
    return wanted + [("target", int(row)) for gallery in shown for row in gallery.doubtful]


def _card(run: FinishedRun, gallery: Gallery, pictures: Mapping[Picture, bytes]) -> Card:
    category = gallery.category
    confidence = run.answers.confidence if category.known else run.answers.group_confidence

    def uri(picture: Picture) -> str | None:
        return data_uri(pictures[picture]) if picture in pictures else None

    def samples(rows: Iterable[int]) -> list[Sample]:
        return [Sample(row, run.names[row], float(confidence[row]), uri(("target", row))) for row in rows]

    return Card(
        category=category,
        typical=samples(gallery.typical.tolist()),
        doubtful=samples(gallery.doubtful.tolist()),
        labelled=None if gallery.source_row is None else uri(("source", gallery.source_row)),
        nearest=[(run.class_names[index], similarity) for index, similarity in gallery.nearest_classes],
    )
