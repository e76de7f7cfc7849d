"""What tells common from private without a threshold: a metric, neighbourhoods, the private share."""

from uniot.universal.class_sums import ClassSums
from uniot.universal.metric import Metric, fit_metric
from uniot.universal.neighbours import Neighbours
from uniot.universal.share import Border, Borders, find_border

__all__ = ["Border", "Borders", "ClassSums", "Metric", "Neighbours", "find_border", "fit_metric"]
