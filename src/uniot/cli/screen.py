"""What commands print: any encoding, names as visible text, tables, sentences and progress bars.

Commands print with `console`, `print_line` and `table_output`, and with nothing else.
"""

from __future__ import annotations

import codecs
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType, RenderHook
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from uniot.io.text import command, counted, listed, plural, quoted
from uniot.io.visible import escape_output, visible, visible_text

if TYPE_CHECKING:
    from uniot.images.embedding import Skipped
    from uniot.io.predictions import Prediction
    from uniot.runs import RunFiles
    from uniot.training.domains import ImagePair
    from uniot.training.model import AdaptedModel

_MOST_LINES = 40
_PACKAGE = Path(__file__).parents[1]

_HANDLER = "uniot-ascii"
# Characters that commands print. Others, such as those of file names, are escaped: \u4e2d.
_IN_ASCII = {
    "±": "+-",
    "×": "x",
    "−": "-",
    "–": "-",
    "…": "...",
    "→": "->",
    "³": "^3",
    "₀": "0",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "ε": "epsilon",
    "η": "eta",
    "κ": "kappa",
    "λ": "lambda",
    "μ": "mu",
    "ρ": "rho",
    "τ": "tau",
    "•": "*",
    "’": "'",
    "“": '"',
    "”": '"',
}


def print_anywhere() -> None:
    """Prepare standard output and standard error for any encoding and any name.

    Characters that their encoding lacks are replaced, and what cannot be seen is escaped: whatever a command, a library
    or Python itself prints, a name in it is text. Warnings become one line.
    """
    codecs.register_error(_HANDLER, _in_ascii)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `uniot methods >&-`
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_HANDLER)
    _escape_streams()
    warnings.formatwarning = _warning_line


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    written = (_IN_ASCII.get(one) or one.encode("ascii", "backslashreplace").decode("ascii") for one in letters)
    return "".join(written), error.end


def _escape_streams() -> None:
    sys.stdout, sys.stderr = escape_output(sys.stdout), escape_output(sys.stderr)


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if Path(filename).is_relative_to(_PACKAGE):
        return f"Warning: {visible(str(message))}\n"
    return f"{visible(filename)}:{lineno}: {category.__name__}: {visible(str(message))}\n"


class Screen(Console):
    r"""A console that prints names as they are: what cannot be seen is escaped, markup and emoji codes mean nothing.

    A printed text, a cell or a title is one line: line breaks in it are those of a name, and are escaped as well.
    Several lines are several texts: `print(first, second, sep="\n")`.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text that fits its place once it is escaped."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the parts of anything printed, escaped and without links; rich's own control codes are kept."""
        for part in super().render(renderable, options):
            # Some parts of rich obey markup by themselves, and a link leads to where a name wants.
            style = part.style.update_link(None) if part.style is not None and part.style.link else part.style
            yield part if part.control else Segment(visible_text(part.text), style)

    def push_render_hook(self, hook: RenderHook) -> None:
        """Begin to show a progress bar."""
        super().push_render_hook(hook)
        # rich puts streams of its own before standard output and error now, and those obey colours and links.
        _escape_streams()


def is_interactive() -> bool:
    """Return whether a person is at a terminal: neither input nor output is a pipe or a file."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def console(width_of_a_file: int | None = None, *, err: bool = False) -> Screen:
    """Return a console on standard output, or on standard error, without colours if that is a file.

    Args:
        width_of_a_file: width of tables if no terminal sets it.
        err: whether to print to standard error.
    """
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    width = None if is_terminal else width_of_a_file
    soft_wrap = not is_terminal and not err
    return Screen(stderr=err, highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap, width=width)


def print_line(line: str, *, err: bool = False) -> None:
    """Print a line that the terminal breaks where it ends, to standard output or standard error."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{visible(line)}\n")
    stream.flush()


def table_output() -> TextIO:
    """Return the stream for a table on standard output: unchanged data for a file or a pipe, escaped for a terminal."""
    stream: TextIO = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    return cast(TextIO, _VisibleRows(stream)) if stream.isatty() else stream


