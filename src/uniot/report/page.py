"""Write the report as one self-contained HTML file: the values of the template, and the page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from uniot import __version__
from uniot.annotations.selections import rows_text
from uniot.errors import import_optional
from uniot.io.text import as_utf8, plural
from uniot.methods.registry import method_info
from uniot.report import charts, scores, summary
from uniot.report.acting import acting_values, place_of
from uniot.report.cards import make_cards, samples_of_cards
from uniot.report.charts import map_names
from uniot.report.faults import read_faults
from uniot.report.map import distinct_colours
from uniot.report.matrices import COSINE, MASS
from uniot.report.opening import Opening
from uniot.report.sheets import SHEET_COLUMNS, data_uri, sheets
from uniot.report.templating import template_environment, template_text, trusted
from uniot.report.texts import ReportTexts
from uniot.report.values import ReportValues
from uniot.runs.thumbnails import Picture, read_thumbnails

if TYPE_CHECKING:
    from uniot.report.categories import Categories, Category
    from uniot.report.map import SampleMap
    from uniot.runs.run import Run
    from uniot.training.model import AdaptedModel

_WRITING = "writing the report"
# Scripts of the page in their order, each in its own element, so that an error in one does not stop the others.
_SCRIPTS = (
    "page",
    "charts",
    "about",
    "filters",
    "map",
    "names",
    "selection",
    "matrices",
    "enlarge",
    "scrolling",
    "opening",
    "theme",
    "acting",
    "following",
    "start",
)


def render(values: ReportValues, live: int | None = None) -> str:
    """Return the HTML of the page.

    Args:
        values: values of the report.
        live: number of the last action that the page shows, if the labelling page serves it and it follows along; None
            for a file, which asks nobody for anything.

    Names are arbitrary user text: the template escapes all text, `_as_json` escapes the data of scripts, and the
    security policy of the page allows only the scripts below.
    """
    environment = template_environment(_WRITING)
    environment.filters |= {"as_json": _as_json, "emphasise_numbers": _emphasise_numbers}
    scripts = _page_scripts()
    return str(
        environment.get_template("report.html.j2").render(
            **make_content(values, live),
            version=__version__,
            style=_trusted(template_text("report.css")),
            scripts=[_trusted(script) for script in scripts],
            policy=content_policy(live=live is not None),
        )
    )


def content_policy(*, live: bool) -> str:
    """Return the security policy of the page: its own scripts, and requests to its own server only if it is live."""
    scripts = " ".join(f"'{_digest(script)}'" for script in _page_scripts())
    connect = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; {connect}script-src {scripts}; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _page_scripts() -> tuple[str, ...]:
    """Return the scripts of the page, plotly first."""
    plotly = import_optional("plotly.offline", "report", _WRITING).get_plotlyjs()
    scripts = [plotly, *(template_text(f"scripts/{name}.js") for name in _SCRIPTS)]
    # Browsers convert line ends to line feeds before they compute the digest of a script.
    return tuple(script.replace("\r\n", "\n").replace("\r", "\n") for script in scripts)


def _as_json(value: Any) -> Any:
    """Return JSON that cannot close the script element around it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _trusted(text)


def _emphasise_numbers(text: str) -> Any:
    escaped = str(import_optional("markupsafe", "report", _WRITING).escape(text))
    return _trusted(re.sub(r"\d[\d,]*", r"<b>\g<0></b>", escaped))


def _trusted(text: str) -> Any:
    return trusted(text, _WRITING)


@cache
def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


_MAP_BYTES, _HEAD_BYTES = 3_000_000, 200_000
_HEAD_SIDE = 48
_MOST_LINES, _MOST_CHOICES = 200, 1000
_MOST_SEGMENTS = 60


@dataclass(frozen=True)
class Segment:
    """A part of the proportion bar: a category, or all small ones together."""

    name: str
    kind: str
    key: str
    count: int


