"""From a run folder to files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from uniot.report.figures import write_figures
from uniot.report.finished_run import FinishedRun
from uniot.report.map import make_map
from uniot.report.page import render
from uniot.report.summary import sentence, summarise
from uniot.run_folder import write_text


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        page: the HTML file.
        figures: PDF and SVG files, in the order of the page; none where they were not asked for.
        sentence: the run in a sentence.
    """

    page: Path
    figures: list[Path]
    sentence: str


def write_report(run: Path, out: Path | None = None, figures: Path | None = None) -> Written:
    """Writes the report of a finished run as one HTML file that needs nothing else, not even a network.

    Args:
        run: folder of the run.
        out: the file; report.html in the run folder if None.
        figures: folder for the figures as PDF and SVG; none are written if None.

    Raises:
        RunFolderError: there is no finished run with a target, or a file cannot be written.
        DataError: a package of `uniot[report]` is missing.
    """
    finished = FinishedRun.open(run)
    drawn = make_map(finished)
    page = run / "report.html" if out is None else out
    write_text(page, render(finished, drawn))
    written = [] if figures is None else write_figures(finished, drawn, figures)
    return Written(page, written, sentence(finished, summarise(finished)))
