"""What the runner asks of whatever runs jobs, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Started:
    """The job of a folder has begun."""

    folder: Path


@dataclass(frozen=True)
class Ended:
    """The job of a folder is over; what came of it is in the folder.

    Attributes:
        folder: of the job.
        died: how the process ended that should have told what came of it; None where it did tell.
    """

    folder: Path
    died: str | None = None


Event = Started | Ended


class Launcher(Protocol):
    """Runs jobs, each with `uniot.benchmark.jobs.perform`.

    Attributes:
        count: jobs at a time, to tell how long it will take.
    """

    count: int

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        """Runs the jobs of these folders; when the generator is closed, it ends those under way."""
        ...