def make_content(values: ReportValues, live: int | None = None) -> dict[str, Any]:
    """Return the values of the template; `live` as for `render`."""
    run, model, drawn, found = values.run, values.run.model, values.map, values.summary
    texts = ReportTexts(run, [*samples_of_cards(values.classes, values.groups), *_samples_of_map(drawn)])
    classes, groups = make_cards(run, texts, values.classes, values.groups)
    on_map, map_sheets = _map_pictures(run, drawn)
    absent, faults = summary.absent_classes(model), read_faults(run)
    found_scores = scores.read_scores(run)
    confusion = None if found_scores is None else found_scores.confusion
    in_cells = [] if confusion is None else [row for line in confusion.rows for cell in line.cells for row in cell.rows]
    return {
        "title": run.files.title,
        "noun": lambda count: plural(count, found.noun),
        "has_pictures": run.pictures is not None,
        "texts": "" if run.texts is None else run.texts.kind,
        "terms": "" if run.group_descriptions is None else run.group_descriptions.kind,
        "found": found,
        "sentence": summary.sentence(model, found),
        "contents": summary.contents_sentence(model, found),
        "warnings": summary.warnings(model),
        "look_first": summary.look_first(found),
        "tiles": summary.tiles(found),
        "segments": _segments(values.categories),
        "shown_keys": {card.category.key for card in [*classes.shown, *groups.shown]},
        "drawn": drawn,
        "map_kinds": charts.map_kinds(drawn),
        "choices": list(enumerate(values.categories.found))[:_MOST_CHOICES],
        "map_sheets": [data_uri(sheet) for sheet in map_sheets],
        "n_map_pictures": len(on_map),
        "classes": classes,
        "groups": groups,
        "absent": absent[:_MOST_LINES],
        "n_absent": len(absent),
        "ungrouped": summary.ungrouped(model, found),
        "evidence": model.groups.number.evidence,
        "method": method_info(model.settings.method),
        "matrices": values.matrices,
        "matrix_height": charts.MATRIX_HEIGHT,
        "mass": values.mass,
        "scores": found_scores,
        "live": live,
        "place_of": lambda category: place_of(category, model.groups.n_groups),
        "rows_text": rows_text,
        "settings": scores.read_settings(run),
        "faults": faults,
        "model_was_changed": model.threshold is not None or model.posterior is not None,
        "share_by_preference": model.threshold is not None,
        "opening": Opening.of(run, values.categories, found, faults),
        "charts": _charts(values),
        "data": page_data(values, on_map, [*classes.rows, *groups.rows, *in_cells], texts)
        | {"acting": acting_values(run, live)},
    }


def _charts(values: ReportValues) -> dict[str, Any]:
    """Return plotly's figures by the id of their place on the page."""
    heads, names, matrices = _heads(values), values.run.model.class_names, values.matrices
    made = {
        "map": charts.map_chart(values.map),
        "confidence": charts.confidence_chart(values.confidence),
        "similarity": charts.matrix_chart(matrices, matrices.similarity, COSINE, names, heads),
    }
    if values.losses:
        made["losses"] = charts.curves_chart(values.losses, "loss")
    if matrices.mass is not None:
        made["transport"] = charts.matrix_chart(matrices, matrices.mass, MASS, names, heads)
    if values.mass is not None:
        made["class-mass"] = charts.class_mass_chart(values.mass)
    if values.detection:
        made["detection"] = charts.curves_chart(values.detection, "fraction")
    return {name: json.loads(chart.to_json()) for name, chart in made.items()}


def _map_pictures(run: Run, drawn: SampleMap) -> tuple[dict[Picture, int], list[bytes]]:
    """Return the index of each picture on the sheets, target first, and the sheets."""
    wanted = _samples_of_map(drawn)
    # Single pictures take about twice the bytes that they take on a sheet.
    single = read_thumbnails(run.pictures, wanted, MAP_SIDE, 2 * _MAP_BYTES)
    made = sheets(list(single.values()), MAP_SIDE, _MAP_BYTES)
    shown = list(single)[: len(made) * SHEET_COLUMNS**2]
    return {picture: place for place, picture in enumerate(shown)}, made


def _samples_of_map(drawn: SampleMap) -> list[Picture]:
    return [
        ("target" if of_target else "source", row)
        for row, of_target in zip(drawn.rows.tolist(), drawn.of_target.tolist(), strict=True)
    ]


def _heads(values: ReportValues) -> list[str]:
    """Return a labelled picture per class of the matrices as a data URI, or an empty list."""
    read = read_thumbnails(values.run.pictures, filter(None, values.heads), _HEAD_SIDE, _HEAD_BYTES)
    return [data_uri(read[picture]) if picture in read else "" for picture in values.heads]


