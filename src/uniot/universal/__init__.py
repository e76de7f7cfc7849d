"""What tells common from private classes: a metric, neighbourhoods of the target, and a rejection rule."""

from uniot.universal.cautions import data_warnings
from uniot.universal.class_sums import ClassSums
from uniot.universal.landmarks import LEAST_SAMPLES, Landmarks, fit_landmarks
from uniot.universal.metric import Metric, fit_metric
from uniot.universal.neighbours import Neighbours
from uniot.universal.rejection import Rejection, fit_rejection
from uniot.universal.reliability import Reliability, TargetStatistics, assess, target_statistics
from uniot.universal.stored import stored_landmarks, stored_metric, stored_neighbours, stored_rejection

__all__ = [
    "LEAST_SAMPLES",
    "ClassSums",
    "Landmarks",
    "Metric",
    "Neighbours",
    "Rejection",
    "Reliability",
    "TargetStatistics",
    "assess",
    "data_warnings",
    "fit_landmarks",
    "fit_metric",
    "fit_rejection",
    "stored_landmarks",
    "stored_metric",
    "stored_neighbours",
    "stored_rejection",
    "target_statistics",
]
