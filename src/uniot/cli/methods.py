"""`uniot methods`: what can be compared under one protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from uniot.cli.screen import console
from uniot.words import counted

if TYPE_CHECKING:
    from uniot.methods import MethodInfo


def methods(
    show_all: Annotated[
        bool, typer.Option("--all", help="Also variants, which leave a part of a method out or replace it.")
    ] = False,
) -> None:
    """List the methods that `--method` takes.

    Example: `uniot methods`
    """
    from uniot.methods import METHODS
    from uniot.settings import Settings

    screen, default = console(), Settings.checked().method
    variants = [info for info in METHODS.values() if info.variant_of is not None]
    groups = {
        "Without training on given embeddings": [info for info in METHODS.values() if info.is_closed_form],
        "Trained": [info for info in METHODS.values() if not info.is_closed_form],
    }
    for title, found in groups.items():
        _show(title, [info for info in found if info not in variants], default)
    if show_all:
        _show("Variants, to see what a part of a method does", variants, default)
    else:
        screen.print(f"{counted(len(variants), 'variant')} of these, for ablations: uniot methods --all")
    screen.print("Next: uniot adapt labelled/ unlabelled/ --method NAME --out run/")


def _show(title: str, methods: Iterable[MethodInfo], default: str) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("method", "rule", "source"):
        table.add_column(column, no_wrap=column == "method", overflow="fold")
    for info in methods:
        name = f"{info.name} (default)" if info.name == default else info.name
        rebuilt = " (rebuilt from the paper's words; no public code)" if info.is_reconstruction else ""
        table.add_row(name, info.rule, info.source + rebuilt)
    console().print(table)
    console().print()
