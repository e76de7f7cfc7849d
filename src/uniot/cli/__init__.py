"""The command line. Commands import heavy packages when they run, so that `uniot --help` is fast."""

from __future__ import annotations

import atexit
import gc
import sys

import typer

from uniot import __version__
from uniot.cli.adapt import adapt
from uniot.cli.ask import ask
from uniot.cli.benchmark import benchmark
from uniot.cli.compare import compare
from uniot.cli.data import app as data
from uniot.cli.demo import demo
from uniot.cli.embed import embed
from uniot.cli.evaluate import evaluate
from uniot.cli.export import export
from uniot.cli.label import label
from uniot.cli.methods import methods
from uniot.cli.open import open_run
from uniot.cli.options import Command, Group, Interrupted
from uniot.cli.predict import predict
from uniot.cli.pull import pull
from uniot.cli.push import push
from uniot.cli.report import report
from uniot.cli.schema import schema
from uniot.cli.screen import print_anywhere, print_line
from uniot.cli.tell import tell
from uniot.cli.train_source import train_source
from uniot.errors import RunInterrupted, UniotError

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    # Python's own traceback goes through the streams of `print_anywhere`, which escape names in it.
    pretty_exceptions_enable=False,
    help="Label images with the classes of images that you have sorted already, and group those that fit none.\n\n"
    "Start with `uniot demo`, or with your own folders: `uniot adapt labelled/ unlabelled/ --out run/`",
)
for command in (
    demo,
    adapt,
    predict,
    evaluate,
    report,
    open_run,
    compare,
    ask,
    tell,
    label,
    train_source,
    embed,
    export,
    push,
    pull,
    methods,
    schema,
    benchmark,
):
    # `open` is a function of Python's own.
    app.command("open" if command is open_run else None, cls=Command)(command)
app.add_typer(data, name="data")


_OBJECTS_PER_COLLECTION = 100_000


def _version(show: bool) -> None:
    if show:
        print_line(f"uniot {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run a command; print a known error as one sentence, without a traceback."""
    print_anywhere()
    # Importing torch creates very many objects, and searching them for garbage takes a fifth of the time of
    # `uniot predict run/ photo.jpg`: by Python's default after every 700 objects, and once more at the end.
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20)
    atexit.register(gc.freeze)
    try:
        # Also of `python -m uniot`: completion and help know the command by one name.
        app(prog_name="uniot")
    except RunInterrupted as stop:
        print_line("", err=True)
        print_line(f"Interrupted: {stop}", err=True)
        sys.exit(130)
    except UniotError as error:
        print_line(f"Error: {error}", err=True)
        sys.exit(1)
    except Interrupted:
        print_line("", err=True)
        print_line("Interrupted. Finished work is kept; the same command continues from there.", err=True)
        sys.exit(130)
