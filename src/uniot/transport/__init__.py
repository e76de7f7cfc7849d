"""The two transport problems of the paper, as pure functions of tensors."""

from uniot.transport.balanced import balanced_plan
from uniot.transport.detection import common_rows, filled_potential
from uniot.transport.filling import FilledRows, adaptive_filling
from uniot.transport.plan import Assignment, TransportPlan, UnbalancedPotential
from uniot.transport.rows import FeatureRows, Rows, SimilarityRows
from uniot.transport.shards import Shards
from uniot.transport.unbalanced import unbalanced_plan, unbalanced_potential

__all__ = [
    "Assignment",
    "FeatureRows",
    "FilledRows",
    "Rows",
    "Shards",
    "SimilarityRows",
    "TransportPlan",
    "UnbalancedPotential",
    "adaptive_filling",
    "balanced_plan",
    "common_rows",
    "filled_potential",
    "unbalanced_plan",
    "unbalanced_potential",
]
