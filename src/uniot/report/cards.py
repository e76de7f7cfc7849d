"""The cards of the page: categories with the pictures of some samples, within a limit of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from uniot.io.text import as_utf8
from uniot.report.galleries import Galleries, Gallery
from uniot.report.sheets import data_uri
from uniot.report.texts import ReportTexts, ShownText
from uniot.runs.group_descriptions import GroupDescription, overlap
from uniot.runs.thumbnails import Picture, fitting_side, read_thumbnails

if TYPE_CHECKING:
    from uniot.report.categories import Category
    from uniot.runs.run import Run

# With plotly's five megabytes and four thirds for base64, the page stays below 15 MB.
_MOST_BYTES = 3_600_000
# Longest side in pixels: a thumbnail enlarges, so it is as large as there is room for.
_SIDES = (384, 256, 192, 128)
_MOST_LISTED = 200


@dataclass(frozen=True)
class Sample:
    """A target sample on a card, with its picture as a data URI and its text, if there are any."""

    row: int
    name: str
    confidence: float
    picture: str | None
    text: ShownText | None


@dataclass(frozen=True)
class Card:
    """A category with some of its samples, and the picture of a labelled one if it is a source class.

    Attributes:
        category: what the card is of.
        typical: samples nearest to the centre.
        doubtful: those with the lowest confidence of all that are doubtful.
        n_doubtful: number of all that are doubtful.
        doubtful_below: confidence below which a sample is doubtful.
        labelled: picture of a source sample, a data URI.
        labelled_text: text of a source sample.
        described: typical words or marker genes of a group, and names that are suggested for it.
        nearest: names of the source classes that a group is most similar to, with the mean similarity.
    """

    category: Category
    typical: list[Sample]
    doubtful: list[Sample]
    n_doubtful: int
    doubtful_below: float
    labelled: str | None
    labelled_text: ShownText | None
    described: GroupDescription
    nearest: list[tuple[str, float]]

    @property
    def count(self) -> int:
        """Return the number of members of the category."""
        return len(self.category.members)

    @property
    def n_typical(self) -> int:
        """Return the number of members that are not doubtful."""
        return self.count - self.n_doubtful


@dataclass(frozen=True)
class Cards:
    """The cards of the largest categories of one kind, and the names and number of the others."""

    shown: list[Card]
    left_out: list[Category]
    n_left_out: int

    @property
    def rows(self) -> list[int]:
        """Return the target rows that are on a card."""
        return [sample.row for card in self.shown for sample in (*card.typical, *card.doubtful)]


def make_cards(run: Run, texts: ReportTexts, *galleries: Galleries) -> list[Cards]:
    """Return the cards of each kind of gallery; they share the room for pictures."""
    wanted = samples_of_cards(*galleries)
    side = fitting_side(run.pictures, wanted, _SIDES, _MOST_BYTES)
    pictures = read_thumbnails(run.pictures, wanted, side, _MOST_BYTES)
    return [
        Cards(
            [_card(run, gallery, pictures, texts) for gallery in some.shown],
            some.left_out[:_MOST_LISTED],
            len(some.left_out),
        )
        for some in galleries
    ]


def samples_of_cards(*galleries: Galleries) -> list[Picture]:
    """Return the samples of the galleries, the most important first."""
    shown = [gallery for some in galleries for gallery in some.shown]
    wanted: list[Picture] = [("source", gallery.source_row) for gallery in shown if gallery.source_row is not None]
    wanted += [("target", int(row)) for gallery in shown for row in gallery.typical]
    return wanted + [("target", int(row)) for gallery in shown for row in gallery.doubtful]


def _described(run: Run, category: Category) -> GroupDescription:
    """Return what the run says about a group that people have hardly changed; nothing about any other category."""
    if run.group_descriptions is None or not category.is_group:
        return GroupDescription()
    before, now = run.saved_model.target, run.model.target
    groups, groups_now = (np.where(target.known, -1, target.group) for target in (before, now))
    alike = overlap(groups, groups_now, category.index)
    found = run.group_descriptions.fitting(category.index, *alike) or GroupDescription()
    names = {category.name, as_utf8(str(run.model.unknown))}
    return replace(found, suggestions=tuple(name for name in found.suggestions if name not in names))


def _card(run: Run, gallery: Gallery, pictures: Mapping[Picture, bytes], texts: ReportTexts) -> Card:
    category = gallery.category
    target, names = run.model.target, run.predictions.names
    confidence = target.group_confidence if category.is_group else target.confidence

    def uri(picture: Picture) -> str | None:
        return data_uri(pictures[picture]) if picture in pictures else None

    def samples(rows: Iterable[int]) -> list[Sample]:
        return [
            Sample(row, names[row], float(confidence[row]), uri(("target", row)), texts.of(("target", row)))
            for row in rows
        ]

    return Card(
        category=category,
        typical=samples(gallery.typical.tolist()),
        doubtful=samples(gallery.doubtful.tolist()),
        n_doubtful=gallery.n_doubtful,
        doubtful_below=gallery.doubtful_below,
        labelled=None if gallery.source_row is None else uri(("source", gallery.source_row)),
        labelled_text=None if gallery.source_row is None else texts.of(("source", gallery.source_row)),
        described=_described(run, category),
        nearest=[(run.model.class_names[index], similarity) for index, similarity in gallery.nearest_classes],
    )
