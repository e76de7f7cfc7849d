"""A threshold on the largest share that meets a preference: more known, more unknown, or a private-class prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

# Shares below count as zero, so that a share divided by a threshold stays a finite number.
_SMALLEST = 1e-200
# Shares that differ by less are tied: they may change order by rounding when they are computed again.
_TIED = 1e-9
# Distance of the threshold from the smallest or the largest share, if all samples are on one side of it.
_MARGIN = 1e-6


@dataclass(frozen=True)
class Threshold:
    """A threshold that replaces the rule's own, which is 1.

    Attributes:
        value: smallest share that is enough to be known, positive.
        rejects: "some" compares with the value; "none" calls every sample known, "all" every sample unknown, new
            samples included.
    """

    value: float
    rejects: Literal["some", "none", "all"] = "some"


def threshold_for(shares: np.ndarray, private_prior: float | None, prefer: str | None) -> Threshold | None:
    """Return the threshold that meets a preference; None if there is no preference.

    Args:
        shares: largest share of each fitted target sample by the rule, (n_samples,).
        private_prior: fraction of the target that is to be unknown; ties are kept together, and the nearest fraction
            that they allow is taken. 0 calls every sample known and 1 every sample unknown.
        prefer: "known" halves the fraction that the rule calls unknown, "unknown" the fraction that it calls known.
    """
    if prefer is not None:
        rejected = rejected_fraction(shares)
        # If the rule rejects nothing, or everything, its threshold may lie far from the shares: never move it the
        # other way.
        if prefer == "known":
            return Threshold(min(1.0, _nearest_threshold(shares, rejected / 2)))
        return Threshold(max(1.0, _nearest_threshold(shares, (1 + rejected) / 2)))
    if private_prior is None:
        return None
    rejects: Literal["some", "none", "all"] = "none" if private_prior == 0 else "all" if private_prior == 1 else "some"
    return Threshold(_nearest_threshold(shares, private_prior), rejects)


def rejected_fraction(shares: np.ndarray) -> float:
    """Return the fraction of samples that the rule calls unknown; NaN if there are none."""
    return float((shares < 1 - _TIED).mean()) if len(shares) else float("nan")


def _nearest_threshold(shares: np.ndarray, fraction: float) -> float:
    """Return a threshold below which as near as possible to this fraction of the shares lies."""
    ordered = np.sort(np.where(shares < _SMALLEST, 0.0, shares))
    # Between which neighbours a threshold fits: one of 0 would reject nothing and cannot be divided by.
    fits = np.concatenate([ordered[:1] > 0, ordered[1:] > ordered[:-1] * (1 + _TIED), [True]])
    counts = np.flatnonzero(fits)
    count = int(counts[np.abs(counts - fraction * len(ordered)).argmin()])
    if count == 0:
        return float(ordered[0] * (1 - _MARGIN))
    if count == len(ordered):
        return float(max(ordered[-1] * (1 + _MARGIN), _SMALLEST))
    below, above = float(ordered[count - 1]), float(ordered[count])
    return float(np.sqrt(below) * np.sqrt(above)) if below > 0 else above / 2
