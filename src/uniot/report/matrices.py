"""Target samples against source classes: similarity and transport plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from uniot.report.categories import Categories
from uniot.runs.thumbnails import Picture

if TYPE_CHECKING:
    from uniot.runs.run import Run
    from uniot.training.model import AdaptedModel

COSINE, MASS = "cosine", "mass / mean mass of a row"
"""Units of the matrices."""
MOST_BANDS, MOST_HEADS = 100, 40
_MOST_ROWS, _MOST_COLUMNS = 600, 100


@dataclass(frozen=True)
class Band:
    """Consecutive rows of one category, from `start` to before `stop`."""

    name: str
    known: bool
    start: int
    stop: int


@dataclass(frozen=True)
class Matrices:
    """Two matrices of target samples against source classes.

    Attributes:
        rows: target rows, by category and then by confidence, (n_rows,).
        classes: source classes, those found first, (n_columns,).
        similarity: cosine of each sample to each class prototype, (n_rows, n_columns).
        mass: transport plan in units of the mean mass of a row, (n_rows, n_columns): a sample is known iff the largest
            entry of its row, over all classes, is at least one. None if the method has no transport.
        bands: categories of the rows.
        rows_left_out: number of target samples that are not shown.
        classes_left_out: number of source classes that are not shown.
    """

    rows: np.ndarray
    classes: np.ndarray
    similarity: np.ndarray
    mass: np.ndarray | None
    bands: list[Band]
    rows_left_out: int
    classes_left_out: int


def make_matrices(model: AdaptedModel, categories: Categories) -> Matrices:
    """Return both matrices, evenly subsampled if they are large. Paper: Fig. S3 and S4, of one batch."""
    sizes, found = categories.class_sizes, categories.found
    classes = np.lexsort((np.arange(len(sizes)), -sizes))[:_MOST_COLUMNS]
    members = [category.members for category in found]
    every = np.concatenate(members)
    of_category = np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    chosen = np.linspace(0, len(every) - 1, min(_MOST_ROWS, len(every))).round().astype(np.int64)
    rows, of_category = every[chosen], of_category[chosen]
    with torch.no_grad():
        features = torch.from_numpy(model.target_features[rows])
        cosines = (features.double() @ torch.from_numpy(model.class_centres).double().t()).numpy()
        has_transport = model.method.has_transport
        mass = model.method.decide(features).odds.numpy()[:, classes] if has_transport else None
    shown, starts = np.unique(of_category, return_index=True)
    stops = [*starts[1:].tolist(), len(rows)]
    bands = [
        Band(found[index].name, found[index].known, start, stop)
        for index, start, stop in zip(shown.tolist(), starts.tolist(), stops, strict=True)
    ]
    return Matrices(
        rows=rows,
        classes=classes,
        similarity=cosines[:, classes],
        mass=mass,
        bands=bands,
        rows_left_out=len(every) - len(rows),
        classes_left_out=len(sizes) - len(classes),
    )


def matrix_limit(values: np.ndarray) -> float:
    """Return the value with the darkest colour of a matrix; a few outliers do not decide it."""
    return max(float(np.quantile(values, 0.998)), 1e-3)


def class_pictures(run: Run, matrices: Matrices) -> list[Picture | None]:
    """Return a labelled picture per class of the matrices; an empty list if they would be too narrow to see."""
    if run.pictures is None or len(matrices.classes) > MOST_HEADS:
        return []
    rows = run.model.source.nearest_rows(run.model.class_centres)[matrices.classes].tolist()
    return [None if row < 0 else ("source", row) for row in rows]
