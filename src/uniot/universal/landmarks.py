"""A summary of the target by means of several samples, which stands in for the stored target.

The target is split into small groups of similar samples. A landmark is the mean of a group before the transform
(its key) and after it (its value). A new sample becomes the weighted mean of the values whose keys are nearest to it,
plus a linear map of the sample itself. The map is fitted by ridge regression to what the landmarks leave unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Every landmark averages at least this many samples, and every sample belongs to one group.
LEAST_SAMPLES = 5
# Below this many samples the linear map would depend on single ones; it is left at zero.
_LEAST_ROWS_OF_MAP = 20
# Landmarks of a larger target are fitted to a random sample of it.
_MOST_ROWS = 20_000
# Chosen on Office-31, PACS and digits (benchmarks/without_target.py): landmarks per query, softmax temperature of the
# cosine, and the penalty of the ridge regression. A penalty that is independent of the target's size keeps the map
# of a small target small.
_NEAREST, _TEMPERATURE, _RIDGE = 16, 0.1, 0.3
_SPLIT_ITERATIONS = 6
# The smaller side of a split has at least this part of the samples, which bounds the number of splits.
_LEAST_PART = 20
_BLOCK = 1024


@dataclass(frozen=True)
class Landmarks:
    """Means of groups of target samples, in half precision.

    Attributes:
        keys: mean direction of each group before the transform, (m, p), unit rows.
        values: mean of each group after the transform, (m, p).
        linear: map from a sample to what the landmarks leave unexplained, (p, p).
    """

    keys: Tensor
    values: Tensor
    linear: Tensor

    def transform(self, rows: Tensor) -> Tensor:
        """Return an estimate of the transformed rows, (n, p) unit rows, for unit rows (n, p)."""
        return F.normalize(self.weighted_values(rows) + rows @ self.linear.float(), dim=1)

    def weighted_values(self, rows: Tensor) -> Tensor:
        """Return the weighted mean of the values whose keys are nearest to each row, (n, p)."""
        cosines, nearest = (rows @ self.keys.float().t()).topk(min(_NEAREST, len(self.keys)), dim=1)
        weights = (cosines / _TEMPERATURE).softmax(dim=1)
        return (weights[:, :, None] * self.values.float()[nearest]).sum(dim=1)


@torch.no_grad()
def fit_landmarks(rows: Tensor, transformed: Tensor, generator: torch.Generator) -> Landmarks | None:
    """Fit landmarks that map rows to transformed rows.

    Args:
        rows: target samples, (n, p), unit rows.
        transformed: the same samples by the transform that is summarised, (n, p), unit rows.
        generator: for the choice of samples of a target of more than 20 000.

    Returns:
        The landmarks; None for fewer than `LEAST_SAMPLES` rows, whose mean would reveal them.
    """
    if len(rows) < LEAST_SAMPLES:
        return None
    if len(rows) > _MOST_ROWS:
        some = torch.randperm(len(rows), generator=generator)[:_MOST_ROWS].sort().values
        rows, transformed = rows[some], transformed[some]
    groups = similar_groups(transformed)
    keys, values = F.normalize(_group_means(rows, groups), dim=1).half(), _group_means(transformed, groups).half()
    width = rows.shape[1]
    landmarks = Landmarks(keys, values, torch.zeros(width, width, dtype=torch.half))
    if len(rows) < _LEAST_ROWS_OF_MAP:
        return landmarks
    gram, product = _RIDGE * torch.eye(width, dtype=torch.double), torch.zeros(width, width, dtype=torch.double)
    for block, wanted in zip(rows.split(_BLOCK), transformed.split(_BLOCK), strict=True):
        unexplained = wanted - landmarks.weighted_values(block)
        gram += block.double().t() @ block.double()
        product += block.double().t() @ unexplained.double()
    return Landmarks(keys, values, torch.linalg.solve(gram, product).half())


def similar_groups(rows: Tensor, least: int = LEAST_SAMPLES) -> Tensor:
    """Split rows into groups of `least` to 2 `least` - 1 similar ones by recursive two-means.

    Args:
        rows: (n, p).
        least: least size of a group; a single smaller group if there are fewer rows.

    Returns:
        Group index of each row, (n,).
    """
    groups = torch.zeros(len(rows), dtype=torch.long)
    waiting, n_groups = [torch.arange(len(rows))], 0
    while waiting:
        members = waiting.pop()
        if len(members) >= 2 * least:
            waiting.extend(_halves(rows, members, least))
        else:
            groups[members] = n_groups
            n_groups += 1
    return groups


def _halves(rows: Tensor, members: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Split members by two-means, both sides of at least `least` rows."""
    own, n = rows[members], len(members)
    fewest = max(least, n // _LEAST_PART)
    middle = own.mean(dim=0)
    # The row farthest from the mean gives the direction to start with.
    direction = own[(own - middle).square().sum(dim=1).argmax()] - middle
    order, cut = torch.arange(n), n // 2
    for _ in range(_SPLIT_ITERATIONS):
        position = (own - middle) @ direction
        before = order, cut
        order = position.argsort(stable=True)
        cut = min(max(int((position < 0).sum()), fewest), n - fewest)
        if cut == before[1] and torch.equal(order, before[0]):
            break
        left, right = own[order[:cut]].mean(dim=0), own[order[cut:]].mean(dim=0)
        middle, direction = (left + right) / 2, right - left
    return members[order[:cut]], members[order[cut:]]


def _group_means(rows: Tensor, groups: Tensor) -> Tensor:
    sizes = torch.bincount(groups)
    return rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, groups, rows) / sizes[:, None]
