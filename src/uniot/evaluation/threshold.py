"""The best that any threshold on a known score reaches: what a rejection rule is measured against."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from uniot.evaluation.inputs import UNKNOWN, Label, Labels, read_score, same_length
from uniot.evaluation.outcome import read_truth
from uniot.evaluation.ranking import nearest_is_right


def best_threshold_h_score(
    y_true: Labels,
    nearest: Labels,
    known_score: ArrayLike,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
) -> float:
    """Return the largest H-score of all thresholds on the known score.

    A row at or above the threshold is called known and gets its `nearest` class, any other is called unknown; rows of
    equal score stay together. The common accuracy is the mean over classes.

    Args:
        y_true: True class of each target row, or the word for unknown if it is private.
        nearest: The source class that each row gets if it is called known.
        known_score: Larger for more surely common, shape (n,).
        source_classes: What is common; any other true label is private.
        unknown: The word for unknown; if labels are integers, the default means -1.

    Returns:
        A share between 0 and 1. If no row is private, the common accuracy with nothing rejected; if no row is common,
        1, which rejecting everything reaches.
    """
    truth = read_truth(y_true, source_classes, unknown)
    right = nearest_is_right(truth, nearest)
    numbers = read_score(known_score)
    same_length(len(right), "y_true", len(numbers), "known_score")
    if not truth.n_common:
        return 1.0
    _, index, sizes = np.unique(truth.labels[truth.is_common], return_inverse=True, return_counts=True)
    # What a right row adds to the mean over classes of their accuracies.
    weights = np.zeros(len(right))
    weights[truth.is_common] = 1 / (len(sizes) * sizes[index])
    order = np.argsort(-numbers, kind="stable")
    last_of_a_tie = np.append(np.flatnonzero(np.diff(numbers[order])), len(order) - 1)
    accuracy = np.cumsum((weights * right)[order])[last_of_a_tie]
    if not truth.n_private:
        return min(1.0, float(accuracy[-1]))
    recall = 1 - np.cumsum(truth.is_private[order])[last_of_a_tie] / truth.n_private
    total = accuracy + recall
    h_scores = 2 * accuracy * recall / np.where(total > 0, total, 1)
    return min(1.0, float(h_scores.max()))
