"""What is on the page: plain values, which the template makes HTML of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from uniot.methods import method_info
from uniot.report import charts, curves, scores, summary
from uniot.report.categories import Category
from uniot.report.colours import distinct_colours
from uniot.report.finished_run import FinishedRun
from uniot.report.galleries import Galleries, make_galleries
from uniot.report.map import SampleMap
from uniot.report.matrices import Matrices, make_matrices
from uniot.report.thumbnails import SHEET_COLUMNS, Picture, data_uri, read_thumbnails, sheets

# With plotly's five megabytes and four thirds for base64, the page stays below 15 MB.
_GALLERY_BYTES, _MAP_BYTES = 3_600_000, 3_000_000
_GALLERY_SIDE, _MAP_SIDE, _HEAD_SIDE = 128, 72, 48
_MOST_HEADS = 40
_MOST_LINES = 200
_MOST_SEGMENTS = 60


@dataclass(frozen=True)
class Sample:
    """A sample of the target in a gallery; without a picture, a data URI, its name has to do."""

    name: str
    confidence: float
    picture: str | None


@dataclass(frozen=True)
class Card:
    """A category with some of its samples, and the picture of a labelled one if it is a source class."""

    category: Category
    typical: list[Sample]
    doubtful: list[Sample]
    labelled: str | None

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


@dataclass(frozen=True)
class Segment:
    """A category, or all small ones together, as a piece of a bar."""

    name: str
    kind: str
    key: str
    count: int


def make_content(run: FinishedRun, drawn: SampleMap) -> dict[str, Any]:
    """Everything that the template asks for."""
    found = summary.summarise(run)
    classes, groups = make_galleries(run, known=True), make_galleries(run, known=False)
    pictures = _gallery_pictures(run, classes, groups)
    on_map, map_sheets = _map_pictures(run, drawn)
    matrices = make_matrices(run)
    absent = summary.absent_classes(run)
    figures = _charts(run, drawn, matrices)
    return {
        "title": run.title,
        "noun": run.noun,
        "has_pictures": run.pictures is not None,
        "found": found,
        "sentence": summary.sentence(run, found),
        "warnings": summary.warnings(run),
        "look_first": summary.look_first(run, found),
        "tiles": summary.tiles(run, found),
        "segments": _segments(run),
        "shown_keys": {gallery.category.key for gallery in [*classes.shown, *groups.shown]},
        "drawn": drawn,
        "map_kinds": charts.map_kinds(drawn),
        "map_categories": list(enumerate(drawn.categories))[:_MOST_LINES],
        "map_sheets": [data_uri(sheet) for sheet in map_sheets],
        "n_map_pictures": len(on_map),
        "classes": _cards(run, classes, pictures),
        "groups": _cards(run, groups, pictures),
        "absent": absent[:_MOST_LINES],
        "n_absent": len(absent),
        "no_groups_asked": run.model.settings.n_private_classes == 0,
        "evidence": run.model.groups.number.evidence,
        "method": method_info(run.model.settings.method),
        "matrices": matrices,
        "matrix_height": charts.MATRIX_HEIGHT,
        "mass": curves.class_mass(run),
        "scores": scores.read_scores(run.metrics),
        "settings": scores.read_settings(run),
        "charts": figures,
        "data": _data(run, drawn, matrices, on_map),
    }


def _charts(run: FinishedRun, drawn: SampleMap, matrices: Matrices) -> dict[str, Any]:
    """Plotly's figures by the id of their place on the page."""
    heads, names = _heads(run, matrices), run.class_names
    losses, mass, detection = curves.losses(run), curves.class_mass(run), curves.detection(run)
    made = {
        "map": charts.map_chart(drawn, names),
        "confidence": charts.confidence_chart(curves.confidence_counts(run)),
        "similarity": charts.matrix_chart(matrices, matrices.similarity, charts.SIMILARITY, names, heads),
    }
    if losses:
        made["losses"] = charts.curves_chart(losses, "loss")
    if matrices.mass is not None:
        made["transport"] = charts.matrix_chart(matrices, matrices.mass, charts.MASS, names, heads)
    if mass is not None:
        made["class-mass"] = charts.class_mass_chart(mass)
    if detection:
        made["detection"] = charts.curves_chart(detection, "share")
    return {name: json.loads(chart.to_json()) for name, chart in made.items()}


