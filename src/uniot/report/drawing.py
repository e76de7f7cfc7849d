"""Figures for papers: one style, and files that are the same whenever the figure is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uniot.errors import RunFolderError
from uniot.report.packages import needed
from uniot.run_folder import replacing

WIDTH = 6.75
"""Of a figure, in inches: the text of two columns."""
_STYLE = {
    "pdf.fonttype": 42,  # whole fonts, which printers and editors of text want
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
    """Within it, figures have the style of papers."""
    matplotlib = needed("matplotlib")
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}), warnings.catch_warnings():
        # A letter that the font lacks becomes a box; that is no reason to stop.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(height: float) -> Any:
    """An empty matplotlib figure, so many inches high."""
    return needed("matplotlib.figure").Figure(figsize=(WIDTH, height), layout="constrained")


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Writes `name`.pdf and `name`.svg, and returns where; the folder is made if it does not exist."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file. Give a folder for the figures.")
    written = []
    for ending, metadata in (("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
        path = folder / f"{name}.{ending}"
        with replacing(path) as partial:
            figure.savefig(partial, format=ending, metadata=metadata, dpi=200)
        written.append(path)
    return written
