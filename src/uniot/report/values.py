"""Compute the values of the report once: the page and the figures for papers draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from uniot.report.galleries import Galleries, Picture, make_galleries
from uniot.report.map import SampleMap, make_map
from uniot.report.summary import Summary, summarise

if TYPE_CHECKING:
    from uniot.report.run import FinishedRun

KIND_TITLES = {
    "source-absent": "source, class not found",
    "source": "source",
    "known": "target, known",
    "unknown": "target, unknown",
}
"""Titles of the kinds of points on the map."""
COSINE, MASS = "cosine", "mass / mean mass of a row"
"""Units of the matrices."""
MOST_PLACES, MOST_BANDS, MOST_HEADS = 40, 100, 40
_MOST_STEPS = 300
_MOST_CLASSES = 40
_BINS = 40
_LOSSES = {
    "loss": "total loss",
    "loss_source": "labelled samples",
    "loss_common": "your classes",
    "loss_private": "new groups",
}
_DETECTION = {"oracle_recall": "recall", "oracle_specificity": "specificity"}


@dataclass(frozen=True)
class Curve:
    """Tracks a number over the training steps; NaN if a step has none."""

    name: str
    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class ClassMass:
    """Tracks the mass β of the source classes over the training steps.

    Attributes:
        curves: curves of the classes with most mass at the end, the largest first.
        found: whether each of them has a sample in the target.
        even: mass of each class if all had the same.
        left_out: number of classes without a curve.
    """

    curves: list[Curve]
    found: list[bool]
    even: float
    left_out: int


@dataclass(frozen=True)
class ConfidenceCounts:
    """Counts known and unknown samples by their score for being known, as a histogram.

    Attributes:
        edges: edges of the bins, (n_bins + 1,).
        known: number of known samples, (n_bins,).
        unknown: number of unknown samples, (n_bins,).
    """

    edges: np.ndarray
    known: np.ndarray
    unknown: np.ndarray


def losses(run: FinishedRun) -> list[Curve]:
    """Return the losses over the steps, each point the mean over some steps."""
    return _curves(run, {name: title for name, title in _LOSSES.items() if name in run.model.history.columns})


def detection(run: FinishedRun) -> list[Curve]:
    """Return recall and specificity of common-class detection; empty without true labels. Paper: Fig. S1 (a)."""
    return _curves(run, {name: title for name, title in _DETECTION.items() if name in run.model.history.columns})


def class_mass(run: FinishedRun) -> ClassMass | None:
    """Return the class mass over the steps; None if it was not recorded. Paper: Eq. (9)."""
    table = np.array(run.model.history.class_mass)
    if not table.size:
        return None
    steps, masses = table[:, 0], table[:, 1:]
    shown = np.argsort(-masses[-1], kind="stable")[:_MOST_CLASSES].tolist()
    return ClassMass(
        curves=[Curve(run.class_names[index], steps, masses[:, index]) for index in shown],
        found=[bool(run.class_sizes[index]) for index in shown],
        even=1 / masses.shape[1],
        left_out=masses.shape[1] - len(shown),
    )


def confidence_counts(run: FinishedRun) -> ConfidenceCounts:
    """Return a histogram in which one half, the threshold of known, is the edge of a bin."""
    answers = run.answers
    edges = np.linspace(0, 1, _BINS + 1)
    # Rounding may put a known sample below the threshold.
    bins = np.clip((answers.known_score * _BINS).astype(np.int64), 0, _BINS - 1)
    bins = np.where(answers.known, np.maximum(bins, _BINS // 2), np.minimum(bins, _BINS // 2 - 1))
    known = np.bincount(bins[answers.known], minlength=_BINS)
    return ConfidenceCounts(edges, known, np.bincount(bins[~answers.known], minlength=_BINS))


def _curves(run: FinishedRun, titles: dict[str, str]) -> list[Curve]:
    history = run.model.history
    size = max(1, -(-len(history.rows) // _MOST_STEPS))
    steps = np.arange(1, len(history.rows) + 1)
    return [
        Curve(title, _block_means(steps, size), _block_means(np.array(history.column(name)), size))
        for name, title in titles.items()
    ]


def _block_means(values: np.ndarray, size: int) -> np.ndarray:
    """Return the mean over the finite values of each `size` consecutive values."""
    padded = np.full(-(-len(values) // size) * size, np.nan)
    padded[: len(values)] = values
    blocks = padded.reshape(-1, size)
    count = np.isfinite(blocks).sum(axis=1)
    total = np.where(np.isfinite(blocks), blocks, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


_MOST_ROWS, _MOST_COLUMNS = 600, 100


@dataclass(frozen=True)
class Band:
    """Marks consecutive rows of one category, from `start` to before `stop`."""

    name: str
    known: bool
    start: int
    stop: int


@dataclass(frozen=True)
class Matrices:
    """Holds two matrices of target samples against source classes.

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


def make_matrices(run: FinishedRun) -> Matrices:
    """Return both matrices, evenly subsampled if they are large. Paper: Fig. S3 and S4, of one batch."""
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
        has_transport = model.method.has_transport
        mass = model.method.decide(features).odds.numpy()[:, classes] if has_transport else None
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


def matrix_limit(values: np.ndarray) -> float:
    """Return the value with the darkest colour of a matrix; a few outliers do not decide it."""
    return max(float(np.quantile(values, 0.998)), 1e-3)


def class_pictures(run: FinishedRun, matrices: Matrices) -> list[Picture | None]:
    """Return a labelled picture per class of the matrices; an empty list if they would be too narrow to see."""
    if run.pictures is None or len(matrices.classes) > MOST_HEADS:
        return []
    rows = [run.nearest_source_rows.get(index) for index in matrices.classes.tolist()]
    return [None if row is None else ("source", row) for row in rows]


@dataclass(frozen=True, eq=False)
class ReportValues:
    """Holds everything that the page and the figures show of a run.

    Attributes:
        run: the run.
        summary: counts.
        map: samples on a plane.
        classes: galleries of source classes.
        groups: galleries of groups of unknown samples.
        confidence: histogram of the score for being known.
        matrices: samples against classes.
        heads: a labelled picture per class of the matrices; empty if there are none.
        losses: losses over the steps; empty if nothing was trained.
        mass: class mass over the steps; None if it was not recorded.
        detection: recall and specificity over the steps; empty without true labels.
    """

    run: FinishedRun
    summary: Summary
    map: SampleMap
    classes: Galleries
    groups: Galleries
    confidence: ConfidenceCounts
    matrices: Matrices
    heads: list[Picture | None]
    losses: list[Curve]
    mass: ClassMass | None
    detection: list[Curve]

    @classmethod
    def of(cls, run: FinishedRun) -> ReportValues:
        """Return the values of a run."""
        matrices = make_matrices(run)
        return cls(
            run,
            summarise(run),
            make_map(run),
            make_galleries(run, known=True),
            make_galleries(run, known=False),
            confidence_counts(run),
            matrices,
            class_pictures(run, matrices),
            losses(run),
            class_mass(run),
            detection(run),
        )


_LONGEST_NAME = 24


def shortened(name: str) -> str:
    """Return a name in one line, cut to a length that leaves room for others."""
    # A line break in a name would break the layout.
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
