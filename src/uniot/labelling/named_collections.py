"""What people named becomes labelled: the two collections of the next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uniot.data.image_files import ImageFile
from uniot.data.text import as_utf8
from uniot.errors import DataError
from uniot.labelling.names import Names


@dataclass(frozen=True)
class NamedRows:
    """Which samples of a target the next run learns from, and which it leaves out.

    Attributes:
        labelled: rows that have a label now, (m,).
        labels: theirs, text, (m,).
        kept: whether the row stays in the target, (n,): all but those discarded. One that has a label stays, so that
            the next run answers for it too.
    """

    labelled: np.ndarray
    labels: np.ndarray
    kept: np.ndarray


def named_rows(samples: Sequence[str], names: Names) -> NamedRows:
    """Finds the samples of a target that were named.

    Args:
        samples: what they are called, as in predictions.csv.
        names: what people decided.

    Raises:
        DataError: none was named, or names are about samples that are not there.
    """
    place = {as_utf8(sample): row for row, sample in enumerate(samples)}
    strange = [name for name in names.names if name not in place]
    if strange:
        raise DataError(
            f"{len(strange)} of {len(names.names)} names are about samples that the target lacks, {strange[0]!r} "
            "first. Give the target that was labelled, from the same folder or list file."
        )
    rows = np.array([place[name] for name in names.names], dtype=np.int64)
    discarded = names.decisions == "discarded"
    if not len(rows):
        raise DataError("nothing has a name yet. Name a group with `uniot label`.")
    kept = np.ones(len(samples), dtype=bool)
    kept[rows[discarded]] = False
    return NamedRows(rows[~discarded], names.labels[~discarded], kept)


def named_images(
    source: Sequence[ImageFile], target: Sequence[ImageFile], names: Names
) -> tuple[list[ImageFile], list[ImageFile], np.ndarray]:
    """Both collections of the next run, and whether each file of the old target is in the new one."""
    found = named_rows([file.name for file in target], names)
    labels: Mapping[int, str] = dict(zip(found.labelled.tolist(), found.labels.tolist(), strict=True))
    labelled = [replace(target[row], label=label) for row, label in labels.items()]
    remaining = [file for file, keep in zip(target, found.kept, strict=True) if keep]
    return [*source, *labelled], remaining, found.kept


def named_embeddings(
    x_source: np.ndarray, y_source: np.ndarray, x_target: np.ndarray, samples: Sequence[str], names: Names
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Source, its labels as text, and target of the next run; and whether each row of the old target is in it."""
    found = named_rows(samples, names)
    x = np.concatenate([x_source, x_target[found.labelled]])
    y = np.concatenate([np.asarray(y_source).astype(str), found.labels.astype(str)])
    return x, y, x_target[found.kept], found.kept
