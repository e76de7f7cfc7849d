"""`uniot methods`: the methods that `--method` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from uniot.cli.screen import console, working
from uniot.io.text import counted

if TYPE_CHECKING:
    from uniot.methods.base import MethodInfo


def methods(
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list variants, which leave out or replace a part of a method.")
    ] = False,
) -> None:
    """List the methods that `--method` takes.

    Example: `uniot methods`
    """
    with working("Loading PyTorch", lines=False):
        from uniot.config import Settings
        from uniot.methods.registry import METHODS

    screen, default = console(), Settings.checked().method
    variants = [info for info in METHODS.values() if info.variant_of is not None]
    groups = {
        "Without training (unless --fine-tune is given)": [info for info in METHODS.values() if info.is_closed_form],
        "With training": [info for info in METHODS.values() if not info.is_closed_form],
    }
    screen.print("Keep the default unless you compare methods.", "", sep="\n")
    for title, found in groups.items():
        _show_methods(title, [info for info in found if info not in variants], default)
    if show_all:
        _show_methods("Variants, to see what a part of a method does", variants, default)
    else:
        screen.print(f"{counted(len(variants), 'variant')} of these, for ablation studies: uniot methods --all")
    screen.print("Next: uniot adapt labelled/ unlabelled/ --method NAME --out run/")


def _show_methods(title: str, methods: Iterable[MethodInfo], default: str) -> None:
    from uniot.methods.registry import METHODS

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("method", "an image is", "proposed by"):
        table.add_column(column, no_wrap=column == "method", overflow="fold")
    for info in methods:
        name = f"{info.name} (default)" if info.name == default else info.name
        rebuilt = " (reconstructed from the paper; no public code)" if info.is_reconstruction else ""
        source_free = " (source-free: sees the source only through a trained classifier)" if info.is_source_free else ""
        package = METHODS.package_of(info.name)
        added = "" if package is None else f" (from the package {package})"
        table.add_row(name, info.rule, info.source + rebuilt + source_free + added)
    console().print(table)
    console().print()
