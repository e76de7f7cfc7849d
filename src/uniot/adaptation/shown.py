"""Decide by its values whether a column that a person sees has texts, links or paths of images."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from uniot.images.decoding import IMAGE_SUFFIXES
from uniot.io.shown import Shown

_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
# Files that are looked for: paths of another machine are shown as texts.
_MOST_FILES = 100


def shown_values(values: Sequence[str], folder: Path) -> Shown:
    """Return what a person sees of samples: links or images if all values that are not empty are, else texts.

    Args:
        values: column of a table, (n_samples,).
        folder: of the table, which the paths of images are relative to.
    """
    given = [value.strip() for value in values if value.strip()]
    if given and all(_LINK.fullmatch(value) for value in given):
        return Shown("link", [value.strip() for value in values])
    if given and all(value.lower().endswith(IMAGE_SUFFIXES) for value in given):
        places = [str((folder / value.strip()).absolute()) for value in values]
        if any(os.access(folder / value, os.F_OK) for value in given[:_MOST_FILES]):
            return Shown("image", places)
    return Shown("text", list(values))


def of_one_kind(source: Shown | None, target: Shown | None) -> Shown | None:
    """Return what a person sees of the source, as texts if the target shows something else; None without either."""
    if source is None or target is None or source.kind == target.kind:
        return None if target is None else source
    return Shown("text", source.values)
