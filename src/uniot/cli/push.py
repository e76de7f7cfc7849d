"""`uniot push`: share a run on the Hugging Face hub, or in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.screen import console, print_line, working
from uniot.io.text import command
from uniot.runs.files import check_run_folder

REPOSITORY_HELP = "`owner/name` on the Hugging Face hub; or a folder, such as ./shared."


def push(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    repository: Annotated[str, typer.Argument(help=REPOSITORY_HELP)],
    public: Annotated[
        bool, typer.Option("--public", help="Make it visible to everybody. Default: only to you.")
    ] = False,
    licence: Annotated[str | None, typer.Option(help="For the model card: mit, cc-by-4.0, …")] = None,
) -> None:
    """Share a finished run, without the predictions, features and file names of the target.

    Uses the token of `hf auth login`, or HF_TOKEN.

    Example: `uniot push run/ owner/name`
    """
    check_run_folder(run)
    with working("Loading PyTorch") as then:
        from uniot.export.hub import push as send

        then(f"Sending the run to {repository}")
        place = send(run, repository, private=not public, licence=licence)
    screen = console()
    screen.print(
        f"{place} contains the weights, the class names, the settings and a model card; no predictions for the target, "
        "no features of it, and no paths."
    )
    print_line(f"Next: {command('pull', repository, '--out', 'copy/')}")
