"""The place of a target sample: a group, a source class, or discarded, as one integer.

g stands for group g, -1 for discarded, -2 - c for source class c. The labelling page and its URLs write them as
`group-3`, `discarded` and `class-0`.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from uniot.errors import DataError
from uniot.io.predictions import Prediction

DISCARDED = -1
_TEXT = re.compile(r"(group|class)-(0|[1-9][0-9]{0,8})", re.ASCII)


def class_place(index: int) -> int:
    """Return the place of a source class."""
    return -2 - index


def is_group(place: int) -> bool:
    """Return whether the place is a group."""
    return place >= 0


def is_class(place: int) -> bool:
    """Return whether the place is a source class."""
    return place < DISCARDED


def class_index(place: int) -> int:
    """Return the index of the source class at a place."""
    return -2 - place


def as_text(place: int) -> str:
    """Return a place as text: `group-3`, `class-0` or `discarded`."""
    if is_group(place):
        return f"group-{place}"
    return "discarded" if place == DISCARDED else f"class-{class_index(place)}"


def from_text(text: str) -> int:
    """Return the place that `as_text` wrote; whether such a group or class exists is not checked.

    Raises:
        DataError: the text is not a place.
    """
    if text == "discarded":
        return DISCARDED
    found = _TEXT.fullmatch(text)
    if found is None:
        raise DataError(f"{text[:40]!r} is not a place. Give group-3, class-0 or discarded.")
    number = int(found[2])
    return number if found[1] == "group" else class_place(number)


def start_places(predicted: Prediction, n_groups: int) -> NDArray[np.int64]:
    """Return the place of each sample before any annotation, (n_samples,); ungrouped ones form the last group."""
    groups = np.where(predicted.group < 0, n_groups, predicted.group)
    return np.asarray(np.where(predicted.known, class_place(0) - predicted.nearest, groups), dtype=np.int64)
