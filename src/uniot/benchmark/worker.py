"""A process that does jobs: `python -m uniot.benchmark.worker [JOB_FOLDER …]`.

Without folders it serves whoever started it: a folder a line comes in, as JSON; a line goes out when the job is over.
It stays for the next job, because importing torch anew takes seconds. When its standard input closes, even because the
other end was killed, it ends at once.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from uniot.benchmark.jobs import LOG, perform


def main(arguments: list[str]) -> int:
    """Does the jobs of some folders, or serves; the exit code is 1 where a job failed."""
    if not arguments:
        serve()
    failed = [folder for folder in arguments if not perform(Path(folder))]
    return 1 if failed else 0


def serve() -> NoReturn:
    """Does jobs until standard input closes."""
    faulthandler.enable()
    # Ctrl-C reaches every process of a terminal; what becomes of this one is decided by the one that started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print must not pass for an answer.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        coming: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(coming,), daemon=True).start()
        while True:
            folder = Path(json.loads(coming.get()))
            _log_to(folder / LOG)
            succeeded = perform(folder)
            _remove_if_empty(folder / LOG)
            answers.write(f"{json.dumps(succeeded)}\n")
            answers.flush()


def _read_lines(coming: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        coming.put(line)
    # Not sys.exit, which would end this thread alone. A result is written whole or not at all.
    os._exit(0)


def _log_to(path: Path) -> None:
    """Sends everything that this process prints to a file."""
    with path.open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _remove_if_empty(path: Path) -> None:
    with suppress(OSError):  # some systems keep a file that is open
        if path.stat().st_size == 0:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