class _VisibleRows:
    """A stream that receives a row of a table at a time, and shows it in one line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: str) -> int:
        line = row.removesuffix("\n")
        self._stream.write(f"{visible(line)}\n")
        return len(row)


def show_next(commands: Mapping[str, str]) -> None:
    """Print what to do next: commands to paste into a shell, each with a comment on what it does."""
    width = max(map(len, commands))
    for number, (line, comment) in enumerate(commands.items()):
        # Not wrapped: a command in two lines could not be pasted.
        print_line(f"{'      ' if number else 'Next: '}{line:{width}}  # {comment}")


def show_prediction(model: AdaptedModel, prediction: Prediction) -> None:
    """Print how often each class and each group of unknown samples was found."""
    found = Counter(str(name) for name in model.labels(prediction)[prediction.known])
    table = Table(title="What was found", title_justify="left", box=None, pad_edge=False)
    table.add_column("class")
    table.add_column("number", justify="right")
    for name, count in found.most_common(_MOST_LINES):
        table.add_row(name, str(count))
    if len(found) > _MOST_LINES:
        table.add_row(f"… and {len(found) - _MOST_LINES} more", "")
    groups = Counter(int(group) for group in prediction.group if group >= 0)
    for group, count in groups.most_common(_MOST_LINES):
        table.add_row(f"unknown, group {group}", str(count))
    if len(groups) > _MOST_LINES:
        table.add_row(f"… and {counted(len(groups) - _MOST_LINES, 'more group')}", "")
    console().print(table)


def show_private_classes(model: AdaptedModel, run: Path) -> None:
    """Print the estimated number of new classes of a run, and the labelled classes that were not found."""
    from uniot.discovery.class_count import why_ungrouped

    number, screen, n_unknown = model.groups.number, console(), int((~model.target.known).sum())
    low, high = number.interval
    if n_unknown and not model.groups.n_groups:
        reason = why_ungrouped(n_unknown, asked_for_none=model.settings.n_private_classes == 0)
        number_is_asked = n_unknown > 1 and model.settings.n_private_classes is None
        hint = "If you know how many there are, run again with --private-classes. " if number_is_asked else ""
        look = f"Look at {plural(n_unknown, 'it', 'them')} with `{command('label', run)}`."
        print_line(f"{n_unknown:,} {reason}. {hint}{look}")
    elif n_unknown and number.evidence:
        between = f", between {low} and {high}" if low != high else ""
        screen.print(f"New classes among the unknown: about {number.estimate}{between}.")
    absent = model.absent_classes.tolist()
    if absent:
        screen.print(f"Your classes that were not found: {listed(absent, _MOST_LINES)}.")


def show_descriptions(model: AdaptedModel, run: Path) -> None:
    """Print the names that are suggested for the largest new groups of a run, if it describes them."""
    from uniot.runs.group_descriptions import GroupDescriptions

    descriptions = GroupDescriptions.open(run)
    if descriptions is None:
        return
    screen, sizes = console(), Counter(model.target.group[model.target.group >= 0].tolist())
    largest = [group for group, _ in sizes.most_common() if descriptions.of(group).suggestions]
    if not largest:
        return
    screen.print("Names that the new groups suggest:")
    for group in largest[:_MOST_LINES]:
        screen.print(f"  group {group} ({sizes[group]:,}): {', '.join(descriptions.of(group).suggestions)}")


def show_warning(words: str) -> None:
    """Print a warning."""
    console().print(f"Warning: {words}")


def show_reliability(model: AdaptedModel, shown: Collection[str] = ()) -> None:
    """Print the estimated accuracy, and the warnings that were not shown before."""
    screen, found = console(), model.reliability_of_decision
    if found.accuracy is not None:
        screen.print(found.sentence)
    for words in found.warnings:
        if words not in shown:
            show_warning(words)


def show_reading(images: ImagePair, files: RunFiles) -> None:
    """Print how many files could not be read, and how many are in both collections."""
    screen, in_both = console(), len(images.duplicates)
    if images.skipped:
        screen.print(skipped_line(images.skipped, files.skipped))
    for label, one in images.lost_classes.items():
        screen.print(lost_line(label, one))
    if in_both:
        screen.print(
            f"{counted(in_both, 'image')} {plural(in_both, 'is', 'are')} in both collections, byte for byte. "
            f"See {quoted(files.duplicates)}."
        )


def labelled_line(place: Path, number: int, n_classes: int, kind: str) -> str:
    """Return a sentence on how many labelled samples there are, such as images."""
    return f"Labelled: {counted(number, kind)} of {counted(n_classes, 'class', 'classes')} in {place}."


def skipped_line(skipped: Sequence[Skipped], table: Path | str | None) -> str:
    """Return a sentence on the files that could not be read; `table` is the file that lists all of them."""
    first = f"{'such as ' if len(skipped) > 1 else ''}{skipped[0].name} ({skipped[0].reason})"
    return f"{counted(len(skipped), 'file')} could not be read: {first}.{f' See {quoted(table)}.' if table else ''}"


def lost_line(label: str, skipped: Skipped) -> str:
    """Return a warning about a class of which no image could be read."""
    return f"Warning: no image of {label!r} could be read, so the class is left out: {skipped.name} ({skipped.reason})."


def verdict(prediction: Prediction) -> str:
    """Return the number of known and unknown samples and of groups, as a sentence."""
    tally = Tally()
    tally.add(prediction)
    return tally.verdict()


class Tally:
    """Counts of predictions that come block by block."""

    def __init__(self) -> None:
        self._n_known = self._n_unknown = 0
        self._groups: set[int] = set()

    def add(self, prediction: Prediction) -> None:
        """Count a block of predictions."""
        n_known = int(prediction.known.sum())
        self.count(n_known, len(prediction) - n_known, prediction.group[prediction.group >= 0].tolist())

    def count(self, n_known: int, n_unknown: int, groups: Iterable[int]) -> None:
        """Count predictions that were counted before; `groups` are those of the unknown ones."""
        self._n_known += n_known
        self._n_unknown += n_unknown
        self._groups.update(groups)

    def verdict(self) -> str:
        """Return the number of known and unknown samples and of groups, as a sentence."""
        groups = f" in {counted(len(self._groups), 'group')}" if self._groups else ""
        return f"{self._n_known} known, {self._n_unknown} unknown{groups}."


OnStep = Callable[[int, int, Mapping[str, float]], None]
OnProgress = Callable[[int, int, int, float], None]
# Columns of a terminal that has room for the loss beside a bar.
_WIDE = 80


@contextmanager
def fitting_progress(title: str, shown: bool = True) -> Iterator[OnStep | None]:
    """Show on standard error that a method is fitted: the steps if it trains, words before and after them.

    Args:
        title: the method.
        shown: whether anything is shown.

    Yields:
        The function to call after each step; None if nothing is shown.
    """
    screen = console(err=True)
    if not shown:
        yield None
        return
    if not screen.is_terminal:
        _print_to_stderr(f"Fitting {title} …")
        yield _print_every_tenth
        return
    with ExitStack() as words, closing(_Bar(screen, "training", TimeRemainingColumn())) as bar:
        words.enter_context(working(f"Fitting {title}"))

        def on_step(step: int, steps: int, row: Mapping[str, float]) -> None:
            words.close()
            bar.show(step, steps, _loss(row) if screen.width >= _WIDE else "")
            if step == steps:
                words.enter_context(working(f"Labelling with {title}"))

        yield on_step


@contextmanager
def reading_progress(titles: Mapping[str, str], kind: str = "image") -> Iterator[Callable[[str], OnProgress]]:
    """Show on standard error how many images of a collection were read, and how fast.

    Args:
        titles: what is shown of the collections, such as their places, by their names.
        kind: what is read, in the singular.

    Yields:
        A function from the name of a collection to the callback that reports its progress.
    """
    screen = console(err=True)
    with ExitStack() as stack:

        def of(collection: str) -> OnProgress:
            title = titles.get(collection, collection)
            if not screen.is_terminal:
                return _PrintedReading(title, kind)
            bar = stack.enter_context(closing(_Bar(screen, f"reading {_short(visible(title), screen.width)}")))
            return lambda done, total, computed, speed: bar.show(
                done, total, _speed(done, total, computed, speed, kind)
            )

        yield of


@contextmanager
def working(words: str, *, lines: bool = True, shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Show on standard error what is being done.

    Args:
        words: what is being done.
        lines: whether the words are also written, as lines, if standard error is no terminal.
        shown: whether anything is shown.

    Yields:
        A function that replaces the words.
    """
    screen = console(err=True)
    if shown and screen.is_terminal:
        with screen.status(Clock(words)) as status:
            yield lambda more: status.update(Clock(more))
        return
    write = _print_to_stderr if shown and lines else _print_nothing
    write(f"{words} …")
    yield lambda more: write(f"{more} …")


