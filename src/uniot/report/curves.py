"""Numbers over the training steps: losses, class mass, and the detection of common classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from uniot.training.history import History
    from uniot.training.model import AdaptedModel

_MOST_STEPS = 300
_MOST_CLASSES = 40
_LOSSES = {
    "loss": "total loss",
    "loss_source": "labelled samples",
    "loss_common": "your classes",
    "loss_private": "new groups",
}
_DETECTION = {"oracle_recall": "recall", "oracle_specificity": "specificity"}


@dataclass(frozen=True)
class Curve:
    """A number over the training steps; NaN if a step has none."""

    name: str
    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class ClassMass:
    """The mass β of the source classes over the training steps.

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


def losses(history: History) -> list[Curve]:
    """Return the losses over the steps, each point the mean over some steps."""
    return _curves(history, _LOSSES)


def detection(history: History) -> list[Curve]:
    """Return recall and specificity of common-class detection; empty without true labels. Paper: Fig. S1 (a)."""
    return _curves(history, _DETECTION)


def class_mass(model: AdaptedModel, class_sizes: np.ndarray) -> ClassMass | None:
    """Return the class mass over the steps; None if it was not recorded. Paper: Eq. (9)."""
    table = np.array(model.history.class_mass)
    if not table.size:
        return None
    steps, masses = table[:, 0], table[:, 1:]
    shown = np.argsort(-masses[-1], kind="stable")[:_MOST_CLASSES].tolist()
    return ClassMass(
        curves=[Curve(model.class_names[index], steps, masses[:, index]) for index in shown],
        found=[bool(class_sizes[index]) for index in shown],
        even=1 / masses.shape[1],
        left_out=masses.shape[1] - len(shown),
    )


def _curves(history: History, titles: Mapping[str, str]) -> list[Curve]:
    size = max(1, -(-len(history.rows) // _MOST_STEPS))
    steps = np.arange(1, len(history.rows) + 1)
    return [
        Curve(title, _block_means(steps, size), _block_means(np.array(history.column(name)), size))
        for name, title in titles.items()
        if name in history.columns
    ]


def _block_means(values: np.ndarray, size: int) -> np.ndarray:
    """Return the mean over the finite values of each `size` consecutive values."""
    padded = np.full(-(-len(values) // size) * size, np.nan)
    padded[: len(values)] = values
    blocks = padded.reshape(-1, size)
    count = np.isfinite(blocks).sum(axis=1)
    total = np.where(np.isfinite(blocks), blocks, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
