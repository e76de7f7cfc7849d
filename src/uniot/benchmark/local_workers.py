"""Run jobs in processes of this machine."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from uniot.benchmark.job_files import LOG
from uniot.benchmark.runner import Ended, Event, Started

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_END = 10


class LocalWorkers:
    """Worker processes of this machine, which run jobs; none outlives this process.

    Args:
        count: number of workers.
        gpus: names of GPUs, as in `CUDA_VISIBLE_DEVICES`; each worker sees one of them, in turn. If empty, all see all.
    """

    def __init__(self, count: int, gpus: Sequence[str] = ()) -> None:
        self.count = count
        self._gpus = gpus

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        """Run the jobs of some folders in this order.

        Yields:
            An event when a job starts and when it ends.
        """
        waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for folder in folders:
            waiting.put(folder)
        events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        workers = [
            _Worker({"CUDA_VISIBLE_DEVICES": self._gpus[number % len(self._gpus)]} if self._gpus else {})
            for number in range(min(self.count, len(folders)))
        ]
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


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process sees, as `CUDA_VISIBLE_DEVICES` takes them."""
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return (named or [str(number) for number in range(count)])[:count]


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
    """A process that runs one job after the other, and is replaced if it dies.

    Args:
        environment: variables that it gets besides those of this process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
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
                        [sys.executable, "-m", "uniot.benchmark.worker"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        encoding="utf-8",
                        # Without it, `-m` looks for modules in the working folder first.
                        env={**os.environ, "PYTHONSAFEPATH": "1", **self._environment},
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
