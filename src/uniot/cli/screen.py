"""The summary of a run for people: tables and sentences on standard output."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from uniot.words import counted, listed, plural

if TYPE_CHECKING:
    from pathlib import Path

    from uniot.embeddings.reading import Skipped
    from uniot.evaluation import Evaluation
    from uniot.images import ImageRun
    from uniot.model import AdaptedModel
    from uniot.prediction import Prediction

_MOST_LINES = 15


def console(width_of_a_file: int | None = None) -> Console:
    """Answers go to standard output, without colours where it is a file.

    Args:
        width_of_a_file: columns that tables may take where no terminal sets the width.
    """
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else width_of_a_file
    return Console(highlight=False, markup=False, soft_wrap=not is_terminal, width=width)


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
        table.add_row(f"… and {counted(len(groups) - _MOST_LINES, 'more group')}", "")
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
    absent = model.classes[model.absence > 0.5].tolist()
    if absent:
        screen.print(f"Labelled classes that seem to be absent: {listed(absent, _MOST_LINES)}.")


def show_reliability(model: AdaptedModel) -> None:
    """Show the estimated accuracy, and warn of what speaks against the answers."""
    if model.reliability is None:
        return
    screen, found = console(), model.reliability
    if found.accuracy is not None:
        screen.print(found.sentence)
    for words in found.warnings:
        screen.print(f"Warning: {words}")


def show_reading(run: ImageRun, folder: Path) -> None:
    """What of two collections could not be read, and what is in both."""
    screen, in_both = console(), len(run.duplicates)
    if run.skipped:
        screen.print(skipped_line(run.skipped, folder / "skipped.csv"))
    if in_both:
        screen.print(
            f"{counted(in_both, 'image')} {plural(in_both, 'is', 'are')} in both collections, byte for byte: "
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


def show_scores(
    evaluation: Evaluation, only: Sequence[str] = (), *, beside: Mapping[str, Evaluation] | None = None
) -> None:
    """Show the scores with what each means; all of them, or those named.

    Args:
        evaluation: the scores.
        only: names of the scores to show.
        beside: further columns by their titles.
    """
    from uniot.evaluation import SCORE_MEANINGS

    title = "Scores in per cent (in metrics.json from 0 to 1)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    columns = {"value": evaluation.to_dict(), **{title: other.to_dict() for title, other in (beside or {}).items()}}
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    for name, meaning in SCORE_MEANINGS.items():
        values = [column[name] for column in columns.values()]
        if (not only or name in only) and any(value is not None for value in values):
            table.add_row(name, *("–" if value is None else f"{100 * value:.1f}" for value in values), meaning)
    console().print(table)
    for note in evaluation.notes:
        console().print(f"Note: {note}")
