"""`uniot compare`: what changed from one run to another, for whom, and whether it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from uniot.cli.options import IdsColumn, LabelColumn, check_writable
from uniot.cli.screen import console, show_next, working
from uniot.io.columns import Columns
from uniot.io.text import command, quoted

_MOST_LINES = 12


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    after: Annotated[Path, typer.Argument(help="Folder of another run on the same samples, or some of them.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="True labels of the second run's samples, as for `uniot evaluate`. Default: those that either run was "
            "scored with, if any.",
            show_default=False,
        ),
    ] = None,
    label: LabelColumn = None,
    ids: IdsColumn = None,
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write. Default: compare.html in the second run's folder.", show_default=False),
    ] = None,
) -> None:
    """Show which labels changed from one run to another, for which samples, and write a page with their pictures.

    Samples are matched by their names; predictions follow what people said. True labels only judge the two runs.

    Example: `uniot compare run/ run-continued/ --labels truth.csv`
    """
    from uniot.io.embedding_files import read_labels
    from uniot.report.comparison import RunComparison
    from uniot.report.comparison_page import write_comparison
    from uniot.runs import Run

    first, second = Run.open(before), Run.open(after)
    out = second.files.comparison if out is None else out
    check_writable(out)
    truth = None
    if labels is not None:
        columns = Columns(label, ids).needs("label", "ids").over(Columns.of_inputs(second.inputs))
        truth = read_labels(labels, second.predictions.names, columns)
    with working("Comparing the runs"):
        found = RunComparison.of(first, second, truth)
        write_comparison(found, out)
    screen = console()
    for sentence in found.sentences:
        screen.print(sentence)
    if found.transitions:
        table = Table(box=None, pad_edge=False)
        for title in ("before", "now"):
            table.add_column(title, overflow="fold")
        table.add_column("samples", justify="right")
        for one in found.transitions[:_MOST_LINES]:
            table.add_row(Text(one.before), Text(one.after), f"{len(one.rows):,}")
        screen.print(table)
    changed = [one for one in found.classes if one.mended or one.broken][:_MOST_LINES]
    if changed:
        table = Table(box=None, pad_edge=False)
        table.add_column("true class", overflow="fold")
        for title in ("samples", "right before", "right now"):
            table.add_column(title, justify="right")
        for each in changed:
            table.add_row(Text(each.name), f"{each.count:,}", f"{each.before:,}", f"{each.after:,}")
        screen.print(table)
    screen.print(f"{quoted(out)} is written, {out.stat().st_size / 1e6:.1f} MB.")
    show_next({command("label", after, "--select", "doubtful"): "look at the most doubtful of the second run"})
