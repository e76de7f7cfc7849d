"""`uniot report`: a finished run for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.checks import check_folder, check_writable
from uniot.cli.preference import Preferred, PrivatePrior
from uniot.cli.progress import working
from uniot.cli.run_files import warn_of_outdated_names
from uniot.cli.screen import console
from uniot.words import counted, plural


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; report.html in the run folder by default.", show_default=False)
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for every figure as PDF and SVG, for papers.", show_default=False)
    ] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
) -> None:
    """Write one HTML file that shows what a run found; it needs no network.

    Names given to groups on the page of `uniot label` are used here too.

    --private-prior and --prefer show the answers by another threshold; the run stays as it is.

    Example: `uniot report run/ --figures figures/`
    """
    from uniot.report import write_report

    if out is not None:
        check_writable(out)
    if figures is not None:
        check_folder(figures)
    with working("Drawing the report"):
        written = write_report(run, out, figures, private_prior, None if prefer is None else prefer.value)
    warn_of_outdated_names(run, written.model)
    screen = console()
    screen.print(written.sentence)
    if written.figures:
        n_figures = len(written.figures) // 2
        are = plural(n_figures, "is", "are")
        screen.print(f"{counted(n_figures, 'figure')} {are} written to {figures}, each as PDF and SVG.")
    size = written.page.stat().st_size / 1e6
    screen.print(f"{written.page} is written, {size:.1f} MB. Next: open it in a browser.")
