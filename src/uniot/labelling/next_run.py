"""The collections of the next run: labelled target samples join the source, discarded ones leave the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uniot.errors import DataError
from uniot.io.text import as_utf8
from uniot.labelling.names import Names


@dataclass(frozen=True)
class NamedRows:
    """The target samples that the next run learns from, and those that it leaves out.

    Attributes:
        labelled: rows that have a label now, (n_labelled,).
        labels: label of each of these rows, text, (n_labelled,).
        kept: whether each row stays in the target, (n_samples,): all except discarded ones. Labelled rows stay, so that
            the next run predicts them too.
    """

    labelled: np.ndarray
    labels: np.ndarray
    kept: np.ndarray


def named_rows(samples: Sequence[str], names: Names) -> NamedRows:
    """Find the samples of a target that were labelled or discarded.

    Args:
        samples: names of the samples, as in predictions.csv, (n_samples,).
        names: labels that people gave.

    Returns:
        The labelled rows with their labels, and which rows are kept.

    Raises:
        DataError: there are no labels, or labels for samples that are not in the target.
    """
    row_of = {as_utf8(sample): row for row, sample in enumerate(samples)}
    missing = [name for name in names.names if name not in row_of]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(names.names)} labelled samples are not in the target, for example {missing[0]!r}. "
            "Give the target that was labelled, from the same folder or list file."
        )
    rows = np.array([row_of[name] for name in names.names], dtype=np.int64)
    discarded, has_label = names.decisions == "discarded", names.has_label
    if not len(rows):
        raise DataError("nothing has a name yet. Name a group with `uniot label`.")
    kept = np.ones(len(samples), dtype=bool)
    kept[rows[discarded]] = False
    return NamedRows(rows[has_label], names.labels[has_label], kept)
