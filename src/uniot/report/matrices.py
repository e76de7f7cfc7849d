"""Target samples against source classes: how alike they are, and how much mass the transport sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from uniot.methods import UniOTMethod
from uniot.report.finished_run import FinishedRun

_MOST_ROWS, _MOST_COLUMNS = 600, 100


@dataclass(frozen=True)
class Band:
    """Neighbouring rows of one category, from `start` to before `stop`."""

    name: str
    known: bool
    start: int
    stop: int


@dataclass(frozen=True)
class Matrices:
    """Two matrices with the same rows and columns.

    Attributes:
        rows: of the target, by category and then by confidence, (r,).
        classes: source classes, those found first, (k,).
        similarity: cosine of each sample to each class prototype, (r, k).
        mass: of the transport plan, in units of the mean mass of a row: a sample is known iff its row's largest
            entry, over all classes, is at least one, (r, k). None where the method has no transport.
        bands: categories of the rows.
        rows_left_out: samples of the target that are not shown.
        classes_left_out: source classes that are not shown.
    """

    rows: np.ndarray
    classes: np.ndarray
    similarity: np.ndarray
    mass: np.ndarray | None
    bands: list[Band]
    rows_left_out: int
    classes_left_out: int


def make_matrices(run: FinishedRun) -> Matrices:
    """Both matrices, evenly thinned where they are large. Paper: Fig. S3 and S4, of one batch."""
    sizes, names = run.class_sizes, run.class_names
    classes = np.lexsort((np.arange(len(names)), -sizes))[:_MOST_COLUMNS]
    members = [category.members for category in run.categories]
    every = np.concatenate(members)
    of_category = np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    chosen = np.linspace(0, len(every) - 1, min(_MOST_ROWS, len(every))).round().astype(np.int64)
    rows, of_category = every[chosen], of_category[chosen]
    model = run.model
    with torch.no_grad():
        features = torch.from_numpy(model.target_features[rows])
        cosines = (features.double() @ torch.from_numpy(model.class_centres).double().t()).numpy()
        has_transport = isinstance(model.method, UniOTMethod)
        mass = model.method.decide(features).shares.numpy()[:, classes] if has_transport else None
    shown, starts = np.unique(of_category, return_index=True)
    stops = [*starts[1:].tolist(), len(rows)]
    bands = [
        Band(run.categories[index].name, run.categories[index].known, start, stop)
        for index, start, stop in zip(shown.tolist(), starts.tolist(), stops, strict=True)
    ]
    return Matrices(
        rows=rows,
        classes=classes,
        similarity=cosines[:, classes],
        mass=mass,
        bands=bands,
        rows_left_out=len(every) - len(rows),
        classes_left_out=len(names) - len(classes),
    )
