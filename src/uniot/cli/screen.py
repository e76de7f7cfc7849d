"""What people see: a progress bar where somebody watches, plain lines where not, and the summary of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from uniot.embeddings.reading import Skipped
    from uniot.evaluation import Evaluation
    from uniot.images import ImageRun
    from uniot.model import AdaptedModel
    from uniot.prediction import Prediction

OnStep = Callable[[int, int, Mapping[str, float]], None]
_MOST_LINES = 15
# Columns from which on there is room for a bar and for the losses beside it.
_WIDE = 80


def console(width_of_a_file: int | None = None) -> Console:
    """Answers go to standard output, without colours where it is a file.

    Args:
        width_of_a_file: columns that tables may take where no terminal sets the width.
    """
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else width_of_a_file
    return Console(highlight=False, markup=False, soft_wrap=not is_terminal, width=width)


def counted(number: int, what: str) -> str:
    """`1 image`, `2 images`."""
    return f"{number} {what}{'s' * (number != 1)}"


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
def reading_progress() -> Iterator[Callable[[int, int, int, float], None]]:
    """Shows on standard error how many images were read, and how quickly the backbone gets through them."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield _PrintedReading()
        return
    with closing(_Bar(screen, "reading images")) as bar:
        yield lambda done, total, computed, per_second: bar.show(done, total, _speed(done, total, computed, per_second))


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

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, done: int, total: int, computed: int, per_second: float) -> None:
        if done < self._next and done != total:
            return
        line = f"images {_count(done, total)}  {_speed(done, total, computed, per_second)}"
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


def show_private_classes(model: AdaptedModel) -> None:
    """How many new classes there seem to be, and which of the labelled ones are missing."""
    number, screen = model.groups.number, console()
    low, high = number.interval
    if (~model.target.known).any() and number.evidence:
        between = f", between {low} and {high}" if low != high else ""
        screen.print(f"New classes in the target: about {number.estimate}{between}.")
        if not number.estimate:
            screen.print("What is unknown forms no class: it is rather doubtful samples of the labelled classes.")
    absent = [str(name) for name in model.classes[model.absence > 0.5].tolist()]
    if absent:
        more = f" and {len(absent) - _MOST_LINES} more" if len(absent) > _MOST_LINES else ""
        screen.print(f"Labelled classes that seem to be absent: {', '.join(absent[:_MOST_LINES])}{more}.")


def show_reliability(model: AdaptedModel) -> None:
    """Show the estimated accuracy, and warn of what speaks against the answers."""
    if model.reliability is None:
        return
    screen, found = console(), model.reliability
    if found.accuracy is not None:
        of_known = "" if found.known_accuracy is None else f", {100 * found.known_accuracy:.0f} % of those called known"
        screen.print(f"Estimated without labels: {100 * found.accuracy:.0f} % of the answers are right{of_known}.")
    for words in found.warnings:
        screen.print(f"Warning: {words}")


def show_reading(run: ImageRun, folder: Path) -> None:
    """What of two collections could not be read, and what is in both."""
    screen, in_both = console(), len(run.duplicates)
    if run.skipped:
        screen.print(skipped_line(run.skipped, folder / "skipped.csv"))
    if in_both:
        screen.print(
            f"{counted(in_both, 'image')} {'is' if in_both == 1 else 'are'} in both collections, byte for byte: "
            f"see {folder / 'duplicates.csv'}"
        )


def skipped_line(skipped: Sequence[Skipped], table: Path | None) -> str:
    """How many files could not be read, which first, and where all are listed."""
    first = f"{skipped[0].name} first ({skipped[0].reason})"
    return f"{counted(len(skipped), 'file')} could not be read, {first}{f': see {table}' if table else '.'}"


def verdict(prediction: Prediction) -> str:
    """One line: how many known, how many unknown, in how many groups."""
    tally = Tally()
    tally.add(prediction)
    return tally.verdict()


class Tally:
    """Adds answers up, block by block."""

    def __init__(self) -> None:
        self._n_known = self._n_unknown = 0
        self._groups: set[int] = set()

    def add(self, prediction: Prediction) -> None:
        """Counts some answers."""
        n_known = int(prediction.known.sum())
        self._n_known += n_known
        self._n_unknown += len(prediction) - n_known
        self._groups.update(prediction.group[prediction.group >= 0].tolist())

    def verdict(self) -> str:
        """One line: how many known, how many unknown, in how many groups."""
        groups = f" in {counted(len(self._groups), 'group')}" if self._groups else ""
        return f"{self._n_known} known, {self._n_unknown} unknown{groups}."


def show_scores(evaluation: Evaluation, only: Sequence[str] = ()) -> None:
    """The scores with what each means; all of them, or those named."""
    from uniot.evaluation import SCORE_MEANINGS

    title = "Scores in per cent (in metrics.json from 0 to 1)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
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
