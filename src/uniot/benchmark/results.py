"""Read and write the results of jobs as CSV, one row per job, and average them over seeds and tasks."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.benchmark.protocol import AVERAGE, paper_tables
from uniot.errors import DataError
from uniot.io.files import write_text

if TYPE_CHECKING:
    from uniot.datasets.catalogue import BenchmarkSet

SCORES: Mapping[str, str] = {
    "h": "H-score",
    "h3_oracle": "H³-score (oracle)",
    "h3_honest": "H³-score (honest)",
    "nmi_oracle": "NMI of private samples (oracle)",
    "common_accuracy": "Accuracy on common classes",
    "unknown_recall": "Recall of unknown",
    "auroc": "AUROC",
    "oscr": "OSCR",
}
"""Titles of the scores in tables, by their names in `Result`."""
# Fractions from 0 to 1 that have no table of their own.
_FURTHER = ("h_oracle", "nothing_rejected", "true_accuracy", "estimated_accuracy", "h_oracle_selection")


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one job: a method on a task with a seed.

    Attributes:
        method: name as `uniot methods` lists it.
        task: such as "A2W".
        seed: random seed.
        setting: name of the class split, such as "open-partial".
        backbone: network that made the features, and whether it was trained.
        steps: training steps.
        seconds: duration of the fit.
        h: H-score. This and the other scores are fractions from 0 to 1, as in `uniot.metrics`; None if undefined.
        h3_oracle: H³-score as in the paper, which uses the true private samples and their number of classes.
        h3_honest: H³-score of the groups that were found.
        nmi_oracle: third part of `h3_oracle`: NMI of the private samples, grouped into the true number of classes.
        common_accuracy: accuracy on common classes.
        unknown_recall: fraction of the private samples that were rejected.
        auroc: area under the ROC curve of the confidence, common against private.
        oscr: area under the open-set classification rate curve.
        n_groups: number of groups found among the rejected samples.
        n_private_true: number of private classes that have a sample in the target.
        h_oracle: largest H-score of all thresholds on the same confidence, with the same nearest classes.
        nothing_rejected: accuracy on common classes if no sample is rejected.
        true_accuracy: accuracy over all samples; "unknown" is right for private ones.
        estimated_accuracy: the model's own estimate of `true_accuracy`, without labels.
        warned: whether the model warned of unreliable predictions; None if the method has no estimate.
        h_oracle_selection: largest H-score of the models at `--oracle-selection` steps; a choice by target labels.
        dataset: name of the data set in a benchmark of several; empty otherwise.
        failure: why the job failed; empty if it succeeded. A failed job has no scores.
    """

    method: str
    task: str
    seed: int
    setting: str
    backbone: str
    steps: int
    seconds: float
    h: float | None = None
    h3_oracle: float | None = None
    h3_honest: float | None = None
    nmi_oracle: float | None = None
    common_accuracy: float | None = None
    unknown_recall: float | None = None
    auroc: float | None = None
    oscr: float | None = None
    n_groups: int | None = None
    n_private_true: int | None = None
    h_oracle: float | None = None
    nothing_rejected: float | None = None
    true_accuracy: float | None = None
    estimated_accuracy: float | None = None
    warned: bool | None = None
    h_oracle_selection: float | None = None
    dataset: str = ""
    failure: str = ""

    def __post_init__(self) -> None:
        for name in ("method", "task", "setting", "backbone"):
            if len(getattr(self, name).splitlines()) != 1:
                raise DataError(f"a result has {getattr(self, name)!r} as {name}. Give a name, in one line.")
        for name in ("seed", "steps", "seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise DataError(f"{self.job} has {getattr(self, name)} as {name}. Give a number from 0 on.")
        scores = {name: value for name in (*SCORES, *_FURTHER) if (value := getattr(self, name)) is not None}
        for name, value in scores.items():
            if not 0 <= value <= 1:
                raise DataError(f"{self.job} has {value} as {name}. Give a fraction from 0 to 1, or None.")
        failed = bool(self.failure.strip())
        if failed and scores:
            raise DataError(f"{self.job} failed ({self.failure}) and has scores. Leave out one or the other.")
        if not failed and self.h is None:
            raise DataError(f"{self.job} has no h, and no reason of a failure. Give one of them.")

    @property
    def job(self) -> str:
        """Return a description of the job for error messages."""
        of_set = f" of {self.dataset}" if self.dataset else ""
        return f"{self.method} on {self.task}{of_set} ({self.setting}, {self.backbone}) with seed {self.seed}"

    def score(self, name: str) -> float | None:
        """Return a score by its name in `SCORES`."""
        if name not in SCORES:
            raise DataError(f"there is no score called {name!r}. Take one of: {', '.join(SCORES)}.")
        value: float | None = getattr(self, name)
        return value


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write results as CSV, whole or not at all.

    Every job is one line: line breaks in the reason of a failure become spaces. A missing value is an empty cell.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(result) | {"failure": " ".join(result.failure.split())} for result in results)
    write_text(path, text.getvalue())


