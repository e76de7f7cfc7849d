"""Scores of a prediction beside the truth: numbers between 0 and 1, defined on every input.

Labels are class names (or integers); the word for a private row is "unknown" (-1 for integers). `evaluate`
gives every score at once with a note for each that has no value; the functions give one each, and warn with
`UndefinedScoreWarning` where something stands in.
"""

from uniot.evaluation.accuracy import (
    common_accuracy,
    confusion,
    overall_accuracy,
    per_class_recall,
    unknown_precision,
    unknown_recall,
)
from uniot.evaluation.detection import common_recall, specificity
from uniot.evaluation.evaluate import SCORE_MEANINGS, Evaluation, evaluate
from uniot.evaluation.grouping import adjusted_rand, hungarian_accuracy, normalized_mutual_information, purity
from uniot.evaluation.harmonic import h3_score, h_score
from uniot.evaluation.ranking import auroc, oscr
from uniot.evaluation.threshold import best_threshold_h_score

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
