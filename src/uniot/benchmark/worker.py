"""Run jobs in a process of their own: `python -m uniot.benchmark.worker [JOB_FOLDER …]`.

Without folders it reads one folder per line of standard input, as JSON, and prints a line when the job has ended. One
process runs many jobs, because importing torch takes seconds. It exits as soon as standard input closes, even if the
parent process was killed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from uniot.benchmark.fit_and_score import run_job
from uniot.benchmark.job_files import LOG, clear, write_failure, write_result
from uniot.benchmark.jobs import Job
from uniot.errors import UniotError
from uniot.runs.files import RunFiles
from uniot.runs.saving import CheckpointFile


def perform(folder: Path) -> bool:
    """Run the job of a folder and write its outcome there.

    An error is written to error.txt, with a sentence in its first line, so that other jobs can continue.

    Returns:
        Whether the job succeeded.
    """
    clear(folder)
    try:
        job = Job.read(folder)
        write_result(folder, job, run_job(job, folder))
        CheckpointFile(RunFiles(folder)).clear()
    except Exception as error:
        sentence = str(error) if isinstance(error, UniotError) else f"{type(error).__name__}: {error}"
        write_failure(folder, sentence, traceback.format_exc())
        return False
    return True


def main(arguments: list[str]) -> int:
    """Run the jobs of some folders, or serve a parent process.

    Returns:
        The exit code: 1 if a job failed, 0 otherwise.
    """
    if not arguments:
        serve()
    failed = [folder for folder in arguments if not perform(Path(folder))]
    return 1 if failed else 0


def serve() -> NoReturn:
    """Run jobs until standard input closes."""
    faulthandler.enable()
    # Ctrl-C reaches every process of a terminal; the parent process decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of libraries must not be read as a reply.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        coming: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(coming,), daemon=True).start()
        while True:
            folder = Path(json.loads(coming.get()))
            _log_to(folder / LOG)
            succeeded = perform(folder)
            _remove_if_empty(folder / LOG)
            replies.write(f"{json.dumps(succeeded)}\n")
            replies.flush()


def _read_lines(coming: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        coming.put(line)
    # Not sys.exit, which would end this thread alone. A result is written whole or not at all.
    os._exit(0)


def _log_to(path: Path) -> None:
    """Redirect everything that this process prints to a file."""
    with path.open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _remove_if_empty(path: Path) -> None:
    with suppress(OSError):  # some systems keep a file that is open
        if path.stat().st_size == 0:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
