"""Screen of `uniot benchmark`: the progress of the jobs, and the tables when they are finished."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from uniot.cli.screen import Screen, console
from uniot.errors import DataError, MissingPackageError
from uniot.io.text import counted

if TYPE_CHECKING:
    from uniot.benchmark.averages import MeanScore
    from uniot.benchmark.jobs import Job
    from uniot.benchmark.results import Result
    from uniot.benchmark.runner import FinishedBenchmark, Watcher
    from uniot.benchmark.studies import Finding, Study
    from uniot.benchmark.tables import Table
    from uniot.benchmark.tasks import TaskSet

_MOST_FAILURES = 20
# Columns of a table in a file, where no terminal sets the width.
_WIDTH_OF_A_FILE = 240


def show(finished: FinishedBenchmark, out: Path, dataset: str) -> list[Path]:
    """Print the H-scores, write every table, and draw the critical-difference diagram if there are enough tasks.

    Returns:
        The files that were written.
    """
    from uniot.benchmark.ranking import rank_methods, write_critical_difference
    from uniot.benchmark.table_formats import write_tables
    from uniot.benchmark.tables import make_tables

    screen = console(_WIDTH_OF_A_FILE)
    for table in make_tables(finished.results, "h", dataset=dataset):
        screen.print(_on_screen(table))
        screen.print(table.caption)
    written = write_tables(out, finished.results, dataset=dataset)
    # Few methods or tasks cannot be ranked, and figures need an extra.
    with suppress(DataError, MissingPackageError):
        written += write_critical_difference(out / "figures", "ranks", rank_methods(finished.results))
    return written


def show_study(study: Study, finished: FinishedBenchmark, out: Path, task_set: TaskSet) -> list[Path]:
    """Print the H-scores for each value that the study varies, and write all findings and figures.

    Returns:
        The files that were written.
    """
    from uniot.benchmark.studies import study_findings, write_study

    if not study.axes:
        tables = show(finished, out, task_set.name)
        return [*write_study(out, study, study_findings(study, finished.results, task_set.published)), *tables]
    findings = study_findings(study, finished.results)
    screen = console(_WIDTH_OF_A_FILE)
    for axis in study.axes:
        of_axis = [finding for finding in findings if (finding.axis, finding.score) == (axis.name, "h")]
        methods = list(dict.fromkeys(finding.method for finding in of_axis))
        shown = RichTable(box=None, pad_edge=False)
        for number, column in enumerate((axis.label, *methods)):
            shown.add_column(column, justify="right" if number else "left")
        for point in axis.points:
            cells = {finding.method: finding for finding in of_axis if finding.value == point.value}
            usual = " (usual)" if point.value == axis.usual else ""
            shown.add_row(f"{point.value:g}{usual}", *(_spread(cells[method]) for method in methods))
        screen.print(shown)
    screen.print("H-score, %: mean over the tasks ± standard deviation over the seeds.")
    return write_study(out, study, findings)


def _spread(finding: Finding) -> str:
    if finding.mean is None:
        return "failed" if finding.n_failed else "–"
    return f"{finding.mean:.1f}" if finding.deviation is None else f"{finding.mean:.1f} ± {finding.deviation:.1f}"


def show_end(finished: FinishedBenchmark, out: Path, written: list[Path]) -> None:
    """Print failed jobs, the number of jobs, and where the results are."""
    screen = console()
    for failure in finished.failures[:_MOST_FAILURES]:
        screen.print(f"Failed: {failure.job}: {failure.reason} See {failure.folder}/")
    n_jobs, n_failed = len(finished.results), len(finished.failures)
    if n_failed > _MOST_FAILURES:
        screen.print(f"… and {n_failed - _MOST_FAILURES} more, each in results.csv with its reason")
    before = f", {finished.n_kept} of them before" if finished.n_kept else ""
    tops = dict.fromkeys(out / path.relative_to(out).parts[0] for path in written)
    names = [f"{top.name}/" if top.is_dir() else top.name for top in tops]
    screen.print(
        f"{n_jobs - n_failed} of {counted(n_jobs, 'job')} finished{before}. Every number is in {out / 'results.csv'}, "
        f"the rest in {', '.join(names)} beside it."
    )
    if n_failed:
        screen.print(
            f"Next: look into error.txt of {counted(n_failed, 'failed job')}; the same command runs them again."
        )


def _on_screen(table: Table) -> RichTable:
    shown = RichTable(box=None, pad_edge=False)
    for number, column in enumerate(("method", *table.columns)):
        shown.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(row.title, *(Text(_cell(cell), "bold" if cell.is_best else "") for cell in row.cells))
    return shown


def _cell(cell: MeanScore) -> str:
    deviation = "" if cell.deviation is None else f" ± {cell.deviation:.1f}"
    failed = f" ({cell.n_failed} failed)" if cell.n_failed and cell.mean is not None else ""
    reported = "" if cell.reported is None else f" [{cell.reported:.1f}]"
    mean = cell.mean_text if cell.mean is None else f"{cell.mean:.1f}"
    # Without bold letters, as in a file, Markdown marks the best.
    mark = "**" if cell.is_best and not sys.stdout.isatty() else ""
    return f"{mark}{mean}{deviation}{mark}{failed}{reported}"


def show_universality(jobs: Sequence[Job], finished: FinishedBenchmark, out: Path, *, purpose: str) -> list[Path]:
    """Print the summaries per family of scenarios and write all scores.

    Returns:
        The files that were written.
    """
    from uniot.benchmark.tables import method_title
    from uniot.benchmark.universality import COLUMNS, scenario_scores, summarise, summary_cells, write_universality

    scores = scenario_scores(jobs, finished.results)
    screen = console(_WIDTH_OF_A_FILE)
    summaries = summarise(scores)
    for method in dict.fromkeys(one.method for one in summaries):
        shown = RichTable(box=None, pad_edge=False, title=method_title(method), title_justify="left")
        for place, column in enumerate(COLUMNS):
            shown.add_column(column, justify="right" if place > 1 else "left")
        for one in summaries:
            if one.method == method:
                shown.add_row(*summary_cells(one))
        screen.print(shown)
    return write_universality(out, scores, purpose=purpose)


def show_answers(jobs: Sequence[Job], finished: FinishedBenchmark, out: Path, *, purpose: str) -> list[Path]:
    """Print the regret by the number of simulated answers and write all scores.

    Returns:
        The files that were written.
    """
    from uniot.benchmark.answers import COLUMNS, answer_rows, summarise_answers, summary_lines, write_answers
    from uniot.benchmark.job_files import read_oracle_answers

    done = [job for job, result in zip(jobs, finished.results, strict=True) if not result.failure]
    rows = answer_rows(done, [read_oracle_answers(job.folder(out)) for job in done])
    shown = RichTable(box=None, pad_edge=False)
    for place, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if place > 3 else "left")
    for one in summarise_answers(rows):
        for line in summary_lines(one):
            shown.add_row(*line)
    console(_WIDTH_OF_A_FILE).print(shown)
    return write_answers(out, rows, purpose=purpose)


_MOST_RUNNING = 8
_REFRESHES_PER_SECOND = 4


@contextmanager
def watching(jobs: Sequence[Job], at_once: int, screen: Screen) -> Iterator[Watcher]:
    """Yield a watcher that shows the progress on `screen`.

    Args:
        jobs: all jobs of the benchmark.
        at_once: number of jobs that run at the same time, for the remaining time.
        screen: a terminal shows a table, anything else one line per job.
    """
    if not screen.is_terminal:
        yield PlainLines(len(jobs), screen)
        return
    table = LiveTable(jobs, at_once)
    with Live(
        get_renderable=table.render,
        console=screen,
        refresh_per_second=_REFRESHES_PER_SECOND,
        vertical_overflow="ellipsis",
    ):
        yield table


class PlainLines:
    """Progress as one line per finished job."""

    def __init__(self, total: int, screen: Screen) -> None:
        self._total = total
        self._screen = screen
        self._n_kept = self._n_over = 0

    def kept(self, job: Job, result: Result) -> None:
        self._n_kept += 1
        self._n_over += 1

    def started(self, job: Job) -> None:
        if self._n_kept:
            self._print(f"{self._n_kept} of {self._total} jobs were finished before")
            self._n_kept = 0

    def ended(self, job: Job, result: Result) -> None:
        self._n_over += 1
        what = f"failed: {result.failure}" if result.h is None else f"H {100 * result.h:.1f}, {result.seconds:.1f} s"
        self._print(f"[{self._n_over}/{self._total}] {job}: {what}")

    def _print(self, line: str) -> None:
        self._screen.print(line, soft_wrap=True)


@dataclass
class _JobCount:
    """Finished jobs of one method in one column."""

    total: int = 0
    h: list[float] = field(default_factory=list)
    n_failed: int = 0

    def text(self) -> Text:
        mean = f"  H {100 * statistics.fmean(self.h):.1f}" if self.h else ""
        text = Text(f"{len(self.h)}/{self.total}{mean}")
        if self.n_failed:
            text.append(f"  {self.n_failed} failed", style="red")
        return text


class LiveTable:
    """A table of jobs done and mean H: a row per method, a column per setting or data set."""

    def __init__(self, jobs: Sequence[Job], at_once: int) -> None:
        self._methods = list(dict.fromkeys(job.method for job in jobs))
        self._columns = list(dict.fromkeys(_column(job) for job in jobs))
        self._cells = {(method, column): _JobCount() for method in self._methods for column in self._columns}
        for job in jobs:
            self._cells[job.method, _column(job)].total += 1
        self._n_left = len(jobs)
        self._at_once = at_once
        self._running: dict[str, float] = {}
        self._seconds: list[float] = []

    def kept(self, job: Job, result: Result) -> None:
        self._count(job, result)

    def started(self, job: Job) -> None:
        # A new dict, because another thread draws the screen.
        self._running = {**self._running, str(job): time.monotonic()}

    def ended(self, job: Job, result: Result) -> None:
        self._running = {name: begun for name, begun in self._running.items() if name != str(job)}
        self._seconds.append(result.seconds)
        self._count(job, result)

    def render(self) -> RenderableType:
        """Return the current table."""
        table = RichTable(box=None, pad_edge=False)
        table.add_column("method", no_wrap=True)
        for column in self._columns:
            table.add_column(column, no_wrap=True)
        for method in self._methods:
            table.add_row(method, *(self._cells[method, column].text() for column in self._columns))
        running = list(self._running.items())
        lines = [f"  {name} ({time.monotonic() - begun:.0f} s)" for name, begun in running[:_MOST_RUNNING]]
        if len(running) > _MOST_RUNNING:
            lines.append(f"  … and {len(running) - _MOST_RUNNING} more")
        return Group(table, self._status(len(running)), *lines)

    def _status(self, n_running: int) -> str:
        total = sum(cell.total for cell in self._cells.values())
        n_failed = sum(cell.n_failed for cell in self._cells.values())
        failed = f", {n_failed} failed" if n_failed else ""
        return f"{total - self._n_left} of {total} jobs done{failed}, {n_running} running{self._left()}"

    def _left(self) -> str:
        if not self._seconds or not self._n_left:
            return ""
        seconds = statistics.fmean(self._seconds) * self._n_left / self._at_once
        return f", about {_duration(seconds)} left"

    def _count(self, job: Job, result: Result) -> None:
        cell = self._cells[job.method, _column(job)]
        self._n_left -= 1
        if result.h is None:
            cell.n_failed += 1
        else:
            cell.h.append(result.h)


def _column(job: Job) -> str:
    return job.dataset or job.setting


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
