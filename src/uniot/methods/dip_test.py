"""Test by Hartigan's dip whether angles to prototypes have one mode, and split them in two if they have more.

References:
    Hartigan and Hartigan, The Dip Test of Unimodality, Annals of Statistics 13, 1985.
    Otsu, A Threshold Selection Method from Gray-Level Histograms, IEEE Transactions SMC 9, 1979.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# (√n + 0.7) D exceeds each value with this probability if n ≥ 20 values are uniform; from 100 000 draws of n = 1000.
_DIPS = (0.246, 0.294, 0.34, 0.379, 0.425, 0.457, 0.504, 0.547, 0.596, 0.634, 0.668, 0.71, 0.74)
_P_VALUES = (0.99, 0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
# Two heights of a distribution function that differ by less are equal.
_ROUNDING = 1e-12


def dip_statistic(values: np.ndarray) -> float:
    """Return Hartigan's dip D of values (n,): the distance of their distribution function to the nearest unimodal one.

    Such a function is convex up to its mode and concave after it. The modal interval shrinks to where the greatest
    convex minorant and the least concave majorant are farthest apart, until the fit outside of it is the worse one.
    """
    x, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    upper = np.cumsum(counts) / counts.sum()
    lower = upper - counts / counts.sum()
    twice = 1 / counts.sum()
    while len(x) > 1:
        minorant, majorant = _convex_minorant(x, lower), -_convex_minorant(x, -upper)
        # Between two points where neither touches, the gap is no larger than at both.
        touches = np.stack([minorant >= lower - _ROUNDING, majorant <= upper + _ROUNDING])
        gaps = np.where(touches.any(axis=0), majorant - minorant, 0)
        if gaps.max() <= twice + _ROUNDING:
            break
        widest = int(gaps.argmax())
        first = int(np.flatnonzero(touches[0, : widest + 1])[-1])
        last = widest + int(np.flatnonzero(touches[1, widest:])[0])
        outside = np.concatenate([(upper - minorant)[:first], (majorant - lower)[last + 1 :]])
        twice = max(twice, outside.max(initial=0))
        x, lower, upper = (part[first : last + 1] for part in (x, lower, upper))
    return float(twice / 2)


def unimodality_p_value(values: np.ndarray) -> float:
    """Return the probability that as many uniform values have a larger dip, from 0.001 to 0.99; values: (n,)."""
    return float(np.interp((math.sqrt(len(values)) + 0.7) * dip_statistic(values), _DIPS, _P_VALUES))


def _convex_minorant(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the greatest convex function below the points, at x, (n,): its slopes are an isotonic regression."""
    # Imported here because the command line must start without waiting for scikit-learn.
    from sklearn.isotonic import isotonic_regression

    widths = np.diff(x)
    slopes = isotonic_regression(np.diff(y) / widths, sample_weight=widths)
    return np.concatenate([y[:1], y[0] + np.cumsum(slopes * widths)])


def split_threshold(scores: Tensor) -> Tensor:
    """Return the threshold, a scalar, that splits scores (n,) into two groups of least variance (Otsu's method)."""
    ordered = scores.sort().values
    n, sums = len(ordered), ordered.cumsum(0)[:-1]
    below = torch.arange(1, n, device=scores.device)
    cut = int(((sums * n - ordered.sum() * below).square() / (below * (n - below))).argmax())
    return (ordered[cut] + ordered[cut + 1]) / 2


def neighbourhood_angles(target: Tensor, prototypes: Tensor, n_neighbours: int) -> Tensor:
    """Return the angle from the mean of each sample and its neighbours to the nearest prototype, (n,), in radians.

    Args:
        target: unit rows, (n, d), among which the neighbours are searched.
        prototypes: unit rows, (c, d).
        n_neighbours: number of neighbours in a mean.
    """
    near = (target @ target.t()).topk(min(1 + n_neighbours, len(target)), dim=1).indices
    cosines = F.normalize(target[near].mean(dim=1), dim=1).double() @ prototypes.double().t()
    return cosines.amax(dim=1).clamp(-1, 1).arccos()
