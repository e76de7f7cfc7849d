"""Runs the jobs of a benchmark, those that are not finished, and collects what came of all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from uniot.benchmark.jobs import LOG, Job, clear, finished, read_failure, write_failure
from uniot.benchmark.launching import Launcher, Started
from uniot.benchmark.results import Result, write_results
from uniot.run_folder import only_one_writer

RESULTS = "results.csv"
_SECONDS_BETWEEN_TABLES = 2.0
_LAST_BYTES = 8000


class Watcher(Protocol):
    """Is told how a benchmark goes on."""

    def kept(self, job: Job, result: Result) -> None:
        """The job was finished before."""

    def started(self, job: Job) -> None:
        """The job has begun."""

    def ended(self, job: Job, result: Result) -> None:
        """The job has succeeded, or failed, as the result says."""


@dataclass(frozen=True)
class Failure:
    """A job that gave no answer: which, where, and why."""

    job: Job
    folder: Path
    reason: str


@dataclass(frozen=True)
class Summary:
    """What came of a benchmark.

    Attributes:
        results: of every job, in the order of the jobs; one that failed has a result that says why.
        failures: those jobs.
        n_kept: jobs that were finished before.
    """

    results: list[Result]
    failures: list[Failure]
    n_kept: int


def run_benchmark(jobs: Sequence[Job], out: Path, launcher: Launcher, watcher: Watcher | None = None) -> Summary:
    """Runs every job whose folder does not hold its result, and writes results.csv.

    A job that fails does not stop the others. Whenever this stops, what was finished is kept: the same call goes on
    from there.

    Args:
        jobs: what to run, in this order.
        out: folder of the benchmark.
        launcher: runs them, on this machine or on a cluster.
        watcher: told of each.
    """
    with only_one_writer(out):
        state = _State({job.folder(out): job for job in jobs}, out / RESULTS)
        for folder, job in state.jobs.items():
            result = finished(job, folder)
            if result is not None:
                state.results[folder] = result
                if watcher is not None:
                    watcher.kept(job, result)
        n_kept = len(state.results)
        waiting = [folder for folder in state.jobs if folder not in state.results]
        for folder in waiting:
            clear(folder)
            state.jobs[folder].write(folder)
        try:
            _run(waiting, state, launcher, watcher)
        finally:
            state.write()
    return Summary(state.ordered(), state.failures, n_kept)


@dataclass
class _State:
    """What is known of each job, by its folder."""

    jobs: Mapping[Path, Job]
    table: Path
    results: dict[Path, Result] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def ordered(self) -> list[Result]:
        return [self.results[folder] for folder in self.jobs if folder in self.results]

    def write(self) -> None:
        write_results(self.table, self.ordered())


def _run(folders: Sequence[Path], state: _State, launcher: Launcher, watcher: Watcher | None) -> None:
    begun: dict[Path, float] = {}
    written = time.monotonic()
    with closing(launcher.run(folders)) as events:
        for event in events:
            job = state.jobs[event.folder]
            if isinstance(event, Started):
                begun[event.folder] = time.monotonic()
                if watcher is not None:
                    watcher.started(job)
                continue
            seconds = time.monotonic() - begun.get(event.folder, time.monotonic())
            result = finished(job, event.folder)
            if result is None:
                failure = Failure(job, event.folder, _reason(event.folder, event.died))
                state.failures.append(failure)
                result = _failed(failure, seconds)
            state.results[event.folder] = result
            if watcher is not None:
                watcher.ended(job, result)
            # Not after every job, of which there may be thousands that take a second.
            if time.monotonic() - written > _SECONDS_BETWEEN_TABLES:
                state.write()
                written = time.monotonic()


def _reason(folder: Path, died: str | None) -> str:
    """Why there is no result; error.txt says so in any case."""
    told = read_failure(folder)
    if told is not None:
        return told
    write_failure(folder, died or "it ended without a result", _last_lines(folder / LOG))
    return read_failure(folder) or ""


def _last_lines(log: Path) -> str:
    try:
        return log.read_bytes()[-_LAST_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""


def _failed(failure: Failure, seconds: float) -> Result:
    job = failure.job
    return Result(
        setting=job.setting,
        backbone=job.backbone,
        method=job.method,
        task=job.task,
        seed=job.seed,
        steps=job.full_settings().steps or 0,
        seconds=seconds,
        failure=failure.reason or "no reason was given",
        dataset=job.dataset,
    )
