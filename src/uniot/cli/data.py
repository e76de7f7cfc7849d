"""`uniot data`: the data sets of the benchmark, and whether a copy of one is complete."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from uniot.cli.options import Command, Group
from uniot.cli.screen import console
from uniot.io.text import counted, listed

if TYPE_CHECKING:
    from uniot.datasets.unpacked import DomainReport, SetReport

_MOST_LINES = 20
# Small parts, so that Ctrl-C stops at once and the progress moves.
_AT_ONCE = 256

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="markdown", help="The data sets of the benchmark.")


@app.command("list", cls=Command)
def list_sets() -> None:
    """List the data sets, their tasks, and where to get them.

    Example: `uniot data list`
    """
    from uniot.datasets.catalogue import BENCHMARK_SETS

    screen = console()
    for known in BENCHMARK_SETS:
        images = sum(domain.n_images for domain in known.domains)
        classes = counted(len(known.classes), "class", "classes")
        screen.print(f"{known.name}: {known.title}, {classes}, {counted(images, 'image')}")
        screen.print(f"  domains  {', '.join(f'{domain.letter} {domain.folder}' for domain in known.domains)}")
        screen.print(f"  tasks    {', '.join(known.tasks)}")
        screen.print(f"  splits   {'; '.join(f'{name} {_sizes(sizes)}' for name, sizes in known.splits.items())}")
        screen.print(f"  folders  {known.layout}")
        screen.print(f"  from     {known.home}")
        screen.print(f"  cite     {known.citation}")
        screen.print(f"  licence  {known.licence}")
    screen.print("Task A2D: labelled images from A, unlabelled ones from D.")
    screen.print("Splits: number of classes in both domains / only in the labelled / only in the unlabelled one.")
    screen.print("uniot downloads none of them.")
    screen.print("Next: uniot data check office31 PATH")


@app.command(cls=Command)
def check(
    name: Annotated[str, typer.Argument(help="office31, office-home, visda or domainnet.")],
    path: Annotated[Path, typer.Argument(help="Folder into which it was unpacked, or one above it.")],
    decode: Annotated[bool, typer.Option("--decode", help="Open every image as well; takes minutes.")] = False,
) -> None:
    """Compare a copy of a data set with what was published: folders, classes, images.

    The exit code is 0 if all is as published, and 1 otherwise.

    Example: `uniot data check office31 data/office31 --decode`
    """
    from uniot.datasets.catalogue import benchmark_set

    report = benchmark_set(name).check(path)
    _show(report)
    unreadable = _unreadable(report) if decode else []
    if unreadable:
        _show_unreadable(unreadable)
    screen = console()
    if not report.as_published:
        screen.print(f"Not as published. {report.advice()}")
        raise typer.Exit(1)
    if unreadable:
        screen.print(
            f"Copy or download the {counted(len(unreadable), 'unreadable image')} anew, then run this command again."
        )
        raise typer.Exit(1)
    opened = "every image opens" if decode else "no image was opened; --decode does that"
    screen.print(f"{report.benchmark.title} is as published ({opened}).")


def _show(report: SetReport) -> None:
    title = f"{report.benchmark.title} in {report.root}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("domain", "folder", "classes", "images", "verdict"):
        table.add_column(column, justify="right" if column in ("classes", "images") else "left", overflow="fold")
    for found in report.domains:
        folder = "-" if found.folder is None else str(found.folder.relative_to(report.root))
        classes = f"{found.n_classes}/{found.n_expected_classes}"
        images = f"{len(found.files)}/{found.domain.n_images}"
        table.add_row(found.domain.letter, folder, classes, images, _verdict(found))
    console().print(table)


def _verdict(found: DomainReport) -> str:
    notes = list(found.faults) or ["as published"]
    if found.extra_folders:
        notes.append(f"not used, because not a class: {listed(found.extra_folders, _MOST_LINES)}")
    return "; ".join(notes)


def _unreadable(report: SetReport) -> list[tuple[Path, str]]:
    """Return the files that do not open as images, each with the reason."""
    from concurrent.futures import ThreadPoolExecutor

    from rich.progress import track

    paths = [file.path for found in report.domains for file in found.files]
    parts = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    screen = console(err=True)
    unreadable = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in track(parts, "opening images", console=screen, transient=True, disable=not screen.is_terminal):
            reasons = zip(part, pool.map(_why_unreadable, part), strict=True)
            unreadable += [(path, reason) for path, reason in reasons if reason is not None]
    return unreadable


def _why_unreadable(path: Path) -> str | None:
    from uniot.images.decoding import UnreadableImage, decoded, memory_for_encoded, read_image

    try:
        # A reduced JPEG is read in full too.
        with memory_for_encoded(path), decoded(read_image(path), shortest_side=1):
            return None
    except UnreadableImage as error:
        return error.reason


def _show_unreadable(unreadable: list[tuple[Path, str]]) -> None:
    screen = console()
    screen.print(f"{counted(len(unreadable), 'image')} cannot be read:")
    for path, reason in unreadable[:_MOST_LINES]:
        screen.print(f"  {path}: {reason}")
    if len(unreadable) > _MOST_LINES:
        screen.print(f"  … and {len(unreadable) - _MOST_LINES} more")


def _sizes(sizes: tuple[int, int, int]) -> str:
    return "/".join(map(str, sizes))
