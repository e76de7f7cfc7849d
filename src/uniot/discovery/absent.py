"""Which source classes the target lacks."""

from __future__ import annotations

import numpy as np

from uniot.prediction import Prediction

_BEST = 3


def absence(target: Prediction, n_classes: int) -> np.ndarray:
    """From 0 to 1, how surely each source class is absent from the target, (c,).

    One less the mean known score of the three target samples that belong to the class most clearly, known or not; a
    class that is nearest to fewer than three counts zero for those missing. More than one half: the class is called
    absent. A single sample that looks like a class by accident does not make it present.
    """
    best = np.zeros((n_classes, _BEST))
    for index in range(n_classes):
        largest = np.sort(target.known_score[target.nearest == index])[::-1][:_BEST]
        best[index, : len(largest)] = largest
    return np.asarray(1 - best.mean(axis=1))
