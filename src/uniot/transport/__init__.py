"""Optimal transport from samples to classes: balanced, unbalanced and partial, as pure functions of tensors."""

from uniot.transport.balanced import balanced_plan
from uniot.transport.filling import FilledRows, adaptive_filling, common_rows, filled_potential
from uniot.transport.partial import partial_plan
from uniot.transport.plan import TransportPlan
from uniot.transport.rows import FeatureRows, Rows, Shards, SimilarityRows
from uniot.transport.unbalanced import Assignment, UnbalancedPotential, unbalanced_plan, unbalanced_potential

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
    "partial_plan",
    "unbalanced_plan",
    "unbalanced_potential",
]
