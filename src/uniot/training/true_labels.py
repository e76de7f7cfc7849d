"""True labels of a target, if a user has them: as classes, and as scores of each training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from uniot.data_quality.class_names import as_seen, told_apart
from uniot.errors import DataError
from uniot.io.labels import as_labels
from uniot.metrics.accuracy import common_recall, specificity

if TYPE_CHECKING:
    from uniot.methods.base import Losses
    from uniot.training.loop import Watch


def labels_as_classes(labels: Any, classes: np.ndarray, name: str) -> np.ndarray:
    """Return true labels as text or as integers, like the classes; a text file has only text.

    Raises:
        DataError: a label looks like a class and is another one, or is text where the classes are numbers.
    """
    true = as_labels(labels, name)
    if classes.dtype.kind == "U":
        true = np.asarray(true.astype(str))
        seen = {as_seen(text): text for text in classes.tolist()}
        for text in sorted(set(true.tolist()) - set(classes.tolist())):
            if as_seen(text) in seen:
                both = " and the class ".join(told_apart([text, seen[as_seen(text)]]))
                raise DataError(
                    f"{name} holds {both}, which look the same and are different: spaces, invisible characters or "
                    "Unicode normal form differ. Give both the same name."
                )
        return true
    try:
        return np.asarray(true.astype(np.int64))
    except (ValueError, OverflowError):
        row = next(row for row, text in enumerate(true.tolist()) if not _is_int64(text))
        raise DataError(
            f"{name} holds {true[row].item()!r} in row {row}, and the classes are whole numbers. Give whole numbers; "
            "for samples of no class any that is not a class, such as -1."
        ) from None


def _is_int64(text: str) -> bool:
    try:
        np.array([text]).astype(np.int64)
    except (ValueError, OverflowError):
        return False
    return True


def oracle_watch(y_target: Any, classes: np.ndarray, n_target: int) -> Watch:
    """Return a watch that adds recall and specificity of the detection to each step. Paper: Fig. S1(a)."""
    truth = labels_as_classes(y_target, classes, "oracle_y_target")
    if len(truth) != n_target:
        raise DataError(f"oracle_y_target has {len(truth)} labels for {n_target} target rows. Give one per row.")

    def watch(target_ids: Tensor, losses: Losses) -> Mapping[str, float]:
        if losses.detected is None:
            return {"oracle_recall": float("nan"), "oracle_specificity": float("nan")}
        detected = losses.detected.cpu().numpy()
        true = truth[target_ids.cpu().numpy()]
        is_common = np.isin(true, classes)
        assigned = classes[np.maximum(detected, 0)]
        found = detected >= 0
        recall = specific = float("nan")
        if is_common.any():
            recall = common_recall(true, found, assigned, source_classes=classes)
        if not is_common.all():
            specific = specificity(true, found, source_classes=classes)
        return {"oracle_recall": recall, "oracle_specificity": specific}

    return watch
