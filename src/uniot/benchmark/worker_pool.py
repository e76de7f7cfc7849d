"""Start the processes that run jobs, on this machine or on a cluster."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniot.errors import SettingsError, import_optional

if TYPE_CHECKING:
    import submitit
from uniot.benchmark.runner import LOG, Ended, Event, Started, has_outcome

_WORKER = "uniot.benchmark.worker"
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_END = 10


class LocalWorkers:
    """Runs jobs in worker processes on this machine; no worker outlives this process.

    Args:
        count: number of workers.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        """Run the jobs of some folders in this order.

        Yields:
            An event when a job starts and when it ends.
        """
        waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for folder in folders:
            waiting.put(folder)
        events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        workers = [_Worker() for _ in range(min(self.count, len(folders)))]
        threads = [threading.Thread(target=_serve, args=(worker, waiting, events), daemon=True) for worker in workers]
        try:
            for thread in threads:
                thread.start()
            n_ended = 0
            while n_ended < len(folders):
                # Short timeouts, because some systems deliver Ctrl-C only between calls.
                with suppress(queue.Empty):
                    event = events.get(timeout=_SECONDS_BETWEEN_LOOKS)
                    if isinstance(event, BaseException):
                        raise event
                    n_ended += isinstance(event, Ended)
                    yield event
        finally:
            for worker in workers:
                worker.end()
            for thread in threads:
                thread.join(_SECONDS_TO_END)


def _serve(worker: _Worker, waiting: queue.SimpleQueue[Path], events: queue.SimpleQueue[Event | BaseException]) -> None:
    """Give a worker one job after the other; runs in a thread per worker."""
    try:
        while not worker.is_ended:
            folder = waiting.get_nowait()
            events.put(Started(folder))
            events.put(Ended(folder, worker.do(folder)))
    except queue.Empty:
        return
    except BaseException as error:
        events.put(error)


class _Worker:
    """Runs one job after the other in a process, which is replaced if it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.is_ended = False

    def do(self, folder: Path) -> str | None:
        """Run a job; return how the process died, or None."""
        process = self._started(folder)
        if process is None:
            return "the benchmark was stopped"
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # it is dead already, which shows below
            process.stdin.write(f"{json.dumps(str(folder))}\n")
            process.stdin.flush()
        if process.stdout.readline():
            return None
        return _how_it_died(process.wait())

    def end(self) -> None:
        """Kill the process and start no other."""
        with self._lock:
            self.is_ended = True
            self._discard()

    def _started(self, folder: Path) -> subprocess.Popen[str] | None:
        """Return the process, a new one if it has died; None after `end`."""
        with self._lock:
            if self.is_ended:
                return None
            if self._process is None or self._process.poll() is not None:
                self._discard()
                # Errors before the first job, such as a missing package, belong to the log of that job.
                with (folder / LOG).open("wb") as log:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", _WORKER],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        encoding="utf-8",
                        # Without it, `-m` looks for modules in the working folder first.
                        env={**os.environ, "PYTHONSAFEPATH": "1"},
                    )
            return self._process

    def _discard(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # unread input is of no interest
                if pipe is not None:
                    pipe.close()
        self._process = None


def _how_it_died(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
        return f"its process was ended by {name}{', often for want of memory' if name == 'SIGKILL' else ''}"
    return f"its process was ended by signal {-code}"


# Slurm's default limit on the length of an array.
_LONGEST_ARRAY = 1000
_SECONDS_BETWEEN_POLLS = {"slurm": 2.0, "local": 0.2}
_DEFAULTS: dict[str, Any] = {"name": "uniot-benchmark", "timeout_min": 240}


class Cluster:
    """Submits jobs as arrays through submitit, which keeps its files in the folder `cluster`.

    The submitting process collects the results. Submitted jobs continue without it, and their results are used when
    the benchmark is run again; Ctrl-C cancels them.

    Args:
        out: folder of the benchmark, on a file system that all machines of the cluster share.
        count: number of jobs that run at the same time.
        kind: "slurm"; or "local" for submitit's processes on this machine, to try without a cluster.
        parameters: what submitit's `AutoExecutor.update_parameters` takes: timeout_min, mem_gb, cpus_per_task,
            slurm_partition, ….
    """

    def __init__(
        self, out: Path, count: int, kind: str = "slurm", parameters: Mapping[str, int | float | str] | None = None
    ) -> None:
        self.count = count
        self._kind = kind
        self._executor = _executor(out / "cluster", count, kind, parameters or {})

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        """Submit the jobs of some folders.

        Yields:
            An event when a job starts and when it ends.
        """
        at_once = _LONGEST_ARRAY if self._kind == "slurm" else self.count
        for start in range(0, len(folders), at_once):
            yield from self._run_array(folders[start : start + at_once])

    def _run_array(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        jobs = self._executor.map_array(_perform, [folder.absolute() for folder in folders])
        waiting, running = dict(zip(folders, jobs, strict=True)), set()
        try:
            while waiting:
                for folder, job in list(waiting.items()):
                    over = job.done()
                    if folder not in running and (over or job.state == "RUNNING"):
                        running.add(folder)
                        yield Started(folder)
                    if over:
                        del waiting[folder]
                        yield _ended(folder, job)
                time.sleep(_SECONDS_BETWEEN_POLLS[self._kind])
        finally:
            for job in waiting.values():
                job.cancel(check=False)
            until = time.monotonic() + _SECONDS_TO_END
            while self._kind == "local" and not all(job.done() for job in jobs) and time.monotonic() < until:
                time.sleep(_SECONDS_BETWEEN_POLLS[self._kind])


def _perform(folder: Path) -> bool:
    # Imported here because only the machines of the cluster need it.
    return bool(import_module(_WORKER).perform(folder))


def _ended(folder: Path, job: submitit.Job[bool]) -> Ended:
    if has_outcome(folder):
        return Ended(folder)
    with suppress(OSError):
        (folder / LOG).write_text(job.stderr() or job.stdout() or "", encoding="utf-8")
    return Ended(folder, f"job {job.job_id} of the cluster has the state {job.state} and no outcome")


def _executor(
    folder: Path, count: int, kind: str, parameters: Mapping[str, int | float | str]
) -> submitit.AutoExecutor:
    import_optional("submitit", "benchmark", "the option --slurm")
    import submitit

    if kind not in _SECONDS_BETWEEN_POLLS:
        raise SettingsError(f"there is no cluster called {kind!r}. Take slurm, or local to try without a cluster.")
    try:
        executor = submitit.AutoExecutor(folder, cluster=kind)
        executor.update_parameters(**_DEFAULTS | {"slurm_array_parallelism": count} | dict(parameters))
    except (NameError, ValueError, AssertionError, RuntimeError, TypeError) as error:
        raise SettingsError(
            f"submitit does not take this ({error}). Give what its `AutoExecutor.update_parameters` takes, such as "
            "timeout_min=60 or slurm_partition=cpu, on a machine that has `sbatch`."
        ) from None
    return executor