def _segments(categories: Categories) -> list[Segment]:
    """Return the parts of the proportion bar; small categories share the last one."""
    largest = sorted(categories.found, key=lambda category: -len(category.members))[:_MOST_SEGMENTS]
    shown = [
        Segment(category.name, "known" if category.known else "unknown", category.key, len(category.members))
        for category in categories.found
        if category in largest
    ]
    rest = len(categories.of_row) - sum(segment.count for segment in shown)
    return [*shown, Segment("all others", "rest", "", rest)] if rest else shown


MAP_SIDE = 72
"""Side of a picture of the map, in pixels."""


def page_data(
    values: ReportValues, on_map: Mapping[Picture, int], on_cards: Iterable[int], texts: ReportTexts
) -> dict[str, Any]:
    """Return the values that scripts read, as JSON has them.

    Args:
        values: values of the report.
        on_map: number of each picture that the map has.
        on_cards: rows of the target that galleries show.
        texts: of the samples.
    """
    run, drawn, matrices = values.run, values.map, values.matrices
    points = []
    for row, of_target, category, of_class in zip(
        drawn.rows.tolist(), drawn.of_target.tolist(), drawn.category.tolist(), drawn.source_class.tolist(), strict=True
    ):
        picture = on_map.get(("target" if of_target else "source", row), -1)
        points.append([row, int(of_target), category, of_class, picture])
    rows = {*matrices.rows.tolist(), *drawn.rows[drawn.of_target].tolist(), *on_cards}
    truth = None if run.true_labels is None else {row: str(run.true_labels[row]) for row in sorted(rows)}
    return {
        "texts": _texts(texts, (("target", row) for row in sorted(rows))),
        "sourceTexts": _texts(texts, (one for one in _samples_of_map(drawn) if one[0] == "source")),
        "points": points,
        "places": map_names(drawn, run.model.class_names),
        "sheetColumns": SHEET_COLUMNS,
        "side": MAP_SIDE,
        "samples": _samples(values, rows, truth),
        "truth": None if truth is None else _colours_of(truth, values.categories),
        "categories": [
            [category.name, category.key, int(category.known), category.index, _label(run.model, category)]
            for category in values.categories.found
        ],
        "classes": run.model.class_names,
        "matrixRows": matrices.rows.tolist(),
        "matrixClasses": matrices.classes.tolist(),
    }


def _texts(texts: ReportTexts, samples: Iterable[Picture]) -> dict[int, str | list[str]]:
    """Return the text of each sample that has one; an address that may be linked to is in a list."""
    found = ((row, texts.of((collection, row))) for collection, row in samples)
    return {row: [shown.text] if shown.href else shown.text for row, shown in found if shown is not None}


def _label(model: AdaptedModel, category: Category) -> str:
    """Return the label of a category in predictions.csv: a class, a name given by a person, or unknown."""
    if category.known:
        return model.class_names[category.index]
    return as_utf8(model.group_names.get(category.index, str(model.unknown)))


def _samples(values: ReportValues, rows: set[int], truth: Mapping[int, str] | None) -> dict[int, list[Any]]:
    """Return name, confidence, group confidence, nearest class and category of each sample, and the true class."""
    target, names = values.run.model.target, values.run.predictions.names
    place = {} if truth is None else {name: number for number, name in enumerate(sorted(set(truth.values())))}
    return {
        row: [
            names[row],
            round(float(target.confidence[row]), 6),
            round(float(target.group_confidence[row]), 3),
            int(target.nearest[row]),
            int(values.categories.of_row[row]),
            *(() if truth is None else (place[truth[row]],)),
        ]
        for row in sorted(rows)
    }


def _colours_of(truth: Mapping[int, str], categories: Categories) -> dict[str, list[str]]:
    """Return the true classes in order, and their colours: on the map a class has the colour that the run gave it."""
    names, n_found = sorted(set(truth.values())), len(categories.found)
    palette = distinct_colours(n_found + len(names))
    own = {category.name: palette[number] for number, category in enumerate(categories.found) if category.known}
    return {"names": names, "colours": [own.get(name, palette[n_found + number]) for number, name in enumerate(names)]}
