"""Run jobs on a Slurm cluster, through submitit."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniot.benchmark.job_files import LOG, is_over
from uniot.benchmark.runner import Ended, Event, Started
from uniot.errors import SettingsError, import_optional

if TYPE_CHECKING:
    import submitit

# Slurm's default limit on the length of an array.
_LONGEST_ARRAY = 1000
_SECONDS_TO_END = 10
_SECONDS_BETWEEN_POLLS = {"slurm": 2.0, "local": 0.2}
_DEFAULTS: dict[str, Any] = {"name": "uniot-benchmark", "timeout_min": 240}


class SlurmArrays:
    """Arrays of jobs on Slurm, through submitit, which keeps its files in the folder `cluster`.

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
    return bool(import_module("uniot.benchmark.worker").perform(folder))


def _ended(folder: Path, job: submitit.Job[bool]) -> Ended:
    if is_over(folder):
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
