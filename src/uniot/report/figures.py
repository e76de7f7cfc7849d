"""Draw figures for papers, as PDF and SVG with text that stays text: their style, and those of the report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import RunFolderError, import_optional
from uniot.io.files import replacing
from uniot.io.text import plural
from uniot.report.curves import ClassMass, Curve
from uniot.report.galleries import Gallery
from uniot.report.map import ABSENT_COLOUR, distinct_colours
from uniot.report.matrices import COSINE, MASS, MOST_BANDS, MOST_HEADS, matrix_limit
from uniot.report.sheets import square
from uniot.report.values import KIND_TITLES, MOST_PLACES, ConfidenceCounts, ReportValues, shortened
from uniot.runs.thumbnails import Picture, read_thumbnails

_KNOWN, _UNKNOWN = "#0b736e", "#7c8792"
_LINES = (_KNOWN, _UNKNOWN, "#c98a1b", "#a05bb5")
_SIDE, _COLUMNS = 96, 8
_MOST_BYTES = 1 << 28
Draw = Callable[[Any], None]

WIDTH = 6.75
"""Width of a figure in inches: the text width of two columns."""
_STYLE = {
    "pdf.fonttype": 42,  # embed whole fonts: printers and editors need them
    "svg.fonttype": "none",
    "svg.hashsalt": "uniot",  # the same figure has the same bytes
    "text.parse_math": False,  # a dollar sign in the name of a class is a dollar sign
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Yield once, with the style of figures for papers applied within the context."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; warnings may be errors.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _matplotlib(module: str = "") -> Any:
    return import_optional(f"matplotlib{module}", "report", "drawing figures")


def new_figure(height: float) -> Any:
    """Return an empty matplotlib figure of a height in inches."""
    return _matplotlib(".figure").Figure(figsize=(WIDTH, height), layout="constrained")


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write `name`.pdf and `name`.svg; the folder is created if it does not exist.

    Returns:
        Both files.

    Raises:
        RunFolderError: the folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file. Give a folder for the figures.")
    written = []
    for ending, metadata in (("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
        path = folder / f"{name}.{ending}"
        with replacing(path) as partial:
            figure.savefig(partial, format=ending, metadata=metadata, dpi=200)
        written.append(path)
    return written


def write_figures(values: ReportValues, folder: Path) -> list[Path]:
    """Write every figure as `<name>.pdf` and `<name>.svg`; the names are the same for every run.

    Args:
        values: what to draw.
        folder: created if it does not exist.

    Returns:
        The files, in the order of the report.
    """
    written = []
    with drawing():
        for name, height, draw in _figures(values):
            figure = new_figure(height)
            draw(figure)
            written += save_figure(figure, folder, name)
    return written


def _figures(values: ReportValues) -> Iterator[tuple[str, float, Draw]]:
    """Yield the name, the height in inches and the drawing function of each figure."""
    yield "map", 4.6, partial(_draw_map, values)
    for gallery in [*values.classes.shown, *values.groups.shown]:
        rows = -(-len(gallery.typical) // _COLUMNS) + -(-len(gallery.doubtful) // _COLUMNS)
        height = 0.6 + rows * WIDTH / _COLUMNS
        yield f"gallery-{gallery.category.key}", height, partial(_draw_gallery, values, gallery)
    yield "confidence", 2.4, partial(_draw_confidence, values.confidence)
    matrices = values.matrices
    yield "similarity", 5.5, partial(_draw_matrix, values, matrices.similarity, COSINE)
    if matrices.mass is not None:
        yield "transport", 5.5, partial(_draw_matrix, values, matrices.mass, MASS)
    if values.losses:
        yield "losses", 2.4, partial(_draw_curves, values.losses, "loss")
    if values.mass is not None:
        yield "class-mass", 2.4, partial(_draw_class_mass, values.mass)
    if values.detection:
        yield "detection", 2.4, partial(_draw_curves, values.detection, "fraction")


def _draw_map(values: ReportValues, figure: Any) -> None:
    drawn = values.map
    axes = figure.add_subplot()
    palette = np.array([*distinct_colours(len(drawn.categories)), ABSENT_COLOUR])
    markers: dict[str, dict[str, Any]] = {
        "source-absent": {"marker": "x", "s": 6, "linewidths": 0.5, "alpha": 0.6},
        "source": {"marker": "o", "s": 7, "linewidths": 0.5, "alpha": 0.6},
        "known": {"marker": "o", "s": 12, "linewidths": 0.3, "edgecolors": "white"},
        "unknown": {"marker": "^", "s": 14, "linewidths": 0.3, "edgecolors": "white"},
    }
    for kind, points in drawn.kinds().items():
        colours = palette[drawn.category[points]]
        fill = {"facecolors": "none", "edgecolors": colours} if kind == "source" else {"c": colours}
        axes.scatter(*drawn.position[points].T, label=f"{KIND_TITLES[kind]} ({len(points)})", **fill, **markers[kind])
    outline = _matplotlib(".patheffects").withStroke(linewidth=1.5, foreground="white")
    for place in drawn.places(values.run.model.class_names, MOST_PLACES):
        colour = "#55606b" if place.absent else "black"
        text = axes.text(place.x, place.y, shortened(place.name), size=6, color=colour, ha="center", va="bottom")
        text.set_path_effects([outline])
    axes.set_axis_off()
    legend = figure.legend(loc="outside lower center", ncols=4, markerscale=1.5)
    # The markers alone distinguish the kinds: a colour would be that of one class.
    for handle, kind in zip(legend.legend_handles, drawn.kinds(), strict=True):
        handle.set_edgecolor("#55606b")
        handle.set_facecolor("none" if kind == "source" else "#55606b")


def _draw_gallery(values: ReportValues, gallery: Gallery, figure: Any) -> None:
    category = gallery.category
    figure.suptitle(
        f"{shortened(category.name)}: {len(category.members)} {plural(len(category.members), values.summary.noun)}, "
        f"mean {category.confidence_word} {category.mean_confidence:.2f}"
    )
    kinds = {title: rows for title, rows in (("typical", gallery.typical), ("doubtful", gallery.doubtful)) if len(rows)}
    heights = [-(-len(rows) // _COLUMNS) for rows in kinds.values()]
    places = np.ravel(figure.subplots(len(kinds), height_ratios=heights))
    for axes, (title, rows) in zip(places, kinds.items(), strict=True):
        axes.set_title(title, loc="left")
        axes.set_axis_off()
        wanted: list[Picture] = [("target", int(row)) for row in rows]
        pictures = read_thumbnails(values.run.pictures, wanted, _SIDE, _MOST_BYTES)
        if pictures:
            axes.imshow(_contact_sheet([pictures.get(picture) for picture in wanted], _COLUMNS), interpolation="none")
            continue
        for number, row in enumerate(rows.tolist()):
            x, y = number % 2 / 2, 1 - (number // 2 + 0.5) / (-(-len(rows) // 2))
            axes.text(x, y, _written(values, row), size=6, va="center", transform=axes.transAxes)


def _written(values: ReportValues, row: int) -> str:
    """Return the beginning of the text of a sample, or else the end of its name."""
    texts = values.run.texts
    return values.run.predictions.names[row][-48:] if texts is None else texts.short("target", row, 60)


def _draw_matrix(values: ReportValues, entries: np.ndarray, unit: str, figure: Any) -> None:
    matrices = values.matrices
    n_classes = len(matrices.classes)
    heads = _heads(values)
    if heads is None:
        top = axes = figure.add_subplot()
    else:
        top, axes = figure.subplots(2, sharex=True, height_ratios=[1, 0.7 * n_classes])
        top.imshow(heads, extent=(-0.5, n_classes - 0.5, 0, 1), aspect="auto", interpolation="none")
        top.set_yticks([])
        top.spines[:].set_visible(False)
        axes.tick_params(bottom=False, labelbottom=False)
    colours = _matplotlib(".colors").LinearSegmentedColormap.from_list("uniot", ["#f2f5f6", _KNOWN])
    drawn = axes.imshow(entries, aspect="auto", cmap=colours, vmin=0, vmax=matrix_limit(entries), interpolation="none")
    figure.colorbar(drawn, ax=axes, label=unit, shrink=0.6)
    names = [shortened(values.run.model.class_names[index]) for index in matrices.classes.tolist()]
    top.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    top.set_xticks(range(n_classes), names, rotation=60, ha="left", size=6 if n_classes <= MOST_HEADS else 3)
    # The name of a narrow band would overlap its neighbours.
    named = [band for band in matrices.bands if band.stop - band.start >= len(matrices.rows) / 60]
    axes.set_yticks(
        [(band.start + band.stop - 1) / 2 for band in named], [shortened(band.name) for band in named], size=6
    )
    axes.tick_params(axis="y", left=False, labelsize=6)
    for band in matrices.bands[1:] if len(matrices.bands) <= MOST_BANDS else []:
        axes.axhline(band.start - 0.5, color="white", linewidth=0.6)
    axes.spines[:].set_visible(False)


def _draw_curves(shown: list[Curve], unit: str, figure: Any) -> None:
    axes = figure.add_subplot()
    for curve, colour in zip(shown, _LINES, strict=False):
        axes.plot(curve.steps, curve.values, label=curve.name, color=colour, linewidth=1)
    axes.set(xlabel="step", ylabel=unit)
    figure.legend(loc="outside upper center", ncols=4)


def _draw_class_mass(mass: ClassMass, figure: Any) -> None:
    axes = figure.add_subplot()
    titles = {True: "found in the target", False: "not found"}
    for found in (False, True):
        for curve, is_found in zip(mass.curves, mass.found, strict=True):
            if is_found == found:
                colour, width = (_KNOWN, 0.8) if found else (ABSENT_COLOUR, 0.5)
                axes.plot(curve.steps, curve.values, label=titles.pop(found, None), color=colour, linewidth=width)
    axes.axhline(mass.even, color="black", linewidth=0.6, linestyle=":")
    axes.set(xlabel="step", ylabel="mass β")
    figure.legend(loc="outside upper center", ncols=2)


def _draw_confidence(counts: ConfidenceCounts, figure: Any) -> None:
    axes = figure.add_subplot()
    widths = np.diff(counts.edges)
    axes.bar(counts.edges[:-1], counts.unknown, widths, align="edge", color=_UNKNOWN, label="unknown")
    axes.bar(counts.edges[:-1], counts.known, widths, align="edge", color=_KNOWN, label="known")
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set(xlabel="score for being known", ylabel="samples", xlim=(0, 1))
    figure.legend(loc="outside upper center", ncols=2)


def _heads(values: ReportValues) -> np.ndarray | None:
    """Return a row of labelled pictures, one per class; None without pictures."""
    if not values.heads:
        return None
    pictures = read_thumbnails(values.run.pictures, filter(None, values.heads), _SIDE, _MOST_BYTES)
    return _contact_sheet([None if one is None else pictures.get(one) for one in values.heads], len(values.heads))


def _contact_sheet(pictures: list[bytes | None], columns: int) -> np.ndarray:
    """Return pictures in rows, (height, width, 3); white where one is missing."""
    sheet = np.full((-(-len(pictures) // columns) * _SIDE, columns * _SIDE, 3), 255, np.uint8)
    gap = 3
    for number, jpeg in enumerate(pictures):
        if jpeg is not None:
            top, left = number // columns * _SIDE + gap, number % columns * _SIDE + gap
            inner = _SIDE - 2 * gap
            sheet[top : top + inner, left : left + inner] = np.asarray(square(jpeg, inner))
    return sheet
