"""From a run folder to files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from uniot.model import AdaptedModel
from uniot.report.figures import write_figures
from uniot.report.finished_run import FinishedRun
from uniot.report.map import make_map
from uniot.report.page import render
from uniot.report.summary import sentence, summarise
from uniot.run_contents import preference_line
from uniot.run_folder import write_text


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        page: the HTML file.
        figures: PDF and SVG files, in the order of the page; none where they were not asked for.
        sentence: the run in a sentence.
        model: what the page is about.
    """

    page: Path
    figures: list[Path]
    sentence: str
    model: AdaptedModel


def write_report(
    run: Path,
    out: Path | None = None,
    figures: Path | None = None,
    private_prior: float | None = None,
    prefer: str | None = None,
) -> Written:
    """Writes the report of a finished run as one HTML file that needs nothing else, not even a network.

    Args:
        run: folder of the run.
        out: the file; report.html in the run folder if None.
        figures: folder for the figures as PDF and SVG; none are written if None.
        private_prior: fraction of the target that is to be unknown, instead of what the run says.
        prefer: "known" or "unknown", likewise.

    Raises:
        RunFolderError: there is no finished run with a target, or a file cannot be written.
        DataError: a package of `uniot[report]` is missing.
    """
    finished = FinishedRun.open(run, private_prior, prefer)
    drawn = make_map(finished)
    page = run / "report.html" if out is None else out
    write_text(page, render(finished, drawn))
    written = [] if figures is None else write_figures(finished, drawn, figures)
    said = [sentence(finished, summarise(finished)), preference_line(finished.model)]
    return Written(page, written, " ".join(filter(None, said)), finished.model)
