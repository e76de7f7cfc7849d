"""Where a sample can stand, as one number: in a group, in a source class, or put aside.

Group g is g itself, discarded is -1, class c is -2 - c. On the page and in its addresses they are `group-3`,
`discarded` and `class-0`.
"""

from __future__ import annotations

import re

from uniot.errors import DataError

DISCARDED = -1
_TEXT = re.compile(r"(group|class)-(0|[1-9][0-9]{0,8})", re.ASCII)


def class_place(index: int) -> int:
    """The place of a source class."""
    return -2 - index


def is_group(place: int) -> bool:
    """Whether the place is a group."""
    return place >= 0


def is_class(place: int) -> bool:
    """Whether the place is a source class."""
    return place < DISCARDED


def class_index(place: int) -> int:
    """Which source class the place is."""
    return -2 - place


def as_text(place: int) -> str:
    """`group-3`, `class-0` or `discarded`."""
    if is_group(place):
        return f"group-{place}"
    return "discarded" if place == DISCARDED else f"class-{class_index(place)}"


def from_text(text: str) -> int:
    """The place that `as_text` wrote.

    Raises:
        DataError: it is none; whether there is such a group or class is not asked here.
    """
    if text == "discarded":
        return DISCARDED
    found = _TEXT.fullmatch(text)
    if found is None:
        raise DataError(f"{text[:40]!r} is no place. Give group-3, class-0 or discarded.")
    number = int(found[2])
    return number if found[1] == "group" else class_place(number)
