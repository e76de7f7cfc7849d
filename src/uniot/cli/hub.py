"""`uniot push` and `uniot pull`: runs shared on the Hugging Face hub, or in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.screen import console
from uniot.words import counted

_REPOSITORY = "`owner/name` on the Hugging Face hub; or a folder, such as ./shared."


def push(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    repository: Annotated[str, typer.Argument(help=_REPOSITORY)],
    public: Annotated[bool, typer.Option("--public", help="Everybody may see it; only you unless given.")] = False,
    licence: Annotated[str | None, typer.Option(help="For the model card: mit, cc-by-4.0, …")] = None,
) -> None:
    """Share a finished run. Answers, features and file names of the target stay here.

    The token is the one of `hf auth login`, or HF_TOKEN.

    Example: `uniot push run/ owner/name`
    """
    from uniot.hub import push as send

    place = send(run, repository, private=not public, licence=licence)
    screen = console()
    screen.print(
        f"{place} holds the weights, the class names, the settings and a model card; not the answers for the target, "
        "nor its features, nor paths."
    )
    screen.print(f"Next: uniot pull {repository} --out copy/")


def pull(
    repository: Annotated[str, typer.Argument(help=_REPOSITORY)],
    out: Annotated[Path, typer.Option(help="The run folder; new, or empty.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit; main unless given.")] = None,
) -> None:
    """Fetch a run that was shared; tensors and text only, checked before they are used.

    Example: `uniot pull owner/name --out run/`
    """
    from uniot.hub import pull as fetch

    model = fetch(repository, out, revision)
    new = "photo.jpg" if model.reader is not None else "new.npz"
    groups = counted(model.groups.n_groups, "group")
    console().print(
        f"{out} holds a run with {counted(len(model.classes), 'class', 'classes')} and {groups} of unknown samples. "
        f"Next: uniot predict {out} {new}"
    )
