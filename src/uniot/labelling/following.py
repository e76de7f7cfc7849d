"""What to do with a run once its groups have names."""

from __future__ import annotations

import shlex
from pathlib import Path


def next_commands(run: Path) -> list[tuple[str, str]]:
    """Return what can be done next, in words, and the command for it."""
    place = shlex.quote(str(run))
    return [
        ("Adapt again, with the named groups as new classes", f"uniot adapt --continue {place}"),
        ("Make the report, which calls the groups by their names", f"uniot report {place}"),
    ]
