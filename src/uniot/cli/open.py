"""`uniot open`: the report of a run, or its labelling page, in the browser."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.options import Preferred, PrivatePrior
from uniot.cli.page import LOCALHOST, AllowNetwork, PageHost, PageOptions, PagePort, serve_page
from uniot.cli.report import drawn_report
from uniot.cli.screen import print_line
from uniot.errors import SettingsError
from uniot.io.text import command, quoted

if TYPE_CHECKING:
    from uniot.runs.files import RunFiles


class View(Enum):
    """What to open of a run."""

    REPORT = "report"
    QUESTIONS = "questions"
    GROUPS = "groups"


def open_run(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    view: Annotated[
        View,
        typer.Argument(help="`report`; or the labelling page at its `questions` or its `groups`.", show_default=True),
    ] = View.REPORT,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
    port: PagePort = 0,
    host: PageHost = LOCALHOST,
    allow_network: AllowNetwork = False,
) -> None:
    """Open a run in your browser: its report, or the page that asks and names groups.

    The report is drawn first, if there is none yet or if answers or names changed the run since. The page runs until
    Ctrl-C.

    Example: `uniot open run/`

    To answer questions: `uniot open run/ questions`

    To name the new groups: `uniot open run/ groups`
    """
    page = PageOptions(True, port, host, allow_network)
    if view is View.REPORT:
        if page != PageOptions(True):
            raise SettingsError("--port, --host and --allow-network are for the page: uniot open run/ groups")
        _open_report(run, private_prior, None if prefer is None else prefer.value)
        return
    if private_prior is not None or prefer is not None:
        raise SettingsError("--private-prior and --prefer are for the report: uniot open run/ --prefer known")
    questions = view is View.QUESTIONS
    serve_page(run, page, command("open", run, view.value), "questions" if questions else None)


def _open_report(run: Path, private_prior: float | None, prefer: str | None) -> None:
    import webbrowser

    from uniot.runs.files import RunFiles

    files = RunFiles(run)
    has_preference = private_prior is not None or prefer is not None
    if has_preference or not _is_current(files):
        place = run / "report-preferred.html" if has_preference else None
        print_line(drawn_report(run, place, None, private_prior, prefer).sentence)
        report = place or files.report
    else:
        report = files.report
    if webbrowser.open(report.resolve().as_uri()):
        print_line(f"{quoted(report)} is open in your browser. Next: {command('open', run, 'groups')}")
    else:
        print_line(f"No browser can be opened here. Open this file in one: {quoted(report.resolve())}")


def _is_current(files: RunFiles) -> bool:
    """Return whether the report is newer than everything that it shows."""
    if not files.report.is_file() or not files.model.is_file():
        return False
    drawn = files.report.stat().st_mtime_ns
    ahead = files.annotations.with_name(f"{files.annotations.name}-wal")
    shown = (files.model, files.predictions, files.annotations, ahead, files.metrics, files.true_labels)
    return all(path.stat().st_mtime_ns <= drawn for path in shown if path.is_file())
