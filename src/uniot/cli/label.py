"""`uniot label`: name the groups of a run on a page in the browser, or exchange labels with other tools."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.options import renamed
from uniot.cli.page import (
    LOCALHOST,
    AllowNetwork,
    OpenBrowser,
    PageHost,
    PageOptions,
    PagePort,
    after_naming,
    serve_page,
)
from uniot.cli.screen import print_line, working
from uniot.errors import SettingsError
from uniot.io.text import command


class ExportFormat(Enum):
    """Format of --out."""

    CSV = "csv"
    JSONL = "jsonl"
    COCO = "coco"
    FIFTYONE = "fiftyone"
    LABEL_STUDIO = "label-studio"


def label(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    open_browser: OpenBrowser = False,
    select: Annotated[
        str | None,
        typer.Option(
            "--select",
            help="What the page shows first: `doubtful`, `source-labels`, group-3, class-0, `like:NAME`, rows that a "
            "report gave, or a .csv with the column path.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Do not open the page; write the labels to this file (for fiftyone: folder)."),
    ] = None,
    kind: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Format of --out. Default: by the ending, .csv or .jsonl."),
    ] = None,
    export: Annotated[str | None, renamed("--export", "--out", "uniot label run/ --out labels.csv")] = None,
    given: Annotated[
        Path | None,
        typer.Option("--import", help="Do not open the page; read labels from a .csv or .jsonl with path and label."),
    ] = None,
    port: PagePort = 0,
    host: PageHost = LOCALHOST,
    allow_network: AllowNetwork = False,
) -> None:
    """Name the groups of unknown samples on a page in your browser, and correct labels.

    As long as the run has no answers, the page begins with the questions of `uniot ask`; the groups are beside them.

    Groups can be merged and split, samples moved or discarded, and every action undone. All is saved at once, and
    `uniot report`, `uniot predict`, predictions.csv and `uniot adapt --continue` use it.

    Example: `uniot label run/ --open`

    The predictions that are most probably wrong, one by one: `uniot label run/ --select doubtful --open`

    For other labelling tools: `uniot label run/ --out tasks.json --format label-studio`
    """
    if kind is not None and out is None:
        raise SettingsError("--format is given without --out. Give --out FILE as well, or leave --format out.")
    if given is not None or out is not None:
        if select is not None:
            raise SettingsError("--select opens the page, and --import and --out do not. Leave one of them out.")
        if given is not None:
            with working("Reading the labels", lines=False):
                from uniot.labelling.publishing import import_run

                imported = import_run(run, given)
            print_line(f"{imported} Next: {command('label', run)}")
        if out is not None:
            with working("Writing the labels", lines=False):
                from uniot.labelling.publishing import export_run

                exported = export_run(run, out, None if kind is None else kind.value)
            following = after_naming(run) if len(exported) else command("label", run)
            print_line(f"{exported.sentence()} Next: {following}")
        return
    at = None
    if select is not None:
        from uniot.labelling.selecting import fragment_of
        from uniot.runs import Run

        at = fragment_of(Run.open(run), select)
    serve_page(run, PageOptions(open_browser, port, host, allow_network), command("label", run), at=at)
