"""What people see: a progress bar where somebody watches, plain lines where not, and the summary of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from uniot.evaluation import Evaluation
    from uniot.images import ImageRun
    from uniot.model import AdaptedModel
    from uniot.prediction import Prediction

OnStep = Callable[[int, int, Mapping[str, float]], None]
_MOST_LINES = 15


def console() -> Console:
    """Answers go to standard output, without colours where it is a file."""
    return Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())


@contextmanager
def training_progress(shown: bool = True) -> Iterator[OnStep | None]:
    """Shows the steps of a training on standard error."""
    screen = Console(stderr=True, highlight=False)
    if not shown:
        yield None
        return
    if not screen.is_terminal:
        yield _print_every_tenth
        return
    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[losses]}"), console=screen, transient=True) as progress:
        task = progress.add_task("training", total=None, losses="")

        def on_step(step: int, steps: int, row: Mapping[str, float]) -> None:
            progress.update(task, completed=step, total=steps, losses=_losses(row))

        yield on_step


@contextmanager
def reading_progress() -> Iterator[Callable[[int, int | None, int, float], None]]:
    """Shows on standard error how many images were read, and how quickly the backbone gets through them."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield _PrintedReading()
        return
    columns = (TextColumn("reading images"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    progress = Progress(*columns, TextColumn("{task.fields[speed]}"), console=screen, transient=True)
    shown: list[TaskID] = []

    def on_progress(done: int, total: int | None, computed: int, per_second: float) -> None:
        if not shown:
            progress.start()
            shown.append(progress.add_task("reading", total=total, speed=""))
        speed = f"{per_second:.0f} images/s" if computed else "from the store"
        progress.update(shown[0], completed=done, total=total, speed=speed)
        if done == total:
            progress.remove_task(shown.pop())
            progress.stop()

    try:
        yield on_progress
    finally:
        progress.stop()


class _PrintedReading:
    """A line on standard error for each tenth of a collection, where nobody watches a bar."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int, total: int | None, computed: int, per_second: float) -> None:
        size = total or max(done, 1)
        if done < self._next and done != total:
            return
        speed = f"{per_second:.0f} images/s" if computed else "from the store"
        sys.stderr.write(f"images {done}/{total or '?'}  {speed}\n")
        self._next = 0.0 if done == total else done + max(1, size // 10)


def _print_every_tenth(step: int, steps: int, row: Mapping[str, float]) -> None:
    if step % max(1, steps // 10) == 0 or step == steps:
        sys.stderr.write(f"step {step}/{steps}  {_losses(row)}\n")


def _losses(row: Mapping[str, float]) -> str:
    return "  ".join(f"{name.removeprefix('loss_')} {row[name]:.3f}" for name in row if name.startswith("loss_"))


def show_prediction(model: AdaptedModel, prediction: Prediction) -> None:
    """Which classes were found how often, and the private groups."""
    found = Counter(str(name) for name in model.labels(prediction)[prediction.known])
    table = Table(title="Found in the target", title_justify="left", box=None, pad_edge=False)
    table.add_column("class")
    table.add_column("samples", justify="right")
    for name, count in found.most_common(_MOST_LINES):
        table.add_row(name, str(count))
    if len(found) > _MOST_LINES:
        table.add_row(f"… and {len(found) - _MOST_LINES} more", "")
    groups = Counter(int(group) for group in prediction.group if group >= 0)
    for group, count in groups.most_common(_MOST_LINES):
        table.add_row(f"unknown, group {group}", str(count))
    if len(groups) > _MOST_LINES:
        table.add_row(f"… and {len(groups) - _MOST_LINES} more groups", "")
    console().print(table)


def show_reading(run: ImageRun, folder: Path) -> None:
    """What of two collections could not be read, and what is in both."""
    screen, n_skipped = console(), len(run.skipped)
    if n_skipped:
        one = run.skipped[0]
        files = "file" if n_skipped == 1 else "files"
        screen.print(
            f"{n_skipped} {files} could not be read, {one.name} first ({one.reason}): see {folder / 'skipped.csv'}"
        )
    if run.duplicates:
        screen.print(
            f"{len(run.duplicates)} images are in both collections, byte for byte: see {folder / 'duplicates.csv'}"
        )


def verdict(prediction: Prediction) -> str:
    """One line: how many known, how many unknown, in how many groups."""
    tally = Tally()
    tally.add(prediction)
    return tally.verdict()


class Tally:
    """Adds answers up, block by block."""

    def __init__(self) -> None:
        self._n_known = self._n_unknown = self._n_skipped = 0
        self._groups: set[int] = set()
        self._first_skipped = ""

    def add(self, prediction: Prediction) -> None:
        """Counts some answers."""
        n_known = int(prediction.known.sum())
        self._n_known += n_known
        self._n_unknown += len(prediction) - n_known
        self._groups.update(prediction.group[prediction.group >= 0].tolist())

    def skip(self, name: str, reason: str) -> None:
        """Counts a file that could not be read."""
        self._first_skipped = self._first_skipped or f"{name} first ({reason})"
        self._n_skipped += 1

    def verdict(self) -> str:
        """One line: how many known, how many unknown, in how many groups, and what was left out."""
        n_groups = len(self._groups)
        groups = f" in {n_groups} group{'s' * (n_groups != 1)}" if n_groups else ""
        left_out = f" {self._n_skipped} could not be read, {self._first_skipped}." if self._n_skipped else ""
        return f"{self._n_known} known, {self._n_unknown} unknown{groups}.{left_out}"


def show_scores(evaluation: Evaluation, only: Sequence[str] = ()) -> None:
    """The scores with what each means; all of them, or those named."""
    from uniot.evaluation import SCORE_MEANINGS

    table = Table(title="Scores", title_justify="left", box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    for name, value in evaluation.to_dict().items():
        if name in (only or SCORE_MEANINGS) and isinstance(value, (int, float)):
            shown = str(value) if isinstance(value, int) else f"{100 * value:.1f}"
            table.add_row(name, shown, SCORE_MEANINGS[name])
    console().print(table)
    for note in evaluation.notes:
        console().print(f"Note: {note}")
