"""Find source labels that look wrong, because neither the sample's neighbours nor a linear model support them.

Two leave-one-out predictions are averaged for each sample: a vote of its nearest neighbours in the source, and ridge
regression on the class indicators, which has a closed form. A logistic curve turns the margin by which another class
beats the given one into a probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from uniot.data_quality.near_duplicates import map_unit_rows, unit_centre
from uniot.errors import DataError
from uniot.io.arrays import as_inputs, scaled_rows
from uniot.io.labels import as_labels
from uniot.linear_algebra import leading_directions
from uniot.neighbours import Neighbours

LISTED, CLEAR = 0.5, 0.8
"""Minimum score of a label that is listed, and of one that is clearly wrong."""

# Chosen on PACS, PlantVillage, PlantDoc and digits with 5 % of the labels flipped: docs/data-quality.md.
_WIDTH = 256
_NEIGHBOURS = 20
_TEMPERATURE = 0.1
_RIDGE = 0.3
_SLOPE, _INTERCEPT = 9.0, -4.4
# More rows do not improve the leading directions.
_MAX_BASIS_ROWS = 5000
_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class SuspectLabels:
    """The probability that each source label is wrong.

    Attributes:
        score: estimated probability that the label is wrong, from 0 to 1, (n_samples,).
        given: the labels, (n_samples,).
        suggested: the most likely other class of each sample, (n_samples,).
    """

    score: NDArray[np.float32]
    given: np.ndarray
    suggested: np.ndarray

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Return the samples whose label is more likely wrong than right, the most likely first, (n_listed,)."""
        order = np.argsort(-self.score, kind="stable")
        return np.asarray(order[self.score[order] >= LISTED], dtype=np.int64)

    @property
    def n_clear(self) -> int:
        """Return how many of `rows`, the first ones, have a score of at least 0.8."""
        return int((self.score >= CLEAR).sum())


def suspect_labels(X: Any, y: Any) -> SuspectLabels:
    """Estimate the probability that each source label is wrong.

    The margin of a class of m samples is multiplied by (m - 1) / m, so a class of one sample has a score near 0.

    Args:
        X: embeddings of the source, (n_samples, n_features), of any norm.
        y: labels, text or whole numbers, (n_samples,).

    Returns:
        The probabilities with the suggested classes.

    Raises:
        DataError: X or y cannot be used, or they have different lengths.

    References:
        Northcutt, Jiang and Chuang. Confident Learning: Estimating Uncertainty in Dataset Labels. JAIR 70, 2021,
        arXiv:1911.00068 (the task; the estimate here is another one).
    """
    embeddings = as_inputs(X, "X")
    labels = as_labels(y, "y")
    if len(labels) != len(embeddings):
        raise DataError(f"y has {len(labels)} labels for {len(embeddings)} rows of X. Give one per row.")
    classes, index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return SuspectLabels(np.zeros(len(labels), np.float32), labels, labels)
    rows = _centred_rows(embeddings)
    margin, other = _margins(rows, torch.from_numpy(index.astype(np.int64)), len(classes))
    score = torch.sigmoid(_SLOPE * margin + _INTERCEPT)
    return SuspectLabels(score.numpy(), labels, classes[other.numpy()])


@torch.no_grad()
def _centred_rows(embeddings: np.ndarray) -> Tensor:
    """Return unit rows of the centred embeddings in their leading directions, (n_samples, n_directions)."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(embeddings), generator=generator)[:_MAX_BASIS_ROWS].sort().values
    some = embeddings[drawn.numpy()]
    centre = unit_centre(some)
    seen = scaled_rows(some, 1.0, centre=centre)
    basis = leading_directions(seen, min(_WIDTH, seen.shape[1]), generator)
    return map_unit_rows(embeddings, centre, lambda block: F.normalize(block @ basis, dim=1))


@torch.no_grad()
def _margins(rows: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return the margin of the best other class over the given one, from -1 to 1, and that class, (n_samples,) each."""
    sizes = torch.bincount(classes, minlength=n_classes)
    ridge, neighbours = _Ridge(rows, classes, sizes), Neighbours(rows, _NEIGHBOURS).of_stored
    margins, others = [], []
    for ids in torch.arange(len(rows)).split(_BLOCK):
        given = classes[ids, None]
        support = (ridge.without_own_label(ids) + _vote(rows, classes, sizes, neighbours, ids)) / 2
        own = support.gather(1, given)[:, 0]
        best = support.scatter(1, given, -torch.inf).max(dim=1)
        margins.append(best.values - own)
        others.append(best.indices)
    # Few samples of a class can give each other little support.
    return torch.cat(margins) * ((sizes - 1) / sizes)[classes], torch.cat(others)


def _vote(rows: Tensor, classes: Tensor, sizes: Tensor, neighbours: Tensor, ids: Tensor) -> Tensor:
    """Return the weight of each class among the neighbours of the rows `ids`, (n_ids, n_classes)."""
    near = neighbours[ids]
    cosine = torch.einsum("mkp,mp->mk", rows[near], rows[ids])
    # The root of the class size compensates for large classes, which have more samples everywhere.
    weight = torch.exp((cosine - cosine.amax(dim=1, keepdim=True)) / _TEMPERATURE) / sizes[classes[near]].sqrt()
    weight = weight.masked_fill(near == ids[:, None], 0)
    votes = torch.zeros(len(ids), len(sizes)).scatter_add_(1, classes[near], weight)
    return votes / votes.sum(dim=1, keepdim=True).clamp_min(1e-12)


class _Ridge:
    """Ridge regression from rows to centred class indicators."""

    def __init__(self, rows: Tensor, classes: Tensor, sizes: Tensor) -> None:
        self._classes = classes
        self._class_prior = sizes / len(rows)
        self._mean = rows.mean(dim=0)
        self._rows = rows
        gram = rows.t() @ rows - len(rows) * torch.outer(self._mean, self._mean)
        self._inverse = torch.linalg.inv(gram.double() + _RIDGE * torch.eye(rows.shape[1], dtype=torch.float64)).float()
        sums = torch.zeros(len(sizes), rows.shape[1]).index_add_(0, classes, rows)
        self._weights = self._inverse @ (sums - sizes[:, None] * self._mean).t()

    def without_own_label(self, ids: Tensor) -> Tensor:
        """Return the leave-one-out prediction for the rows `ids`, (n_ids, n_classes)."""
        rows = self._rows[ids] - self._mean
        # Weight of a row's own label in its prediction; the penalty keeps it below 1.
        leverage = ((rows @ self._inverse) * rows).sum(dim=1, keepdim=True) + 1 / len(self._rows)
        own = F.one_hot(self._classes[ids], len(self._class_prior)) - self._class_prior
        left_out: Tensor = (rows @ self._weights - leverage * own) / (1 - leverage).clamp_min(1e-6)
        return left_out
