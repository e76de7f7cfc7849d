"""`uniot label`: a page on which people name the new groups."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from uniot.errors import DataError, SettingsError


class ExportFormat(Enum):
    """Formats of --export."""

    CSV = "csv"
    JSONL = "jsonl"
    COCO = "coco"
    FIFTYONE = "fiftyone"
    LABEL_STUDIO = "label-studio"


def label(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Only write what was labelled to this file, or folder for fiftyone; no page."),
    ] = None,
    kind: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Format of --export; told by the name of a .csv or .jsonl file."),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--import", help="Only take over labels from a .csv or .jsonl with path and label; no page."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 is any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on; only this machine can reach the default.")] = (
        "127.0.0.1"
    ),
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="Let other machines reach the page, with --host.")
    ] = False,
) -> None:
    """Name the groups of the unknown on a page in your browser: merge, split, move, discard, undo.

    Everything is saved as you go. Names are used by `uniot report`, `uniot predict`, predictions.csv and `uniot adapt
    --continue` as soon as they are given.

    Example: `uniot label run/ --open`

    For other tools: `uniot label run/ --export tasks.json --format label-studio`
    """
    if kind is not None and export is None:
        raise SettingsError("--format says what --export writes. Give --export FILE as well, or leave --format out.")
    try:
        if given is not None or export is not None:
            if given is not None:
                from uniot.labelling.importing_run import import_run

                typer.echo(f"{import_run(run, given)} Next: uniot label {run}")
            if export is not None:
                from uniot.labelling.exporting import export_run

                exported = export_run(run, export, None if kind is None else kind.value)
                following = f"uniot adapt --continue {run}" if len(exported) else f"uniot label {run}"
                typer.echo(f"{exported.sentence()} Next: {following}")
            return
        from uniot.labelling.server import serve
    except ImportError as error:
        raise DataError(
            f"the labelling page is served with {error.name}, which cannot be imported ({error}). "
            "Run `pip install 'uniot[report]'`."
        ) from None

    def on_ready(address: str) -> None:
        if allow_network:
            typer.echo(
                "Warning: other machines can reach this page, and nothing on the way is encrypted. Whoever has the "
                "address sees every picture and can change every label.",
                err=True,
            )
        typer.echo(f"Label here: {address}")
        typer.echo("Everything is saved as you go. Ctrl-C ends the page.", err=True)
        if open_browser:
            import webbrowser

            webbrowser.open(address)

    serve(run, host=host, port=port, allow_network=allow_network, on_ready=on_ready)
    typer.echo(f"\nEnded; every label is in {run / 'labels.sqlite'}. Next: uniot adapt --continue {run}", err=True)
