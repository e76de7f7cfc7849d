"""Progress on standard error: a bar where somebody watches, plain lines where not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn

OnStep = Callable[[int, int, Mapping[str, float]], None]
OnProgress = Callable[[int, int, int, float], None]
# Columns from which on there is room for a bar and for the losses beside it.
_WIDE = 80


@contextmanager
def training_progress(shown: bool = True) -> Iterator[OnStep | None]:
    """Shows the steps of a training on standard error, from the first one on."""
    screen = Console(stderr=True, highlight=False)
    if not shown:
        yield None
        return
    if not screen.is_terminal:
        yield _print_every_tenth
        return
    with closing(_Bar(screen, "training", TimeRemainingColumn())) as bar:

        def on_step(step: int, steps: int, row: Mapping[str, float]) -> None:
            bar.show(step, steps, _losses(row) if screen.width >= _WIDE else "")

        yield on_step


@contextmanager
def reading_progress(places: Mapping[str, Path]) -> Iterator[Callable[[str], OnProgress]]:
    """Show on standard error how many images of a collection were read, and how quickly.

    Args:
        places: where each collection lies, by its name.

    Yields:
        From the name of a collection to what is told how far it is.
    """
    screen = Console(stderr=True, highlight=False)
    with ExitStack() as stack:

        def of(collection: str) -> OnProgress:
            title = str(places.get(collection, collection))
            if not screen.is_terminal:
                return _PrintedReading(title)
            bar = stack.enter_context(closing(_Bar(screen, f"reading {escape(_short(title, screen.width))}")))
            return lambda done, total, computed, speed: bar.show(done, total, _speed(done, total, computed, speed))

        yield of


@contextmanager
def working(words: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error what takes a while; the function that it yields says what comes next."""
    screen = Console(stderr=True, highlight=False)
    if screen.is_terminal:
        with screen.status(words) as status:
            yield status.update
        return
    sys.stderr.write(f"{words} …\n")
    yield lambda more: _write_line(f"{more} …")


def _write_line(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def _short(title: str, width: int) -> str:
    """The end of a path, in a third of the screen at most."""
    most = max(10, width // 3)
    return title if len(title) <= most else f"…{title[1 - most :]}"


class _Bar:
    """A bar that is there from the first news on until all is done; where how much that is is not known, it moves."""

    def __init__(self, screen: Console, title: str, *columns: ProgressColumn) -> None:
        count, note = TextColumn("{task.fields[count]}"), TextColumn("{task.fields[note]}")
        self._progress = Progress(TextColumn(title), BarColumn(), count, *columns, note, console=screen, transient=True)
        self._task: TaskID | None = None

    def show(self, done: int, total: int, note: str) -> None:
        if self._task is None:
            self._task = self._progress.add_task("", total=total or None, count="", note="")
        self._progress.update(self._task, completed=done, total=total or None, count=_count(done, total), note=note)
        self._progress.start()  # does nothing where it has begun
        if done == total:
            self.close()

    def close(self) -> None:
        self._progress.stop()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class _PrintedReading:
    """A line on standard error for each tenth of a collection, where nobody watches a bar."""

    def __init__(self, title: str) -> None:
        self._title, self._next = title, 0

    def __call__(self, done: int, total: int, computed: int, per_second: float) -> None:
        if done < self._next and done != total:
            return
        line = f"{self._title}: images {_count(done, total)}  {_speed(done, total, computed, per_second)}"
        sys.stderr.write(f"{line.rstrip()}\n")
        self._next = 0 if done == total else done + max(1, (total or done) // 10)


def _count(done: int, total: int) -> str:
    return f"{done}/{total}" if total else str(done)


def _speed(done: int, total: int, computed: int, per_second: float) -> str:
    """Nothing before the first batch is back: until the end, nobody knows that there will be none."""
    if computed:
        return f"{per_second:.0f} images/s"
    return "from the store" if done == total else ""


def _print_every_tenth(step: int, steps: int, row: Mapping[str, float]) -> None:
    if step % max(1, steps // 10) == 0 or step == steps:
        sys.stderr.write(f"step {step}/{steps}  {_losses(row)}\n")


def _losses(row: Mapping[str, float]) -> str:
    return "  ".join(f"{name.removeprefix('loss_')} {row[name]:.3f}" for name in row if name.startswith("loss_"))
