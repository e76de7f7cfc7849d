"""Numbers and lists in sentences: one thing or several, and a few names of many."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the word for one thing or for several; `many` if an s is not enough."""
    return one if number == 1 else many or f"{one}s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its word: `1 image`, `2,000 images`."""
    return f"{number:,} {plural(number, one, many)}"


def listed(names: Collection[object], most: int = 12) -> str:
    """Return names separated by commas, and how many are left out."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, islice(names, most))) + more
