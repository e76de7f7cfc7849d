"""How well common-class detection picks rows to align with the source: the two curves of Fig. S1a."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.evaluation.inputs import UNKNOWN, Label, Labels, read_mask, same_length
from uniot.evaluation.outcome import Truth, read_truth
from uniot.evaluation.undefined import NO_COMMON, no_private, stand_in


def common_recall(
    y_true: Labels,
    detected: ArrayLike,
    assigned: Labels,
    *,
    source_classes: Labels | None = None,
    unknown: Label = UNKNOWN,
) -> float:
    """Share of truly common rows that were detected as common and given their class.

    Paper: recall of Fig. S1a.

    Args:
        y_true: True class of each row, or the word for unknown where it is private.
        detected: Whether each row was detected as common, shape (n,).
        assigned: Source class given to each row; read only where `detected`.
        source_classes: What is common; any other true label is private.
        unknown: The word for unknown; where labels are integers, the default means -1.

    Returns:
        A share; 0.0 with an `UndefinedScoreWarning` where no row is common.
    """
    truth = read_truth(y_true, source_classes, unknown)
    found = _read_detected(truth, detected)
    right = found & (truth.read_assigned(assigned, "assigned", rows=found, unknown=False) == truth.labels)
    recall = float(right[truth.is_common].mean()) if truth.n_common else None
    return stand_in(recall, 0.0, "common recall", NO_COMMON)


def specificity(
    y_true: Labels, detected: ArrayLike, *, source_classes: Labels | None = None, unknown: Label = UNKNOWN
) -> float:
    """Share of truly private rows that were not detected as common.

    Paper: specificity of Fig. S1a. The text there praises a "low specificity", but by its own definition,
    which is the one here, high is good.

    Args:
        y_true: True class of each row, or the word for unknown where it is private.
        detected: Whether each row was detected as common, shape (n,).
        source_classes: What is common; any other true label is private.
        unknown: The word for unknown; where labels are integers, the default means -1.

    Returns:
        A share; 0.0 with an `UndefinedScoreWarning` where no row is private.
    """
    truth = read_truth(y_true, source_classes, unknown)
    found = _read_detected(truth, detected)
    share = float((~found)[truth.is_private].mean()) if truth.n_private else None
    return stand_in(share, 0.0, "specificity", no_private(truth))


def _read_detected(truth: Truth, detected: ArrayLike) -> NDArray[np.bool_]:
    found = read_mask(detected, "detected")
    same_length(len(truth.labels), "y_true", len(found), "detected")
    return found
