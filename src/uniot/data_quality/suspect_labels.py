"""Labels of the source that look wrong: those that neither the neighbours of a sample nor a linear model support.

Two predictions are made for each sample without its own label, and averaged. One is a vote of its nearest neighbours in
the source. The other is that of ridge regression on the class indicators, whose leave-one-out prediction has a closed
form. The margin by which another class beats the given one becomes a probability by a logistic curve.
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

from uniot.data.arrays import as_inputs, as_labels
from uniot.data_quality.rows import mapped, unit_rows
from uniot.errors import DataError
from uniot.universal.metric import leading_directions
from uniot.universal.neighbours import Neighbours

LISTED, CLEAR = 0.5, 0.8
"""Scores from which on a label is listed, and from which on it is clear."""

# Chosen on PACS, PlantVillage, PlantDoc and digits with 5 % of the labels flipped: docs/data-quality.md.
_WIDTH = 256
_NEIGHBOURS = 20
_TEMPERATURE = 0.1
_RIDGE = 0.3
_SLOPE, _INTERCEPT = 9.0, -4.4
# So many rows are enough to find the leading directions.
_MOST_ROWS_OF_BASIS = 5000
_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class SuspectLabels:
    """How likely each source label is wrong.

    Attributes:
        score: estimated probability that the label is wrong, from 0 to 1, (n_samples,).
        given: the labels, (n_samples,).
        suggested: of the other classes, the one that the sample resembles most, (n_samples,).
    """

    score: NDArray[np.float32]
    given: np.ndarray
    suggested: np.ndarray

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Samples whose label is more likely wrong than right, the most likely first."""
        order = np.argsort(-self.score, kind="stable")
        return np.asarray(order[self.score[order] >= LISTED], dtype=np.int64)

    @property
    def n_clear(self) -> int:
        """How many of these, the first ones, are clearly wrong: a score of at least 0.8."""
        return int((self.score >= CLEAR).sum())


def suspect_labels(X: Any, y: Any) -> SuspectLabels:
    """Estimate for each labelled sample how likely its label is wrong.

    A class of one sample has nothing to be compared with, and its score is near 0; the margin of a class of m samples
    counts (m - 1) / m.

    Args:
        X: embeddings of the source, (n_samples, n_features), of any scale.
        y: labels, (n_samples,), text or whole numbers.
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
    """Return the centred directions of embeddings in their leading dimensions, (n, p), unit rows."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(embeddings), generator=generator)[:_MOST_ROWS_OF_BASIS].sort().values
    seen = unit_rows(embeddings[drawn.numpy()])
    centre = seen.mean(dim=0)
    basis = leading_directions(seen - centre, min(_WIDTH, seen.shape[1]), generator)
    return mapped(embeddings, lambda block: F.normalize((block - centre) @ basis, dim=1))


@torch.no_grad()
def _margins(rows: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return by how much the best other class beats the given one, (n,) from -1 to 1, and which one it is."""
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
    # A class of few samples can give little support to its own.
    return torch.cat(margins) * ((sizes - 1) / sizes)[classes], torch.cat(others)


def _vote(rows: Tensor, classes: Tensor, sizes: Tensor, neighbours: Tensor, ids: Tensor) -> Tensor:
    """Return the weight of each class among the neighbours of the rows `ids`, themselves excluded, (m, c)."""
    near = neighbours[ids]
    cosine = torch.einsum("mkp,mp->mk", rows[near], rows[ids])
    # Divided by the root of the class size, for a large class has more samples anywhere.
    weight = torch.exp((cosine - cosine.amax(dim=1, keepdim=True)) / _TEMPERATURE) / sizes[classes[near]].sqrt()
    weight = weight.masked_fill(near == ids[:, None], 0)
    votes = torch.zeros(len(ids), len(sizes)).scatter_add_(1, classes[near], weight)
    return votes / votes.sum(dim=1, keepdim=True).clamp_min(1e-12)


class _Ridge:
    """Ridge regression from rows to centred class indicators."""

    def __init__(self, rows: Tensor, classes: Tensor, sizes: Tensor) -> None:
        self._classes = classes
        self._share = sizes / len(rows)
        self._mean = rows.mean(dim=0)
        self._rows = rows
        gram = rows.t() @ rows - len(rows) * torch.outer(self._mean, self._mean)
        self._inverse = torch.linalg.inv(gram.double() + _RIDGE * torch.eye(rows.shape[1], dtype=torch.float64)).float()
        sums = torch.zeros(len(sizes), rows.shape[1]).index_add_(0, classes, rows)
        self._weights = self._inverse @ (sums - sizes[:, None] * self._mean).t()

    def without_own_label(self, ids: Tensor) -> Tensor:
        """Return what the regression would say of the rows `ids` had each been left out, (m, c)."""
        rows = self._rows[ids] - self._mean
        # The share of a row's own label in its prediction; below 1, as the penalty keeps it there.
        leverage = ((rows @ self._inverse) * rows).sum(dim=1, keepdim=True) + 1 / len(self._rows)
        own = F.one_hot(self._classes[ids], len(self._share)) - self._share
        left_out: Tensor = (rows @ self._weights - leverage * own) / (1 - leverage).clamp_min(1e-6)
        return left_out
