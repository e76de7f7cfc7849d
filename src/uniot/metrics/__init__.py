"""Score predictions against true labels, from 0 to 1.

Labels are class names or integers; private rows have the label "unknown" (-1 for integers). `evaluate` computes all
scores at once, with a note for each that is undefined. The other functions compute one score each and raise an
`UndefinedScoreWarning` if they return a substitute. Scores without labels are in `uniot.metrics.label_free`.
"""

from uniot.metrics.accuracy import (
    common_accuracy,
    common_recall,
    confusion,
    h3_score,
    h_score,
    overall_accuracy,
    per_class_recall,
    specificity,
    unknown_precision,
    unknown_recall,
)
from uniot.metrics.evaluate import SCORE_MEANINGS, Evaluation, evaluate
from uniot.metrics.grouping import adjusted_rand, hungarian_accuracy, normalized_mutual_information, purity
from uniot.metrics.ranking import auroc, best_threshold_h_score, oscr

__all__ = [
    "SCORE_MEANINGS",
    "Evaluation",
    "adjusted_rand",
    "auroc",
    "best_threshold_h_score",
    "common_accuracy",
    "common_recall",
    "confusion",
    "evaluate",
    "h3_score",
    "h_score",
    "hungarian_accuracy",
    "normalized_mutual_information",
    "oscr",
    "overall_accuracy",
    "per_class_recall",
    "purity",
    "specificity",
    "unknown_precision",
    "unknown_recall",
]
