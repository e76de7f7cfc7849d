"""Run the jobs of a benchmark that are not finished, and collect their results."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from uniot.benchmark.oracle_answers import AnswerScore
from uniot.benchmark.results import Result, write_results
from uniot.io.files import only_one_writer, write_text

if TYPE_CHECKING:
    from uniot.benchmark.jobs import Job

LOG = "log.txt"
"""Name of the file with the output of a job's process, in the job's folder."""
_RESULT, _ERROR = "result.json", "error.txt"


def has_outcome(folder: Path) -> bool:
    """Return whether the job of a folder has finished or failed."""
    return any((folder / name).exists() for name in (_RESULT, _ERROR))


def clear(folder: Path) -> None:
    """Remove the files of an earlier attempt from a job's folder."""
    for name in (_RESULT, _ERROR, LOG):
        (folder / name).unlink(missing_ok=True)


def finished(job: Job, folder: Path) -> Result | None:
    """Return the result in a job's folder, or None if there is none or it is of another job."""
    try:
        about = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        if about["digest"] != job.digest:
            return None
        # Older results have this score only among the scores of the evaluation.
        values = {"nmi_oracle": about["evaluation"]["nmi_oracle"], **about["result"]}
        return replace(Result(**values), backbone=job.backbone, dataset=job.dataset)
    except (OSError, ValueError, KeyError, TypeError):
        # Absent, damaged, or of another version: the job is run again.
        return None


def read_oracle_answers(folder: Path) -> list[AnswerScore]:
    """Return the scores after simulated answers in the folder of a finished job."""
    about = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    return [AnswerScore(**row) for row in about["oracle_answers"]]


def write_failure(folder: Path, sentence: str, details: str = "") -> None:
    """Write error.txt: a sentence, and details such as the traceback."""
    one_line = " ".join(sentence.split()) or "it failed without a message"
    write_text(folder / _ERROR, f"{one_line}\n\n{details}".rstrip() + "\n")


def read_failure(folder: Path) -> str | None:
    """Return the first line of error.txt, or None if there is no such file."""
    try:
        return (folder / _ERROR).read_text(encoding="utf-8").partition("\n")[0]
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Started:
    """Reports that the job of a folder has started."""

    folder: Path


@dataclass(frozen=True)
class Ended:
    """Reports that the job of a folder has ended; its outcome is in the folder.

    Attributes:
        folder: the job's folder.
        died: how the process ended, if it ended without writing a result or an error; None otherwise.
    """

    folder: Path
    died: str | None = None


Event = Started | Ended


class Launcher(Protocol):
    """Runs jobs, each with `uniot.benchmark.worker.perform`.

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
    """Receives the progress of a benchmark."""

    def kept(self, job: Job, result: Result) -> None:
        """Handle a job that was finished before."""

    def started(self, job: Job) -> None:
        """Handle a job that has started."""

    def ended(self, job: Job, result: Result) -> None:
        """Handle a job that has succeeded or failed."""


@dataclass(frozen=True)
class Failure:
    """Describes a failed job, its folder and the reason."""

    job: Job
    folder: Path
    reason: str


@dataclass(frozen=True)
class Summary:
    """Summarises the results of a benchmark.

    Attributes:
        results: a result per job, in the order of the jobs; that of a failed job has the reason.
        failures: failed jobs.
        n_kept: number of jobs that were finished before.
    """

    results: list[Result]
    failures: list[Failure]
    n_kept: int


def run_benchmark(jobs: Sequence[Job], out: Path, launcher: Launcher, watcher: Watcher | None = None) -> Summary:
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
    """Collects results and failures so far, by folder."""

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
