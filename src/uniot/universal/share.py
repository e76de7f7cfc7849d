"""Which part of the target is private, and where the border lies, by the shape that similarities have.

The similarity of a common sample to its class falls with the distance of the domains, and that of a private sample to
the nearest class falls with it. In units of the level that common samples reach, both have much the same distribution
whatever the data, and only their shares differ. So the shapes are fixed and the share is fitted, by expectation and
maximisation; it may be none or all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Means and deviations of both shapes in units of the level, and the quantile of the similarities that is taken for the
# level. Where domains are close the level is near one, which leaves common samples little room to vary. Chosen on
# random class splits, as docs/beyond-the-paper.md tells.
_PRIVATE_MEAN, _PRIVATE_DEVIATION = 0.4, 0.18
_COMMON_MEAN, _MOST_COMMON_DEVIATION, _ROOM_TO_VARY = 0.85, 0.3, 0.75
_LEVEL_QUANTILE = 0.8
# Common samples reach at least this level; where nothing does, nothing is common.
_LEAST_LEVEL = 0.4
# Domains that are the same still vary.
_LEAST_COMMON_DEVIATION = 0.08
_ITERATIONS = 200
# Cosines are never below it: everything is known.
_NO_BORDER = -1.0


@dataclass(frozen=True)
class Border:
    """Where known begins.

    Attributes:
        level: similarity that common samples reach.
        border: similarity from which on a sample is known.
        share: part of the target that is private.
    """

    level: float
    border: float
    share: float


@dataclass(frozen=True)
class Borders:
    """A border for each class.

    Attributes:
        rows: level, border and share of each, (3, c), double precision.
    """

    rows: Tensor

    @classmethod
    def none(cls, n_classes: int) -> Borders:
        """Of classes that have none yet: everything is known."""
        return cls(torch.tensor([1.0, _NO_BORDER, 0.0], dtype=torch.float64)[:, None].repeat(1, n_classes))

    def with_border(self, border: Border, of: Tensor) -> Borders:
        """With this border for some of the classes, (c,)."""
        values = torch.tensor([border.level, border.border, border.share], dtype=torch.float64)
        return Borders(torch.where(of, values[:, None], self.rows))

    @property
    def level(self) -> Tensor:
        """Similarity that samples of each class reach, (c,)."""
        return self.rows[0]

    @property
    def border(self) -> Tensor:
        """Similarity to each class from which on a sample is known, (c,)."""
        return self.rows[1]

    @property
    def share(self) -> Tensor:
        """Part of the target that is of no class of this kind, (c,)."""
        return self.rows[2]


def find_border(similarity: Tensor, *, level: float | None = None, estimates_share: bool = True) -> Border:
    """The border for target samples with these similarities to their nearest class.

    Args:
        similarity: (n,), cosines.
        level: that common samples reach, where it is known; read off the similarities if None.
        estimates_share: whether the private share is fitted; otherwise it is one half.
    """
    values = similarity.double()
    level = max(_level(values) if level is None else level, _LEAST_LEVEL)
    private, common = _densities(values / level, level)
    share = 0.5
    if estimates_share:
        for _ in range(_ITERATIONS):
            posterior = share * private / (share * private + (1 - share) * common)
            # One sample of each kind more than were seen: none and all are limits, not traps.
            share = (float(posterior.sum()) + 1) / (len(values) + 2)
    return Border(level, _crossing(share, level), share)


def _level(similarity: Tensor) -> float:
    # torch.quantile refuses more than 16 million values.
    return float(np.quantile(similarity.numpy(), _LEVEL_QUANTILE))


def _densities(values: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Of both shapes, up to a common factor; neither falls on the far side of its mean from the other."""
    deviation = max(_LEAST_COMMON_DEVIATION, min(_MOST_COMMON_DEVIATION, _ROOM_TO_VARY * (1 - level)))
    above, below = values.clamp_min(_PRIVATE_MEAN), values.clamp_max(_COMMON_MEAN)
    private = (-0.5 * ((above - _PRIVATE_MEAN) / _PRIVATE_DEVIATION).square()).exp() / _PRIVATE_DEVIATION
    common = (-0.5 * ((below - _COMMON_MEAN) / deviation).square()).exp() / deviation
    return private.clamp_min(1e-300), common.clamp_min(1e-300)


def _crossing(share: float, level: float) -> float:
    """The largest similarity at which private is as likely as common."""
    grid = torch.linspace(0, 3, 3001, dtype=torch.float64)
    private, common = _densities(grid, level)
    likelier = torch.nonzero(share * private >= (1 - share) * common)
    return float(grid[likelier[-1]]) * level if len(likelier) else _NO_BORDER