def _data(run: FinishedRun, drawn: SampleMap, matrices: Matrices, on_map: Mapping[Picture, int]) -> dict[str, Any]:
    """What the page tells of a point or row that somebody points at."""
    points = []
    for row, of_target, category, of_class in zip(
        drawn.rows.tolist(), drawn.of_target.tolist(), drawn.category.tolist(), drawn.source_class.tolist(), strict=True
    ):
        picture = on_map.get(("target" if of_target else "source", row), -1)
        points.append([row, int(of_target), category, of_class, picture])
    rows = sorted({*matrices.rows.tolist(), *drawn.rows[drawn.of_target].tolist()})
    answers = run.answers
    return {
        "points": points,
        "sheetColumns": SHEET_COLUMNS,
        "side": _MAP_SIDE,
        "samples": {
            row: [
                run.names[row],
                # From unknown, 0, to known, 1: the colours of the map.
                round(float(answers.confidence[row] if answers.known[row] else 1 - answers.confidence[row]), 3),
                round(float(answers.group_confidence[row]), 3),
                int(answers.nearest[row]),
            ]
            for row in rows
        },
        "categories": [[category.name, category.key, int(category.known)] for category in drawn.categories],
        "colours": distinct_colours(len(drawn.categories)),
        "absentColour": charts.ABSENT_COLOUR,
        "classes": run.class_names,
        "matrixRows": matrices.rows.tolist(),
        "matrixClasses": matrices.classes.tolist(),
    }


def _gallery_pictures(run: FinishedRun, *galleries: Galleries) -> dict[Picture, bytes]:
    wanted: list[Picture] = []
    shown = [gallery for some in galleries for gallery in some.shown]
    wanted += [("source", gallery.source_row) for gallery in shown if gallery.source_row is not None]
    wanted += [("target", int(row)) for gallery in shown for row in gallery.typical]
    wanted += [("target", int(row)) for gallery in shown for row in gallery.doubtful]
    return read_thumbnails(run.pictures, wanted, _GALLERY_SIDE, _GALLERY_BYTES)


def _map_pictures(run: FinishedRun, drawn: SampleMap) -> tuple[dict[Picture, int], list[bytes]]:
    """The place of each picture on the sheets, target first, and the sheets."""
    wanted: list[Picture] = [
        ("target" if of_target else "source", row)
        for row, of_target in zip(drawn.rows.tolist(), drawn.of_target.tolist(), strict=True)
    ]
    # Single pictures take about twice the bytes that they take on a sheet.
    single = read_thumbnails(run.pictures, wanted, _MAP_SIDE, 2 * _MAP_BYTES)
    made = sheets(list(single.values()), _MAP_SIDE, _MAP_BYTES)
    shown = list(single)[: len(made) * SHEET_COLUMNS**2]
    return {picture: place for place, picture in enumerate(shown)}, made


def _heads(run: FinishedRun, matrices: Matrices) -> list[str]:
    """A labelled picture of each class of the matrices; none where they would be too narrow to see."""
    if run.pictures is None or len(matrices.classes) > _MOST_HEADS:
        return []
    wanted: list[Picture | None] = [
        ("source", run.nearest_source_rows[index]) if index in run.nearest_source_rows else None
        for index in matrices.classes.tolist()
    ]
    read = read_thumbnails(run.pictures, filter(None, wanted), _HEAD_SIDE, _GALLERY_BYTES)
    return [data_uri(read[picture]) if picture in read else "" for picture in wanted]


def _cards(run: FinishedRun, galleries: Galleries, pictures: Mapping[Picture, bytes]) -> Cards:
    def uri(picture: Picture) -> str | None:
        return data_uri(pictures[picture]) if picture in pictures else None

    def samples(category: Category, rows: Iterable[int]) -> list[Sample]:
        confidence = run.answers.confidence if category.known else run.answers.group_confidence
        return [Sample(run.names[row], float(confidence[row]), uri(("target", row))) for row in rows]

    cards = [
        Card(
            category=gallery.category,
            typical=samples(gallery.category, gallery.typical.tolist()),
            doubtful=samples(gallery.category, gallery.doubtful.tolist()),
            labelled=None if gallery.source_row is None else uri(("source", gallery.source_row)),
        )
        for gallery in galleries.shown
    ]
    return Cards(cards, galleries.left_out[:_MOST_LINES], len(galleries.left_out))


def _segments(run: FinishedRun) -> list[Segment]:
    """The target as one bar; small categories share what is left."""
    largest = sorted(run.categories, key=lambda category: -len(category.members))[:_MOST_SEGMENTS]
    shown = [
        Segment(category.name, "known" if category.known else "unknown", category.key, len(category.members))
        for category in run.categories
        if category in largest
    ]
    rest = len(run.answers) - sum(segment.count for segment in shown)
    return [*shown, Segment("all others", "rest", "", rest)] if rest else shown
