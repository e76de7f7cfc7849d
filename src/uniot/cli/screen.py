"""What people see: a progress bar where somebody watches, plain lines where not, and the summary of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from uniot.evaluation import Evaluation
    from uniot.model import AdaptedModel
    from uniot.prediction import Prediction

OnStep = Callable[[int, int, Mapping[str, float]], None]
_MOST_LINES = 15


def console() -> Console:
    """Answers go to standard output, without colours where it is a file."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


@contextmanager
def training_progress() -> Iterator[OnStep]:
    """Shows the steps of a training on standard error."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield _print_every_tenth
        return
    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[losses]}"), console=screen, transient=True) as progress:
        task = progress.add_task("training", total=None, losses="")

        def on_step(step: int, steps: int, row: Mapping[str, float]) -> None:
            progress.update(task, completed=step, total=steps, losses=_losses(row))

        yield on_step


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


def verdict(prediction: Prediction) -> str:
    """One line: how many known, how many unknown, in how many groups."""
    n_known, n_groups = int(prediction.known.sum()), len(set(prediction.group[prediction.group >= 0].tolist()))
    groups = f" in {n_groups} group{'s' * (n_groups != 1)}" if n_groups else ""
    return f"{n_known} known, {len(prediction) - n_known} unknown{groups}."


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
