"""The commands, one file each. Heavy imports happen inside them: `uniot --help` answers at once."""

from __future__ import annotations

import sys

import typer

from uniot import __version__
from uniot.cli.adapt import adapt
from uniot.cli.behaviour import Command, Group, Interrupted
from uniot.cli.benchmark import benchmark
from uniot.cli.data import app as data
from uniot.cli.demo import demo
from uniot.cli.embed import embed
from uniot.cli.encoding import print_anywhere
from uniot.cli.evaluate import evaluate
from uniot.cli.export import export
from uniot.cli.hub import pull, push
from uniot.cli.label import label
from uniot.cli.methods import methods
from uniot.cli.predict import predict
from uniot.cli.report import report
from uniot.errors import RunInterrupted, UniotError

app = typer.Typer(
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    help="Label an unlabelled collection by a labelled one from elsewhere, and find what is in neither.\n\n"
    "Start with `uniot demo`.",
)
for command in (demo, adapt, predict, evaluate, report, label, embed, export, push, pull, methods, benchmark):
    app.command(cls=Command)(command)
app.add_typer(data, name="data")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"uniot {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of every command."""


def main() -> None:
    """Runs a command; what goes wrong is one sentence, not a traceback."""
    print_anywhere()
    try:
        app()
    except RunInterrupted as stop:
        typer.echo(f"\nInterrupted: {stop}", err=True)
        sys.exit(130)
    except UniotError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except Interrupted:
        typer.echo("\nInterrupted. What was finished is kept; the same command goes on from there.", err=True)
        sys.exit(130)
