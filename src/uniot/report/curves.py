"""Numbers over the steps of the training, thinned to what a chart can show, and the spread of the confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.report.finished_run import FinishedRun

_MOST_STEPS = 300
_MOST_CLASSES = 40
_BINS = 40

_LOSSES = {
    "loss": "whole loss",
    "loss_source": "labelled samples",
    "loss_common": "common classes",
    "loss_private": "private classes",
}
_DETECTION = {"oracle_recall": "recall", "oracle_specificity": "specificity"}


@dataclass(frozen=True)
class Curve:
    """A number over the steps; NaN where a step has none."""

    name: str
    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class ClassMass:
    """Mass β of source classes over the steps.

    Attributes:
        curves: of the classes with most mass at the end, the largest first.
        found: whether each of them has a sample in the target.
        even: what each would have if all had the same.
        left_out: classes without a curve.
    """

    curves: list[Curve]
    found: list[bool]
    even: float
    left_out: int


@dataclass(frozen=True)
class ConfidenceCounts:
    """How many samples of the target have which known score, by known and unknown.

    Attributes:
        edges: of the bins, (b + 1,).
        known: (b,).
        unknown: (b,).
    """

    edges: np.ndarray
    known: np.ndarray
    unknown: np.ndarray


def losses(run: FinishedRun) -> list[Curve]:
    """Every loss; each point is the mean over some steps."""
    return _curves(run, {name: title for name, title in _LOSSES.items() if name in run.model.history.columns})


def detection(run: FinishedRun) -> list[Curve]:
    """Recall and specificity of common-class detection, where the truth was given. Paper: Fig. S1 (a)."""
    return _curves(run, {name: title for name, title in _DETECTION.items() if name in run.model.history.columns})


def class_mass(run: FinishedRun) -> ClassMass | None:
    """What each source class may receive, over the steps; None where it was not noted. Paper: Eq. (9)."""
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
    """A histogram in which one half, where known begins, is the border of two bins."""
    answers = run.answers
    edges = np.linspace(0, 1, _BINS + 1)
    # A known sample on the border may lie a rounding below it.
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
    """Mean of each `size` values in a row, over those that are numbers."""
    padded = np.full(-(-len(values) // size) * size, np.nan)
    padded[: len(values)] = values
    blocks = padded.reshape(-1, size)
    count = np.isfinite(blocks).sum(axis=1)
    total = np.where(np.isfinite(blocks), blocks, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
