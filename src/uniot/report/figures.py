"""The figures of the report for papers: each as PDF and SVG, with text that stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uniot.report import curves
from uniot.report.colours import distinct_colours
from uniot.report.drawing import WIDTH, drawing, new_figure, save_figure
from uniot.report.finished_run import FinishedRun
from uniot.report.galleries import Gallery, make_galleries
from uniot.report.map import SampleMap
from uniot.report.matrices import Matrices, make_matrices
from uniot.report.packages import needed
from uniot.report.thumbnails import Picture, read_thumbnails, square

_KNOWN, _UNKNOWN, _ABSENT = "#0b736e", "#7c8792", "#9aa3ad"
_LINES = (_KNOWN, _UNKNOWN, "#c98a1b", "#a05bb5")
_SIDE, _COLUMNS, _MOST_HEADS = 96, 8, 40
_MOST_PLACES, _MOST_BANDS, _LONGEST_NAME = 40, 100, 28
_MOST_BYTES = 1 << 28

Draw = Callable[[Any], None]


def write_figures(run: FinishedRun, drawn: SampleMap, folder: Path) -> list[Path]:
    """Writes every figure as `<name>.pdf` and `<name>.svg`; the names are the same for every run.

    Args:
        run: what to draw.
        drawn: its map.
        folder: made if it does not exist.

    Returns:
        The files, in the order of the report.
    """
    written = []
    with drawing():
        for name, height, draw in _figures(run, drawn):
            figure = new_figure(height)
            draw(figure)
            written += save_figure(figure, folder, name)
    return written


def _figures(run: FinishedRun, drawn: SampleMap) -> Iterator[tuple[str, float, Draw]]:
    """Name, height in inches, and what draws it."""
    yield "map", 4.6, partial(_draw_map, run, drawn)
    for gallery in [*make_galleries(run, known=True).shown, *make_galleries(run, known=False).shown]:
        rows = -(-len(gallery.typical) // _COLUMNS) + -(-len(gallery.doubtful) // _COLUMNS)
        yield f"gallery-{gallery.category.key}", 0.6 + rows * WIDTH / _COLUMNS, partial(_draw_gallery, run, gallery)
    yield "confidence", 2.4, partial(_draw_confidence, curves.confidence_counts(run))
    matrices = make_matrices(run)
    yield "similarity", 5.5, partial(_draw_matrix, run, matrices, matrices.similarity, "cosine")
    if matrices.mass is not None:
        yield "transport", 5.5, partial(_draw_matrix, run, matrices, matrices.mass, "mass / mean mass of a row")
    losses = curves.losses(run)
    if losses:
        yield "losses", 2.4, partial(_draw_curves, losses, "loss")
    mass = curves.class_mass(run)
    if mass is not None:
        yield "class-mass", 2.4, partial(_draw_class_mass, mass)
    detection = curves.detection(run)
    if detection:
        yield "detection", 2.4, partial(_draw_curves, detection, "share")


def _draw_map(run: FinishedRun, drawn: SampleMap, figure: Any) -> None:
    axes = figure.add_subplot()
    palette = np.array([*distinct_colours(len(drawn.categories)), _ABSENT])
    signs: dict[str, tuple[str, dict[str, Any]]] = {
        "source-absent": ("source, class not found", {"marker": "x", "s": 6, "linewidths": 0.5, "alpha": 0.6}),
        "source": ("source", {"marker": "o", "s": 7, "linewidths": 0.5, "alpha": 0.6}),
        "known": ("target, known", {"marker": "o", "s": 12, "linewidths": 0.3, "edgecolors": "white"}),
        "unknown": ("target, unknown", {"marker": "^", "s": 14, "linewidths": 0.3, "edgecolors": "white"}),
    }
    for kind, points in drawn.kinds().items():
        title, style = signs[kind]
        colours = palette[drawn.category[points]]
        fill = {"facecolors": "none", "edgecolors": colours} if kind == "source" else {"c": colours}
        axes.scatter(*drawn.position[points].T, label=f"{title} ({len(points)})", **fill, **style)
    outline = needed("matplotlib.patheffects").withStroke(linewidth=1.5, foreground="white")
    for place in drawn.places(run.class_names, _MOST_PLACES):
        colour = "#55606b" if place.absent else "black"
        text = axes.text(place.x, place.y, _short(place.name), size=6, color=colour, ha="center", va="bottom")
        text.set_path_effects([outline])
    axes.set_axis_off()
    legend = figure.legend(loc="outside lower center", ncols=4, markerscale=1.5)
    # The signs alone tell the kinds apart; a colour would be that of one class.
    for handle, kind in zip(legend.legend_handles, drawn.kinds(), strict=True):
        handle.set_edgecolor("#55606b")
        handle.set_facecolor("none" if kind == "source" else "#55606b")


def _draw_gallery(run: FinishedRun, gallery: Gallery, figure: Any) -> None:
    category = gallery.category
    figure.suptitle(
        f"{_short(category.name)}: {len(category.members)} {run.noun(len(category.members))}, "
        f"mean {category.confidence_word} {category.mean_confidence:.2f}"
    )
    kinds = {title: rows for title, rows in (("typical", gallery.typical), ("doubtful", gallery.doubtful)) if len(rows)}
    heights = [-(-len(rows) // _COLUMNS) for rows in kinds.values()]
    places = np.ravel(figure.subplots(len(kinds), height_ratios=heights))
    for axes, (title, rows) in zip(places, kinds.items(), strict=True):
        axes.set_title(title, loc="left")
        axes.set_axis_off()
        wanted: list[Picture] = [("target", int(row)) for row in rows]
        pictures = read_thumbnails(run.pictures, wanted, _SIDE, _MOST_BYTES)
        if pictures:
            axes.imshow(_contact_sheet([pictures.get(picture) for picture in wanted], _COLUMNS), interpolation="none")
            continue
        for number, row in enumerate(rows.tolist()):
            x, y = number % 2 / 2, 1 - (number // 2 + 0.5) / (-(-len(rows) // 2))
            axes.text(x, y, run.names[row][-48:], size=6, va="center", transform=axes.transAxes)


def _draw_matrix(run: FinishedRun, matrices: Matrices, values: np.ndarray, unit: str, figure: Any) -> None:
    n_classes = len(matrices.classes)
    heads = _heads(run, matrices)
    if heads is None:
        top = axes = figure.add_subplot()
    else:
        top, axes = figure.subplots(2, sharex=True, height_ratios=[1, 0.7 * n_classes])
        top.imshow(heads, extent=(-0.5, n_classes - 0.5, 0, 1), aspect="auto", interpolation="none")
        top.set_yticks([])
        top.spines[:].set_visible(False)
        axes.tick_params(bottom=False, labelbottom=False)
    limit = max(float(np.quantile(values, 0.998)), 1e-3)
    colours = needed("matplotlib.colors").LinearSegmentedColormap.from_list("uniot", ["#f2f5f6", _KNOWN])
    drawn = axes.imshow(values, aspect="auto", cmap=colours, vmin=0, vmax=limit, interpolation="none")
    figure.colorbar(drawn, ax=axes, label=unit, shrink=0.6)
    names = [_short(run.class_names[index]) for index in matrices.classes.tolist()]
    top.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    top.set_xticks(range(n_classes), names, rotation=60, ha="left", size=6 if n_classes <= _MOST_HEADS else 3)
    # A name needs some rows to stand beside, or it would cover its neighbours.
    named = [band for band in matrices.bands if band.stop - band.start >= len(matrices.rows) / 60]
    axes.set_yticks([(band.start + band.stop - 1) / 2 for band in named], [_short(band.name) for band in named], size=6)
    axes.tick_params(left=False)
    for band in matrices.bands[1:] if len(matrices.bands) <= _MOST_BANDS else []:
        axes.axhline(band.start - 0.5, color="white", linewidth=0.6)
    axes.spines[:].set_visible(False)


def _draw_curves(shown: list[curves.Curve], unit: str, figure: Any) -> None:
    axes = figure.add_subplot()
    for curve, colour in zip(shown, _LINES, strict=False):
        axes.plot(curve.steps, curve.values, label=curve.name, color=colour, linewidth=1)
    axes.set(xlabel="step", ylabel=unit)
    figure.legend(loc="outside upper center", ncols=4)


def _draw_class_mass(mass: curves.ClassMass, figure: Any) -> None:
    axes = figure.add_subplot()
    titles = {True: "found in the target", False: "not found"}
    for found in (False, True):
        for curve, is_found in zip(mass.curves, mass.found, strict=True):
            if is_found == found:
                colour, width = (_KNOWN, 0.8) if found else (_ABSENT, 0.5)
                axes.plot(curve.steps, curve.values, label=titles.pop(found, None), color=colour, linewidth=width)
    axes.axhline(mass.even, color="black", linewidth=0.6, linestyle=":")
    axes.set(xlabel="step", ylabel="mass β")
    figure.legend(loc="outside upper center", ncols=2)


def _draw_confidence(counts: curves.ConfidenceCounts, figure: Any) -> None:
    axes = figure.add_subplot()
    widths = np.diff(counts.edges)
    axes.bar(counts.edges[:-1], counts.unknown, widths, align="edge", color=_UNKNOWN, label="unknown")
    axes.bar(counts.edges[:-1], counts.known, widths, align="edge", color=_KNOWN, label="known")
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set(xlabel="score for being known", ylabel="samples", xlim=(0, 1))
    figure.legend(loc="outside upper center", ncols=2)


def _heads(run: FinishedRun, matrices: Matrices) -> np.ndarray | None:
    """A labelled picture of each class in a row; None where there are none or they would be too small."""
    if run.pictures is None or len(matrices.classes) > _MOST_HEADS:
        return None
    wanted = [run.nearest_source_rows.get(index) for index in matrices.classes.tolist()]
    pictures = read_thumbnails(run.pictures, [("source", row) for row in wanted if row is not None], _SIDE, _MOST_BYTES)
    return _contact_sheet([None if row is None else pictures.get(("source", row)) for row in wanted], len(wanted))


def _contact_sheet(pictures: list[bytes | None], columns: int) -> np.ndarray:
    """Pictures in rows, (height, width, 3); white where one is missing."""
    sheet = np.full((-(-len(pictures) // columns) * _SIDE, columns * _SIDE, 3), 255, np.uint8)
    gap = 3
    for number, jpeg in enumerate(pictures):
        if jpeg is not None:
            top, left = number // columns * _SIDE + gap, number % columns * _SIDE + gap
            inner = _SIDE - 2 * gap
            sheet[top : top + inner, left : left + inner] = np.asarray(square(jpeg, inner))
    return sheet


def _short(name: str) -> str:
    # A line break in a name would break the layout.
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
