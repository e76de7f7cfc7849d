"""`uniot report`: a web page that shows the results of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.options import Preferred, PrivatePrior, check_folder, check_writable
from uniot.cli.screen import console, print_line, working_in_parts
from uniot.io.text import command, counted, plural, quoted
from uniot.runs.files import check_run_folder

if TYPE_CHECKING:
    from uniot.report import Written

# Parts that a bar counts: two of the command, and those of `write_report` without figures.
_PARTS = 5


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write. Default: report.html in the run folder.", show_default=False),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also write every figure as PDF and SVG to this folder, for papers.", show_default=False),
    ] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
) -> None:
    """Write a web page that shows the results of a run; it needs no internet.

    Names that you gave to groups with `uniot label` are used.

    --private-prior and --prefer call more or fewer images unknown on this page; the run does not change.

    Example: `uniot report run/ --figures figures/`
    """
    written = drawn_report(run, out, figures, private_prior, None if prefer is None else prefer.value)
    screen = console()
    screen.print(written.sentence)
    if written.figures:
        n_figures = len(written.figures) // 2
        are = plural(n_figures, "is", "are")
        screen.print(f"{counted(n_figures, 'figure')} {are} written to {quoted(figures)}, each as PDF and SVG.")
    size = written.page.stat().st_size / 1e6
    following = f"Next: {command('open', run)}" if out is None else "Next: open it in a browser."
    print_line(f"{quoted(written.page)} is written, {size:.1f} MB. {following}")


def drawn_report(
    run: Path, out: Path | None, figures: Path | None, private_prior: float | None, prefer: str | None
) -> Written:
    """Write the report of a run and show the progress; arguments as in the command."""
    if out is not None:
        check_writable(out)
    if figures is not None:
        check_folder(figures)
    check_run_folder(run)
    with working_in_parts(_PARTS + (figures is not None)) as next_part:
        next_part("Loading PyTorch")
        from uniot.report import write_report
        from uniot.runs import Run

        next_part("Reading the run")
        opened = Run.open(run, private_prior, prefer)
        written = write_report(opened, out, figures, on_part=next_part)
    if opened.outdated_annotations is not None:
        print_line(f"Warning: {opened.outdated_annotations}", err=True)
    return written