class Clock:
    """Shows what is being done, and for how long once that is more than a moment."""

    def __init__(self, words: str) -> None:
        # Markup in a text would be obeyed, unlike that in a `Text`.
        self._words, self._began = visible(words), time.monotonic()

    def __rich__(self) -> Text:
        seconds = int(time.monotonic() - self._began)
        return Text(f"{self._words}{f', {seconds} s' if seconds >= _MOMENT else ''}", overflow="ellipsis", no_wrap=True)


# Seconds without an end in sight, after which it helps to see that time passes.
_MOMENT = 3


@contextmanager
def working_in_parts(count: int) -> Iterator[Callable[[str], None]]:
    """Show on standard error which part of some work is being done, with a bar of how many are done.

    Args:
        count: number of parts.

    Yields:
        A function to call at the beginning of each part, with what it does.
    """
    screen = console(err=True)
    if not screen.is_terminal:
        yield lambda words: _print_to_stderr(f"{words} …")
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="ellipsis", no_wrap=True, ratio=1)),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=count, completed=-1)
        yield lambda words: bar.update(task, advance=1, description=visible(words))


def _print_to_stderr(line: str) -> None:
    print_line(line, err=True)


def _print_nothing(line: str) -> None:
    pass


def _short(title: str, width: int) -> str:
    """Return the end of a path, at most a third of the width of the screen."""
    most = max(10, width // 3)
    return title if len(title) <= most else f"…{title[1 - most :]}"


class _Bar:
    """Progress bar from the first report to the last; without a total it only moves."""

    def __init__(self, screen: Console, title: str, *columns: ProgressColumn) -> None:
        what, count, note = (
            TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[count]", "fields[note]")
        )
        # The spinner moves while a long step does not.
        self._progress = Progress(
            SpinnerColumn(), what, BarColumn(), count, *columns, note, console=screen, transient=True
        )
        self._title = title
        self._task: TaskID | None = None

    def show(self, done: int, total: int, note: str) -> None:
        if self._task is None:
            self._task = self._progress.add_task(self._title, total=total or None, count="", note="")
        self._progress.update(self._task, completed=done, total=total or None, count=_count(done, total), note=note)
        self._progress.start()  # does nothing the second time
        if done == total:
            self.close()

    def close(self) -> None:
        self._progress.stop()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class _PrintedReading:
    """Progress as lines on standard error, one per tenth of a collection, if that is not a terminal."""

    def __init__(self, title: str, kind: str) -> None:
        self._title, self._kind, self._next = title, kind, 0

    def __call__(self, done: int, total: int, computed: int, per_second: float) -> None:
        if done < self._next and done != total:
            return
        if not done:
            number = f": {counted(total, self._kind)}" if total else ""
            _print_to_stderr(f"Reading {self._title}{number} …")
            return
        speed = _speed(done, total, computed, per_second, self._kind)
        _print_to_stderr(f"Reading {self._title}: {self._kind} {_count(done, total)}{f', {speed}' if speed else ''}")
        self._next = 0 if done == total else done + max(1, (total or done) // 10)


def _count(done: int, total: int) -> str:
    return f"{done}/{total}" if total else str(done)


def _speed(done: int, total: int, computed: int, per_second: float, kind: str) -> str:
    """Return the speed; nothing before the first batch, because everything may come from the store."""
    if not done:
        return "preparing the network"
    if computed:
        return f"{per_second:.0f} {kind}s/s"
    return "computed before" if done == total else ""


def _print_every_tenth(step: int, steps: int, row: Mapping[str, float]) -> None:
    if step % max(1, steps // 10) == 0 or step == steps:
        _print_to_stderr(f"Training: step {step}/{steps}{f', {loss}' if (loss := _loss(row)) else ''}")


def _loss(row: Mapping[str, float]) -> str:
    return f"loss {row['loss']:.3f}" if "loss" in row else ""
