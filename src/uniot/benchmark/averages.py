"""Average the scores of a benchmark over seeds and tasks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniot.benchmark.reported_scores import AVERAGE, paper_tables
from uniot.benchmark.results import Result

if TYPE_CHECKING:
    from uniot.datasets.catalogue import BenchmarkSet


@dataclass(frozen=True)
class MeanScore:
    """Mean score of a method on one task, or on all tasks, in per cent.

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
    """One score by method, task and seed.

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

    def cells(self, method: str) -> tuple[MeanScore, ...]:
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

    def _cell(self, method: str, task: str) -> MeanScore:
        scores = list(self._of(method, task).values())
        return MeanScore(
            mean=statistics.fmean(scores) if scores else None,
            deviation=_deviation(scores),
            n_seeds=len(scores),
            n_failed=self._failed.get((method, task), 0),
            reported=self._reported(method, task),
        )

    def _average(self, method: str, cells: Sequence[MeanScore]) -> MeanScore:
        # The paper's mean is over all tasks; it cannot be compared with the mean over some of them.
        whole = self._beside is not None and set(self._tasks) == set(self._beside.tasks)
        reported = self._reported(method, AVERAGE) if whole else None
        means = [cell.mean for cell in cells if cell.mean is not None]
        if len(means) < len(cells):
            return MeanScore(n_failed=sum(cell.n_failed for cell in cells if cell.mean is None), reported=reported)
        of_tasks = [self._of(method, task) for task in self._tasks]
        seeds = of_tasks[0].keys()
        same_seeds = all(scores.keys() == seeds for scores in of_tasks)
        by_seed = [statistics.fmean(scores[seed] for scores in of_tasks) for seed in seeds] if same_seeds else []
        return MeanScore(
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
