"""Common-class detection: which target samples belong to a class of the source."""

from __future__ import annotations

import torch
from torch import Tensor

from uniot.transport.arrays import Array, as_tensor
from uniot.transport.filling import adaptive_filling
from uniot.transport.plan import UnbalancedPotential
from uniot.transport.shards import Shards
from uniot.transport.threads import one_thread_if_small
from uniot.transport.unbalanced import unbalanced_potential

# The unfilled problem only says which rows may be repeated, so a rougher solution of it will do.
_POOL_ROUGHNESS = 1e4


@one_thread_if_small
def filled_potential(
    similarity: Array,
    prototypes: Array,
    class_mass: Array,
    *,
    counts: Array | None = None,
    epsilon: float = 0.01,
    marginal_penalty: float = 0.5,
    similarity_threshold: float = 0.7,
    tolerance: float = 1e-6,
    start: Array | None = None,
    generator: torch.Generator,
    shards: Shards | None = None,
) -> UnbalancedPotential:
    """Fills the rows so that positives and negatives are equally many, and transports them to the classes.

    Args:
        similarity: (n, c), cosines of target features to the class prototypes.
        prototypes: (c, d), unit rows.
        class_mass: β, (c,).
        counts: (n,), how often each row stands in the problem; once each if None.
        epsilon: weight of the entropy.
        marginal_penalty: κ.
        similarity_threshold: γ, the rough border between positive and negative rows.
        tolerance: accuracy of the potentials.
        start: class potential of a similar filled problem, (c,).
        generator: draws the filling.
        shards: the processes that share the rows, each with its own part of `similarity` and `counts`.

    Paper: Eq. (4) with adaptive filling.
    """
    similarity = as_tensor(similarity, "similarity")

    def solve(rows: Tensor, row_counts: Tensor, begin: Array | None, to: float) -> UnbalancedPotential:
        reduce = None if shards is None else shards.add
        return unbalanced_potential(
            rows, class_mass, epsilon, marginal_penalty, to, row_counts=row_counts, start=begin, reduce=reduce
        )

    unfilled: list[UnbalancedPotential] = []

    def confident(rows: Tensor, row_counts: Tensor) -> Tensor:
        unfilled.append(solve(rows, row_counts, start, _POOL_ROUGHNESS * tolerance))
        return common_rows(unfilled[0], rows)

    counts = similarity.new_ones(len(similarity)) if counts is None else as_tensor(counts, "counts")
    prototypes = as_tensor(prototypes, "prototypes")
    filled = adaptive_filling(similarity, counts, prototypes, confident, similarity_threshold, generator, shards)
    is_unfilled = bool(unfilled) and (start is None or not filled.n_filled)
    return solve(filled.similarity, filled.counts, unfilled[0].class_potential if is_unfilled else start, tolerance)


def common_rows(potential: UnbalancedPotential, similarity: Array) -> Tensor:
    """Rows whose sample and whose class both carry at least the mean mass, bool (n,). Paper: Eq. (7)."""
    similarity = as_tensor(similarity, "similarity")
    assignment = potential.assign(similarity)
    is_common = potential.common_classes().to(similarity.device)
    return assignment.known & is_common[assignment.nearest]
