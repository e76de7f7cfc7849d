"""What tells common from private without a threshold: a metric, neighbourhoods, the private share."""

from uniot.universal.landmarks import LEAST_SAMPLES, Landmarks, fit_landmarks
from uniot.universal.metric import Metric, fit_metric
from uniot.universal.neighbours import Neighbours
from uniot.universal.share import Border, Borders, find_border

__all__ = [
    "LEAST_SAMPLES",
    "Border",
    "Borders",
    "Landmarks",
    "Metric",
    "Neighbours",
    "find_border",
    "fit_landmarks",
    "fit_metric",
]
