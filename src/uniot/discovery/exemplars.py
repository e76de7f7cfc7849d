"""The samples that a person looks at first: those that a class or group is about, and those that may be wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Exemplars:
    """Some members of a class or group, as rows of the target.

    Attributes:
        typical: nearest to the centre, the nearest first.
        doubtful: near the border, the least sure first; none that is typical.
    """

    typical: np.ndarray
    doubtful: np.ndarray


def exemplars(members: np.ndarray, nearness: np.ndarray, confidence: np.ndarray, count: int = 16) -> Exemplars:
    """Chooses typical and doubtful members. Paper: the nearest ones are those of Fig. S5 and S6.

    Args:
        members: rows of the target, (m,).
        nearness: of each of them to the centre or prototype, larger is nearer, (m,).
        confidence: of each of them, (m,).
        count: most of either kind; where there are fewer than two of each, the typical ones come first.
    """
    near_first = np.argsort(-nearness, kind="stable")[:count]
    unsure_first = np.argsort(confidence, kind="stable")
    doubtful = unsure_first[~np.isin(unsure_first, near_first)][:count]
    return Exemplars(members[near_first], members[doubtful])
