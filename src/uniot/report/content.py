"""What is on the page: plain values, which the template makes HTML of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from uniot.methods import method_info
from uniot.report import charts, curves, scores, summary
from uniot.report.cards import make_cards
from uniot.report.data_quality import read_faults
from uniot.report.finished_run import FinishedRun
from uniot.report.galleries import make_galleries
from uniot.report.map import SampleMap
from uniot.report.matrices import Matrices, make_matrices
from uniot.report.page_data import MAP_SIDE, page_data
from uniot.report.thumbnails import SHEET_COLUMNS, Picture, data_uri, read_thumbnails, sheets

_MAP_BYTES, _HEAD_BYTES = 3_000_000, 200_000
_HEAD_SIDE, _MOST_HEADS = 48, 40
_MOST_LINES, _MOST_CHOICES = 200, 1000
_MOST_SEGMENTS = 60


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
    classes, groups = make_cards(run, make_galleries(run, known=True), make_galleries(run, known=False))
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
        "shown_keys": {card.category.key for card in [*classes.shown, *groups.shown]},
        "drawn": drawn,
        "map_kinds": charts.map_kinds(drawn),
        "choices": list(enumerate(run.categories))[:_MOST_CHOICES],
        "map_sheets": [data_uri(sheet) for sheet in map_sheets],
        "n_map_pictures": len(on_map),
        "classes": classes,
        "groups": groups,
        "absent": absent[:_MOST_LINES],
        "n_absent": len(absent),
        "no_groups_asked": run.model.settings.n_private_classes == 0,
        "evidence": run.model.groups.number.evidence,
        "method": method_info(run.model.settings.method),
        "matrices": matrices,
        "matrix_height": charts.MATRIX_HEIGHT,
        "mass": curves.class_mass(run),
        "scores": scores.read_scores(run),
        "settings": scores.read_settings(run),
        "faults": read_faults(run),
        "charts": figures,
        "data": page_data(run, drawn, matrices, on_map, [*classes.rows, *groups.rows]),
    }


def _charts(run: FinishedRun, drawn: SampleMap, matrices: Matrices) -> dict[str, Any]:
    """Plotly's figures by the id of their place on the page."""
    heads, names = _heads(run, matrices), run.class_names
    losses, mass, detection = curves.losses(run), curves.class_mass(run), curves.detection(run)
    made = {
        "map": charts.map_chart(drawn),
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


def _map_pictures(run: FinishedRun, drawn: SampleMap) -> tuple[dict[Picture, int], list[bytes]]:
    """The place of each picture on the sheets, target first, and the sheets."""
    wanted: list[Picture] = [
        ("target" if of_target else "source", row)
        for row, of_target in zip(drawn.rows.tolist(), drawn.of_target.tolist(), strict=True)
    ]
    # Single pictures take about twice the bytes that they take on a sheet.
    single = read_thumbnails(run.pictures, wanted, MAP_SIDE, 2 * _MAP_BYTES)
    made = sheets(list(single.values()), MAP_SIDE, _MAP_BYTES)
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
    read = read_thumbnails(run.pictures, filter(None, wanted), _HEAD_SIDE, _HEAD_BYTES)
    return [data_uri(read[picture]) if picture in read else "" for picture in wanted]


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
