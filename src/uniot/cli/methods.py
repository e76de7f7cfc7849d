"""`uniot methods`: what can be compared under one protocol."""

from __future__ import annotations

from rich.table import Table

from uniot.cli.screen import console


def methods() -> None:
    """List the methods that `--method` takes.

    Example: `uniot methods`
    """
    from uniot.methods import METHODS

    table = Table(box=None, pad_edge=False)
    for column in ("method", "rule", "source"):
        table.add_column(column, no_wrap=column == "method", overflow="fold")
    for info in METHODS.values():
        rebuilt = " (rebuilt from the paper's words; no public code)" if info.is_reconstruction else ""
        table.add_row(info.name, info.rule, info.source + rebuilt)
    console().print(table)
    console().print("Next: uniot adapt labelled/ unlabelled/ --method NAME --out run/")
