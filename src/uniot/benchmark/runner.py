"""Run the jobs of a benchmark that are not finished, and collect their results."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from uniot.benchmark.job_files import LOG, clear, is_job_of, read_failure, read_result, write_failure
from uniot.benchmark.results import Result, write_results
from uniot.io.files import only_one_writer
from uniot.runs.files import RunFiles
from uniot.runs.saving import CheckpointFile

if TYPE_CHECKING:
    from uniot.benchmark.jobs import Job


@dataclass(frozen=True)
class Started:
    """Event: the job of a folder has started."""

    folder: Path


@dataclass(frozen=True)
class Ended:
    """Event: the job of a folder has ended; its result or error is in the folder.

    Attributes:
        folder: the job's folder.
        died: how the process ended, if it ended without writing a result or an error; None otherwise.
    """

    folder: Path
    died: str | None = None


Event = Started | Ended


class Launcher(Protocol):
    """What runs jobs, each with `uniot.benchmark.worker.perform`: on this machine or on a cluster.

    Attributes:
        count: number of jobs that run at the same time, for the remaining time.
    """

    count: int

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        """Run the jobs of some folders; closing the generator stops those that are running.

        Yields:
            An event when a job starts and when it ends.
        """
        ...


RESULTS = "results.csv"
_SECONDS_BETWEEN_TABLES = 2.0
_LAST_BYTES = 8000


class Watcher(Protocol):
    """What is told the progress of a benchmark."""

    def kept(self, job: Job, result: Result) -> None:
        """Handle a job that was finished before."""

    def started(self, job: Job) -> None:
        """Handle a job that has started."""

    def ended(self, job: Job, result: Result) -> None:
        """Handle a job that has succeeded or failed."""


@dataclass(frozen=True)
class Failure:
    """A failed job, its folder and the reason."""

    job: Job
    folder: Path
    reason: str


@dataclass(frozen=True)
class FinishedBenchmark:
    """Results of a benchmark that has run to its end.

    Attributes:
        results: a result per job, in the order of the jobs; that of a failed job has the reason.
        failures: failed jobs.
        n_kept: number of jobs that were finished before.
    """

    results: list[Result]
    failures: list[Failure]
    n_kept: int


def run_benchmark(
    jobs: Sequence[Job], out: Path, launcher: Launcher, watcher: Watcher | None = None
) -> FinishedBenchmark:
    """Run every job whose folder does not have its result, and write results.csv.

    A failed job does not stop the others. After an interruption, the same call continues: finished jobs are kept.

    Args:
        jobs: jobs in the order in which they are run.
        out: folder of the benchmark.
        launcher: runs the jobs, on this machine or on a cluster.
        watcher: receives the progress.

    Returns:
        The results of all jobs, with those that were finished before.
    """
    with only_one_writer(out):
        state = _State({job.folder(out): job for job in jobs}, out / RESULTS)
        for folder, job in state.jobs.items():
            result = read_result(folder, job)
            if result is not None:
                state.results[folder] = result
                if watcher is not None:
                    watcher.kept(job, result)
        n_kept = len(state.results)
        waiting = [folder for folder in state.jobs if folder not in state.results]
        for folder in waiting:
            clear(folder)
            if not is_job_of(folder, state.jobs[folder]):
                # The state of another training cannot be continued.
                CheckpointFile(RunFiles(folder)).clear()
            (folder / LOG).unlink(missing_ok=True)
            state.jobs[folder].write(folder)
        try:
            _run(waiting, state, launcher, watcher)
        finally:
            state.write()
    return FinishedBenchmark(state.ordered(), state.failures, n_kept)


@dataclass
class _State:
    """Results and failures so far, by folder."""

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
            result = read_result(event.folder, job)
            if result is None:
                failure = Failure(job, event.folder, _reason(event.folder, event.died))
                state.failures.append(failure)
                result = _failed(failure, seconds)
            state.results[event.folder] = result
            if watcher is not None:
                watcher.ended(job, result)
            # Not after every job: there may be thousands that take a second each.
            if time.monotonic() - written > _SECONDS_BETWEEN_TABLES:
                state.write()
                written = time.monotonic()


def _reason(folder: Path, died: str | None) -> str:
    """Return why there is no result, and write it to error.txt if the job did not."""
    reason = read_failure(folder)
    if reason is not None:
        return reason
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
