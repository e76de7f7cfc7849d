"""Half a gigabyte is all that a test may take beyond what its process has."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def little_memory(room: int = 1 << 29) -> Iterator[None]:
    """Let this process take `room` more bytes than it has, where the system can count them."""
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
