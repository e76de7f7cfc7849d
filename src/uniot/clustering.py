"""Spherical k-means: groups of unit vectors by cosine, as the paper's evaluation uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.errors import DataError, SettingsError

Floats = NDArray[np.float32]
Groups = NDArray[np.int64]

# Similarities are taken in blocks of rows, so that memory does not grow with rows times groups.
_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class SphericalClusters:
    """Groups of rows that point the same way; no group is empty."""

    centres: Floats
    """Unit centre of each group, shape (n_groups, d)."""
    groups: Groups
    """Group of each row, shape (n,)."""
    cosine: Floats
    """Similarity of each row to the centre of its group, shape (n,)."""
    objective: float
    """Mean of `cosine`; the restart with the largest is the one kept."""

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.centres)


def spherical_kmeans(
    features: ArrayLike, n_groups: int, *, seed: int = 0, restarts: int = 5, iterations: int = 20
) -> SphericalClusters:
    """Group rows by the cosine to a unit centre, best of several starts.

    Paper: the K-Means of Eq. (16); the reference runs faiss with 20 iterations and 5 restarts. Two
    deliberate differences: starts are drawn as in k-means++ (faiss: uniformly), and every row takes part
    (faiss trains on at most 256 rows per group).

    Args:
        features: Rows to group, shape (n, d); scaled to unit norm here, so none may be zero.
        n_groups: How many groups to make, between 1 and n.
        seed: Starts are drawn from it and from nothing else.
        restarts: How many starts to try.
        iterations: Most updates of the centres in one start; it ends sooner when no row moves.

    Returns:
        The groups of the start with the largest mean cosine. Every group has at least one row; where rows
        coincide, equal rows may stand in different groups.

    Raises:
        DataError: More groups than rows, a zero row, a value that is not finite, or not a table.
    """
    rows = _unit_rows(feature_matrix(features))
    for name, value in (("n_groups", n_groups), ("restarts", restarts), ("iterations", iterations)):
        if value < 1:
            raise SettingsError(f"{name} must be at least 1, but is {value}. Give a positive whole number.")
    if n_groups > len(rows):
        raise DataError(
            f"{n_groups} groups were asked of {len(rows)} rows. Ask for at most {len(rows)} groups, or give more rows."
        )
    rng = np.random.default_rng(seed)
    starts = (_one_start(rows, n_groups, rng, iterations) for _ in range(restarts))
    return max(starts, key=lambda clusters: clusters.objective)


def feature_matrix(features: ArrayLike) -> Floats:
    """Features as a finite float32 table, shape (n, d), from lists, arrays or tensors on any device."""
    values: Any = features
    if hasattr(values, "detach"):
        values = values.detach().cpu().float()
    try:
        # What is too large for float32 becomes infinity, and is named below.
        with np.errstate(over="ignore"):
            table: Floats = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as cause:
        raise DataError(f"features must be a table of numbers, one row per sample: {cause}.") from cause
    if table.ndim != 2 or table.size == 0:
        raise DataError(
            f"features must have shape (rows, dimensions), neither of them zero, but have {table.shape}. "
            "Give one row of numbers per sample."
        )
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if broken.size:
        raise DataError(
            f"{broken.size} of {len(table)} rows of features hold NaN or infinity (first: row {broken[0]}). "
            "Embed these samples again or leave them out."
        )
    return table


def _unit_rows(table: Floats) -> Floats:
    largest = np.abs(table).max(axis=1, keepdims=True)
    zero = np.flatnonzero(largest == 0)
    if zero.size:
        raise DataError(
            f"{zero.size} of {len(table)} rows of features are all zero (first: row {zero[0]}) and point "
            "nowhere. Leave these samples out, or check how they were embedded."
        )
    # Dividing by the largest entry first keeps the squares within float32.
    scaled = table / largest
    unit: Floats = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return unit


def _one_start(rows: Floats, n_groups: int, rng: np.random.Generator, iterations: int) -> SphericalClusters:
    centres = _spread_out_rows(rows, n_groups, rng)
    groups, cosine = _nearest(rows, centres)
    for _ in range(iterations):
        _fill_empty_groups(rows, centres, groups, cosine)
        centres = _mean_directions(rows, groups, centres)
        before = groups
        groups, cosine = _nearest(rows, centres)
        if np.array_equal(groups, before):
            break
    _fill_empty_groups(rows, centres, groups, cosine)
    return SphericalClusters(centres, groups, cosine, float(cosine.mean(dtype=np.float64)))


def _spread_out_rows(rows: Floats, n_groups: int, rng: np.random.Generator) -> Floats:
    """Draw rows one by one, each with a chance in proportion to its cosine distance from those drawn.

    On unit rows that is k-means++, whose squared distance is twice the cosine distance.
    """
    drawn = [int(rng.integers(len(rows)))]
    distance = np.full(len(rows), np.inf)
    for _ in range(n_groups - 1):
        distance = np.minimum(distance, 1.0 - (rows @ rows[drawn[-1]]).astype(np.float64))
        distance[drawn] = 0.0
        # Rounding leaves equal rows up to 1e-6 apart; below that there is nothing to tell apart.
        weight = np.where(distance > 1e-6, distance, 0.0)
        if weight.sum() == 0.0:
            weight = np.ones(len(rows))
            weight[drawn] = 0.0
        drawn.append(int(rng.choice(len(rows), p=weight / weight.sum())))
    return rows[drawn]


def _nearest(rows: Floats, centres: Floats) -> tuple[Groups, Floats]:
    groups = np.empty(len(rows), dtype=np.int64)
    cosine = np.empty(len(rows), dtype=np.float32)
    step = max(1, _BLOCK_ENTRIES // len(centres))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        similarity = rows[block] @ centres.T
        groups[block] = similarity.argmax(axis=1)
        cosine[block] = similarity.max(axis=1)
    return groups, np.clip(cosine, -1.0, 1.0)


def _fill_empty_groups(rows: Floats, centres: Floats, groups: Groups, cosine: Floats) -> None:
    """Give each empty group the worst-served row that does not leave its own group empty (in place)."""
    sizes = np.bincount(groups, minlength=len(centres))
    empty = np.flatnonzero(sizes == 0)
    if not empty.size:
        return
    worst_first = iter(np.argsort(cosine, kind="stable"))
    for group in empty:
        row = next(row for row in worst_first if sizes[groups[row]] > 1)
        sizes[groups[row]] -= 1
        groups[row], cosine[row], centres[group] = group, 1.0, rows[row]


def _mean_directions(rows: Floats, groups: Groups, centres: Floats) -> Floats:
    order = np.argsort(groups, kind="stable")
    first = np.searchsorted(groups[order], np.arange(len(centres)))
    sums = np.add.reduceat(rows[order], first, axis=0, dtype=np.float64)
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    # Rows that cancel out have no mean direction; their group keeps the centre it had.
    usable = length > 1e-6
    directions = np.where(usable, sums / np.where(usable, length, 1.0), centres)
    return directions.astype(np.float32)