def read_results(path: Path) -> list[Result]:
    """Return the results of a CSV file; columns that were added later may be missing, unknown ones are ignored."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.DictReader(file, strict=True)
            missing = [name for name in _COLUMNS if name not in (lines.fieldnames or ()) and name not in _ADDED]
            if missing:
                raise DataError(
                    f"{path} has no column {', '.join(missing)}. Results have the columns {', '.join(_COLUMNS)}; the "
                    "first line names them."
                )
            return [_result(line, f"{path}, line {lines.line_num}") for line in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as UTF-8 text with commas ({error}). Give a file of results, one line for each job."
        ) from None


def _result(line: Mapping[str, str | None], place: str) -> Result:
    # A short line has None in its last columns, which is not an empty cell.
    if None in line.values() or None in line:
        raise DataError(f"{place} does not have one cell per column. Write the file again with `uniot benchmark`.")
    values = {name: _value(name, line.get(name) or "", place) for name in _COLUMNS}
    try:
        return Result(**values)  # type: ignore[arg-type] # each was read as what its field holds
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(text)
    return text == "True"


def _value(name: str, text: str, place: str) -> str | int | float | None:
    kind, may_be_empty = _KINDS.get(name, (float, True))
    if not text and may_be_empty:
        return None
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "a whole number", _flag: "True or False"}.get(kind, "a number")
        raise DataError(f"{place} has {text!r} as {name}. Give {wanted}.") from None


_COLUMNS = tuple(field.name for field in fields(Result))
# Columns that were added later; older files are read with empty cells.
_ADDED = frozenset({"nmi_oracle", "n_private_true", "warned", "dataset", *_FURTHER})
# How each column is read, and whether an empty cell is None; all others are scores.
_KINDS: Mapping[str, tuple[Callable[[str], str | int | float], bool]] = {
    **dict.fromkeys(("method", "task", "setting", "backbone", "failure", "dataset"), (str, False)),
    **dict.fromkeys(("seed", "steps"), (int, False)),
    "seconds": (float, False),
    **dict.fromkeys(("n_groups", "n_private_true"), (int, True)),
    "warned": (_flag, True),
}


@dataclass(frozen=True)
class Cell:
    """Holds the scores of a method on one task, or on all tasks, in per cent.

    Attributes:
        mean: mean over the seeds that have a score; None if none has.
        deviation: standard deviation over the seeds; None for fewer than two.
        n_seeds: number of seeds that have a score; for the mean over tasks, the smallest number of all tasks.
        n_failed: number of failed jobs.
        reported: the paper's number.
        is_best: whether no other method has a larger mean, to the decimals shown; False if a job failed.
    """

    mean: float | None = None
    deviation: float | None = None
    n_seeds: int = 0
    n_failed: int = 0
    reported: float | None = None
    is_best: bool = False

    @property
    def mean_text(self) -> str:
        """Return the mean as tables show it: "–" if there is none, "failed" if all jobs failed."""
        if self.mean is None:
            return "failed" if self.n_failed else "–"
        return f"{self.mean:.2f}"


class ScoreGrid:
    """Groups one score by method, task and seed.

    Args:
        results: at most one per method, task and seed.
        score: name of the score.
        tasks: columns of the table.
        beside: data set whose reported numbers are shown beside the results; None for none.
    """

    def __init__(
        self, results: Sequence[Result], score: str, tasks: Sequence[str], beside: BenchmarkSet | None
    ) -> None:
        self._score, self._tasks, self._beside = score, tasks, beside
        self._scores: dict[tuple[str, str], dict[int, float]] = {}
        self._failed: dict[tuple[str, str], int] = {}
        for result in results:
            place, value = (result.method, result.task), result.score(score)
            if value is not None:
                self._scores.setdefault(place, {})[result.seed] = 100 * value
            elif result.failure:
                self._failed[place] = self._failed.get(place, 0) + 1

    def cells(self, method: str) -> tuple[Cell, ...]:
        """Return a cell per task, and one for the mean over tasks if there are several."""
        cells = [self._cell(method, task) for task in self._tasks]
        return (*cells, self._average(method, cells)) if len(cells) > 1 else tuple(cells)

    def pairs(self, method: str, other: str) -> list[tuple[float, float]]:
        """Return the scores of two methods for each task and seed that both have."""
        found: list[tuple[float, float]] = []
        for task in self._tasks:
            one, two = self._of(method, task), self._of(other, task)
            # A method that ignores the seed repeats its scores, which is no further evidence.
            found += dict.fromkeys((one[seed], two[seed]) for seed in sorted(one.keys() & two.keys()))
        return found

    def _of(self, method: str, task: str) -> Mapping[int, float]:
        return self._scores.get((method, task), {})

    def _cell(self, method: str, task: str) -> Cell:
        scores = list(self._of(method, task).values())
        return Cell(
            mean=statistics.fmean(scores) if scores else None,
            deviation=_deviation(scores),
            n_seeds=len(scores),
            n_failed=self._failed.get((method, task), 0),
            reported=self._reported(method, task),
        )

    def _average(self, method: str, cells: Sequence[Cell]) -> Cell:
        # The paper's mean is over all tasks; it cannot be compared with the mean over some of them.
        whole = self._beside is not None and set(self._tasks) == set(self._beside.tasks)
        reported = self._reported(method, AVERAGE) if whole else None
        means = [cell.mean for cell in cells if cell.mean is not None]
        if len(means) < len(cells):
            return Cell(n_failed=sum(cell.n_failed for cell in cells if cell.mean is None), reported=reported)
        of_tasks = [self._of(method, task) for task in self._tasks]
        seeds = of_tasks[0].keys()
        same_seeds = all(scores.keys() == seeds for scores in of_tasks)
        by_seed = [statistics.fmean(scores[seed] for scores in of_tasks) for seed in seeds] if same_seeds else []
        return Cell(
            mean=statistics.fmean(means),
            deviation=_deviation(by_seed),
            n_seeds=min(map(len, of_tasks)),
            n_failed=sum(cell.n_failed for cell in cells),
            reported=reported,
        )

    def _reported(self, method: str, task: str) -> float | None:
        if self._beside is None:
            return None
        return paper_tables().reported(self._beside.name, method, task, self._score)


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
