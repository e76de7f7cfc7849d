"""`uniot schema`: what the files of a run folder contain, for programs that read them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from uniot.cli.screen import print_line
from uniot.errors import DataError
from uniot.io.text import listed


def schema(
    file: Annotated[
        str | None,
        typer.Argument(help="Name of a file of a run folder, such as predictions.csv. Default: all files."),
    ] = None,
) -> None:
    """Print the JSON schema (draft 2020-12) of the files of a run folder.

    A CSV table is described as the list of its rows, each an object from column to text.

    Example: `uniot schema predictions.csv`
    """
    from uniot.runs.schemas import DIALECT, run_schemas

    schemas = run_schemas()
    if file is not None and file not in schemas:
        raise DataError(f"there is no schema of {file!r}. Give one of {listed(schemas, 20)}.")
    printed = schemas[file] if file is not None else {"$schema": DIALECT, "$defs": schemas}
    for line in json.dumps(printed, indent=2).splitlines():
        print_line(line)
