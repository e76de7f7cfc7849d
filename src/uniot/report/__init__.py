"""Report a finished run as an HTML page, with figures for papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.io.files import write_text
from uniot.report.figures import write_figures
from uniot.report.page import render
from uniot.report.summary import sentence
from uniot.report.values import ReportValues
from uniot.runs.run import Run, preference_line

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel

__all__ = ["Written", "write_report"]


@dataclass(frozen=True)
class Written:
    """The files of a report, and a summary of the run in a sentence.

    Attributes:
        page: the HTML file.
        figures: PDF and SVG files, in the order of the page; empty if they were not requested.
        sentence: summary of the run.
        model: the model of the run.
    """

    page: Path
    figures: list[Path]
    sentence: str
    model: AdaptedModel


def write_report(
    run: Run,
    out: Path | None = None,
    figures: Path | None = None,
    *,
    on_part: Callable[[str], None] | None = None,
) -> Written:
    """Write the report of a finished run as one self-contained HTML file.

    Args:
        run: the run, opened with or without a preference.
        out: the file; report.html in the run folder if None.
        figures: folder for the figures as PDF and SVG; none are written if None.
        on_part: called with a description of each part when it begins.

    Returns:
        The page, the figures and the summary sentence.

    Raises:
        RunFolderError: there is no finished run with a target, or a file cannot be written.
        DataError: a package of `uniot[report]` is missing.
    """
    begin = on_part or (lambda _: None)
    values = ReportValues.of(run, on_part=begin)
    begin("Writing the page")
    text = render(values)
    if out is None:
        with Run.writer(run.folder, wait=True) as writer:
            out = writer.write_report(text)
    else:
        write_text(out, text)
    written = []
    if figures is not None:
        begin("Drawing the figures")
        written = write_figures(values, figures)
    said = [sentence(run.model, values.summary), preference_line(run.model)]
    return Written(out, written, " ".join(filter(None, said)), run.model)
