"""How a benchmark goes on: a table where somebody watches, plain lines where not."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from uniot.benchmark.jobs import Job
from uniot.benchmark.results import Result
from uniot.benchmark.runner import Watcher

_MOST_RUNNING = 8
_A_SECOND = 4


@contextmanager
def watching(jobs: Sequence[Job], at_once: int, screen: Console) -> Iterator[Watcher]:
    """A watcher that shows on `screen` what it is told.

    Args:
        jobs: all of the benchmark.
        at_once: how many run at a time, to tell how long it will take.
        screen: a terminal gets a table, anything else a line a job.
    """
    if not screen.is_terminal:
        yield PlainLines(len(jobs), screen)
        return
    table = LiveTable(jobs, at_once)
    with Live(get_renderable=table.render, console=screen, refresh_per_second=_A_SECOND, vertical_overflow="ellipsis"):
        yield table


class PlainLines:
    """A line for each job that ends."""

    def __init__(self, total: int, screen: Console) -> None:
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
        self._screen.print(line, markup=False, highlight=False, soft_wrap=True)


@dataclass
class _Cell:
    """The jobs of a method in a column."""

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
    """A row for each method and a column for each setting, or data set if there are several: jobs done, mean H."""

    def __init__(self, jobs: Sequence[Job], at_once: int) -> None:
        self._methods = list(dict.fromkeys(job.method for job in jobs))
        self._columns = list(dict.fromkeys(_column(job) for job in jobs))
        self._cells = {(method, column): _Cell() for method in self._methods for column in self._columns}
        for job in jobs:
            self._cells[job.method, _column(job)].total += 1
        self._n_left = len(jobs)
        self._at_once = at_once
        self._running: dict[str, float] = {}
        self._seconds: list[float] = []

    def kept(self, job: Job, result: Result) -> None:
        self._count(job, result)

    def started(self, job: Job) -> None:
        # A new dict, because the screen is drawn by a thread of its own.
        self._running = {**self._running, str(job): time.monotonic()}

    def ended(self, job: Job, result: Result) -> None:
        self._running = {name: begun for name, begun in self._running.items() if name != str(job)}
        self._seconds.append(result.seconds)
        self._count(job, result)

    def render(self) -> RenderableType:
        """What the screen shows now."""
        table = Table(box=None, pad_edge=False)
        table.add_column("method", no_wrap=True)
        for column in self._columns:
            table.add_column(Text(column), no_wrap=True)
        for method in self._methods:
            table.add_row(Text(method), *(self._cells[method, column].text() for column in self._columns))
        running = list(self._running.items())
        lines = [Text(f"  {name} ({time.monotonic() - begun:.0f} s)") for name, begun in running[:_MOST_RUNNING]]
        if len(running) > _MOST_RUNNING:
            lines.append(Text(f"  … and {len(running) - _MOST_RUNNING} more"))
        return Group(table, Text(self._told(len(running))), *lines)

    def _told(self, n_running: int) -> str:
        total = sum(cell.total for cell in self._cells.values())
        n_failed = sum(cell.n_failed for cell in self._cells.values())
        failed = f", {n_failed} failed" if n_failed else ""
        return f"{total - self._n_left} of {total} jobs over{failed}, {n_running} running{self._left()}"

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
