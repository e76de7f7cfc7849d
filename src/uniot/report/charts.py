"""Draw the Plotly charts of the report page, from the values that the figures for papers show too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from uniot.errors import import_optional
from uniot.report.curves import ClassMass, Curve
from uniot.report.map import ABSENT_COLOUR, SampleMap, distinct_colours
from uniot.report.matrices import MOST_BANDS, Matrices, matrix_limit
from uniot.report.values import KIND_TITLES, MOST_PLACES, ConfidenceCounts, shortened

MATRIX_HEIGHT = 750
_MOST_ABOVE, _BELOW_MATRIX, _HEAD = 170, 10, 34
_FEW_POINTS = 3000


@dataclass(frozen=True)
class _Kind:
    """The marker of a kind of points."""

    symbol: str
    size: int
    opacity: float
    path: str


_KINDS = {
    "source-absent": _Kind("x-thin-open", 5, 0.5, "M-4 -4 4 4M-4 4 4 -4"),
    "source": _Kind("circle-open", 5, 0.4, "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0"),
    "known": _Kind("circle", 9, 0.95, "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0"),
    "unknown": _Kind("triangle-up", 10, 0.95, "M-5 4.5h10L0 -5z"),
}


def map_chart(drawn: SampleMap) -> Any:
    """Return the map; the custom data of each point is its number."""
    palette = np.array([*distinct_colours(len(drawn.categories)), ABSENT_COLOUR])
    scale = 1.0 if len(drawn.rows) <= _FEW_POINTS else 0.75
    chart = _empty_chart()
    for key, points in drawn.kinds().items():
        kind = _KINDS[key]
        chart.add_scatter(
            x=_rounded(drawn.position[points, 0]),
            y=_rounded(drawn.position[points, 1]),
            customdata=points.tolist(),
            mode="markers",
            marker={
                "symbol": kind.symbol,
                "size": scale * kind.size,
                "opacity": kind.opacity,
                "color": palette[drawn.category[points]].tolist(),
                "line": {"width": 0.7 if drawn.of_target[points[0]] else 1},
            },
            hoverinfo="none",
            meta=key,
        )
    hidden = {"visible": False, "range": [-1.08, 1.08]}
    chart.update_layout(
        xaxis=hidden,
        yaxis=hidden,
        showlegend=False,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        hovermode="closest",
    )
    return chart


def map_names(drawn: SampleMap, class_names: list[str]) -> list[tuple[float, float, str, int]]:
    """Return the names on the map, each with x, y, the name, and 1 if it is an absent class or 0 if not."""
    places = drawn.places(class_names, MOST_PLACES)
    return [(round(place.x, 4), round(place.y, 4), shortened(place.name), int(place.absent)) for place in places]


def map_kinds(drawn: SampleMap) -> list[dict[str, Any]]:
    """Return the legend of the map: key, title, SVG path and number of points of each kind."""
    legend: list[dict[str, Any]] = [
        {"key": key, "title": KIND_TITLES[key], "path": _KINDS[key].path, "count": len(points)}
        for key, points in drawn.kinds().items()
    ]
    return [*legend, {"key": "names", "title": "names", "path": "M-5 5 0 -5 5 5M-3 1h6", "count": None}]


def matrix_chart(matrices: Matrices, values: np.ndarray, unit: str, class_names: list[str], heads: list[str]) -> Any:
    """Return a heat map; `heads` are pictures of the classes as data URIs, or empty."""
    names = [plain(class_names[index]) for index in matrices.classes.tolist()]
    # Slanted names need about six pixels of height per letter.
    above = min(_MOST_ABOVE, 24 + (_HEAD if heads else 0) + 6 * max(map(len, names)))
    height = MATRIX_HEIGHT - above - _BELOW_MATRIX
    chart = _empty_chart()
    chart.add_heatmap(
        z=np.round(values, 3).astype(np.float32),
        zmin=0,
        zmax=matrix_limit(values),
        colorbar={"title": {"text": unit, "side": "right"}, "thickness": 10, "outlinewidth": 0, "x": 1.01},
        hoverinfo="none",
    )
    # The name of a band with fewer rows would overlap its neighbours.
    least = 13 * len(matrices.rows) / height
    named = [band for band in matrices.bands if band.stop - band.start >= least]
    chart.update_layout(
        xaxis={
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "tickangle": -60,
            "side": "top",
            "ticks": "",
            "ticklabelstandoff": _HEAD if heads else 0,
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={
            "tickvals": [(band.start + band.stop - 1) / 2 for band in named],
            "ticktext": [plain(band.name) for band in named],
            "autorange": "reversed",
            "ticks": "",
            "showgrid": False,
            "zeroline": False,
        },
        shapes=[
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": edge, "y1": edge, "line": {"width": 1}}
            for edge in (band.start - 0.5 for band in matrices.bands[1:] if len(matrices.bands) <= MOST_BANDS)
        ],
        images=[
            {
                "source": uri,
                "x": column,
                "xref": "x",
                "xanchor": "center",
                "sizex": 0.96,
                "y": 1.004,
                "yref": "paper",
                "yanchor": "bottom",
                "sizey": _HEAD / height,
            }
            for column, uri in enumerate(heads)
            if uri
        ],
        margin={"l": 110, "r": 10, "t": above, "b": _BELOW_MATRIX},
    )
    return chart


def curves_chart(curves: list[Curve], axis: str) -> Any:
    """Return a chart with a line per curve."""
    chart = _empty_chart()
    for curve in curves:
        chart.add_scatter(x=_rounded(curve.steps, 1), y=_rounded(curve.values, 5), mode="lines", name=curve.name)
    chart.update_layout(**_steps_layout(axis), hovermode="x unified")
    return chart


def class_mass_chart(mass: ClassMass) -> Any:
    """Return a chart with a line per class; classes found in the target stand out."""
    chart = _empty_chart()
    # Lines of classes that were not found come first, so that they lie below.
    for found in (False, True):
        first = True
        for curve in (curve for curve, is_found in zip(mass.curves, mass.found, strict=True) if is_found == found):
            chart.add_scatter(
                x=_rounded(curve.steps, 1),
                y=_rounded(curve.values, 6),
                mode="lines",
                name="found in the target" if found else "not found",
                legendgroup=str(found),
                showlegend=first,
                text=plain(curve.name),
                hovertemplate="%{text}<br>step %{x}: %{y:.4f}<extra></extra>",
                meta="found" if found else "not found",
            )
            first = False
    chart.add_hline(y=mass.even, line={"dash": "dot", "width": 1})
    chart.update_layout(**_steps_layout("mass β"), hovermode="closest")
    return chart


def confidence_chart(counts: ConfidenceCounts) -> Any:
    """Return a stacked histogram with the threshold at one half."""
    middles = (counts.edges[:-1] + counts.edges[1:]) / 2
    chart = _empty_chart()
    for name, values in (("unknown", counts.unknown), ("known", counts.known)):
        chart.add_bar(x=_rounded(middles), y=values.tolist(), name=name, meta=name, hovertemplate="%{x:.2f}: %{y}")
    chart.add_vline(x=0.5, line={"width": 2, "dash": "dash"})
    chart.update_layout(
        barmode="stack",
        bargap=0.08,
        xaxis={"title": {"text": "score for being known"}, "range": [0, 1]},
        yaxis={"title": {"text": "samples of the target"}, "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        margin={"l": 60, "r": 10, "t": 40, "b": 50},
    )
    return chart


def plain(name: str) -> str:
    """Return a short name without the tags that plotly would interpret."""
    return shortened(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _empty_chart() -> Any:
    # The page's script sets the colours; plotly's template would only add bytes.
    return import_optional("plotly.graph_objects", "report", "drawing the charts of the report").Figure(
        layout={"template": {}}
    )


def _steps_layout(axis: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": axis}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"l": 60, "r": 10, "t": 60, "b": 50},
    }


def _rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Return rounded numbers; NaN becomes a gap."""
    return [None if np.isnan(value) else value for value in np.round(values.astype(np.float64), digits).tolist()]
