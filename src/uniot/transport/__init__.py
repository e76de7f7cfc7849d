"""Solve the two optimal transport problems of the paper with pure functions of tensors."""

from uniot.transport.filling import FilledRows, adaptive_filling, common_rows, filled_potential
from uniot.transport.plan import Assignment, TransportPlan, UnbalancedPotential, balanced_plan
from uniot.transport.rows import FeatureRows, Rows, Shards, SimilarityRows
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
