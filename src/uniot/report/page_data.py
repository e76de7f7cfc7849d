"""What the page's scripts know of samples, classes and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from uniot.data.text import as_utf8
from uniot.report.categories import Category
from uniot.report.charts import map_names
from uniot.report.finished_run import FinishedRun
from uniot.report.map import SampleMap
from uniot.report.matrices import Matrices
from uniot.report.thumbnails import SHEET_COLUMNS, Picture

MAP_SIDE = 72
"""Side of a picture of the map, in pixels."""


def page_data(
    run: FinishedRun, drawn: SampleMap, matrices: Matrices, on_map: Mapping[Picture, int], on_cards: Iterable[int]
) -> dict[str, Any]:
    """Return the values that scripts read, as JSON has them.

    Args:
        run: the run.
        drawn: its map.
        matrices: its matrices.
        on_map: number of each picture that the map has.
        on_cards: rows of the target that galleries show.
    """
    points = []
    for row, of_target, category, of_class in zip(
        drawn.rows.tolist(), drawn.of_target.tolist(), drawn.category.tolist(), drawn.source_class.tolist(), strict=True
    ):
        picture = on_map.get(("target" if of_target else "source", row), -1)
        points.append([row, int(of_target), category, of_class, picture])
    return {
        "points": points,
        "places": map_names(drawn, run.class_names),
        "sheetColumns": SHEET_COLUMNS,
        "side": MAP_SIDE,
        "samples": _samples(run, {*matrices.rows.tolist(), *drawn.rows[drawn.of_target].tolist(), *on_cards}),
        "categories": [
            [category.name, category.key, int(category.known), category.index, _label(run, category)]
            for category in run.categories
        ],
        "classes": run.class_names,
        "matrixRows": matrices.rows.tolist(),
        "matrixClasses": matrices.classes.tolist(),
    }


def _label(run: FinishedRun, category: Category) -> str:
    """Return what predictions.csv calls the samples of a category: a class, a name that people gave, or unknown."""
    if category.known:
        return run.class_names[category.index]
    return as_utf8(run.model.group_names.get(category.index, str(run.model.unknown)))


def _samples(run: FinishedRun, rows: set[int]) -> dict[int, list[Any]]:
    """Name, confidence, confidence in the group, nearest class and category of each sample."""
    answers, category = run.answers, run.category_of_row
    return {
        row: [
            run.names[row],
            round(float(answers.confidence[row]), 6),
            round(float(answers.group_confidence[row]), 3),
            int(answers.nearest[row]),
            int(category[row]),
        ]
        for row in sorted(rows)
    }
