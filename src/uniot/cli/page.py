"""The labelling page as commands open it: `uniot label` at the groups, `uniot ask` at the questions."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from uniot.cli.screen import print_line, working
from uniot.errors import import_optional
from uniot.io.text import command, quoted
from uniot.runs.files import RunFiles

LOCALHOST = "127.0.0.1"
# Of the page; without them it cannot be served.
PACKAGES = ("fastapi", "jinja2", "uvicorn")

OpenBrowser = Annotated[bool, typer.Option("--open", help="Open the page in your browser.")]
PagePort = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0 chooses a free one.")]
PageHost = Annotated[
    str, typer.Option("--host", help="Network address of the page. The default can be reached from this computer only.")
]
AllowNetwork = Annotated[bool, typer.Option("--allow-network", help="With --host: let other computers reach the page.")]


@dataclass(frozen=True)
class PageOptions:
    """Options of a command that opens the page; true if one of them was given."""

    open_browser: bool = False
    port: int = 0
    host: str = LOCALHOST
    allow_network: bool = False

    def __bool__(self) -> bool:
        return self != PageOptions()


def serve_page(
    run: Path, options: PageOptions, again: str, view: Literal["questions"] | None = None, at: str | None = None
) -> None:
    """Serve the labelling page of a run until Ctrl-C, and print what to do next.

    Args:
        run: folder of a finished run.
        options: of the command.
        again: the command, to be repeated if nothing was labelled.
        view: part of the page to open; None leaves that to the page.
        at: fragment of the page's address to open, in place of the view.
    """
    for package in PACKAGES:
        import_optional(package, "report", "the labelling page")
    starting = ExitStack()

    def on_ready(address: str) -> None:
        starting.close()
        fragment = at or view
        address = address if fragment is None else f"{address}#{fragment}"
        if options.allow_network:
            print_line(
                "Warning: other computers can reach this page, and the connection is not encrypted. Whoever has the "
                "address can see every picture and change every label.",
                err=True,
            )
        print_line(f"{'Label' if view is None else 'Answer'} here: {address}")
        print_line("Every action is saved at once. Ctrl-C ends the page.", err=True)
        if options.open_browser:
            import webbrowser

            webbrowser.open(address)

    with starting:
        starting.enter_context(working("Loading the run", lines=False))
        from uniot.labelling import read_names
        from uniot.labelling.server import serve

        serve(run, host=options.host, port=options.port, allow_network=options.allow_network, on_ready=on_ready)
    files = RunFiles(run)
    found = read_names(files.labels) if files.labels.is_file() else None
    if found is not None and found.names:
        # Answers are in predictions.csv already; names are for the next run.
        following = command("report", run) if view == "questions" and not found.new_classes else after_naming(run)
        ended = f"every label is in {quoted(files.annotations)}. Next: {following}"
    else:
        ended = f"nothing was {'named' if view is None else 'answered'} yet. Next: {again}"
    print_line("", err=True)
    print_line(f"Ended; {ended}", err=True)


def after_naming(run: Path) -> str:
    """Return the command that follows after samples were labelled."""
    from uniot.runs import Run

    # Without labelled samples, names cannot become classes.
    return command("adapt", "--continue", run) if Run.has_source(run) else command("report", run)
