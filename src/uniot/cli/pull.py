"""`uniot pull`: download a shared run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.push import REPOSITORY_HELP
from uniot.cli.screen import print_line, working
from uniot.io.text import command, counted, quoted


def pull(
    repository: Annotated[str, typer.Argument(help=REPOSITORY_HELP)],
    out: Annotated[Path, typer.Option(help="Folder for the run, new or empty.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit; main by default.")] = None,
) -> None:
    """Download a shared run; it contains tensors and text only, which are checked before they are used.

    Example: `uniot pull owner/name --out run/`
    """
    with working("Loading PyTorch") as then:
        from uniot.export.hub import pull as fetch

        then(f"Fetching the run from {repository}")
        model = fetch(repository, out, revision)
    new = "photo.jpg" if model.reader is not None else "new.npz"
    groups = counted(model.groups.n_groups, "group")
    classes = counted(len(model.classes), "class", "classes")
    print_line(f"{quoted(out)} contains a run with {classes} and {groups} of unknown samples.")
    print_line(f"Next: {command('predict', out, new)}")
