"""Fill a transport problem adaptively: add rows until there are as many positive as negative ones.

A row is positive if its largest similarity exceeds γ. If positives are missing, confident rows are repeated. If
negatives are missing, synthetic private samples are added, halfway between a sample and its farthest prototype. A
repeat is stored as a count, and the similarities of a synthetic sample follow from those of the original one, so that
neither needs the features.

References:
    Chang et al.: Unified optimal transport framework for universal domain adaptation. NeurIPS 2022, arXiv:2210.17067.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.transport.rows import Array, Shards, as_tensor, before_and_all, total
from uniot.transport.threads import one_thread_if_small
from uniot.transport.unbalanced import UnbalancedPotential, unbalanced_potential


@dataclass(frozen=True)
class FilledRows:
    """The rows of a filled problem: the given rows, followed by the synthetic ones.

    Attributes:
        similarity: (n_rows + n_synthetic, n_classes).
        counts: multiplicity of each row, (n_rows + n_synthetic,).
        n_filled: number of rows that filling added, including repeats.
    """

    similarity: Tensor
    counts: Tensor
    n_filled: int


def adaptive_filling(
    similarity: Tensor,
    counts: Tensor,
    prototypes: Tensor,
    confident_rows: Callable[[Tensor, Tensor], Tensor],
    threshold: float,
    generator: torch.Generator,
    shards: Shards | None = None,
) -> FilledRows:
    """Balance positive and negative rows.

    Args:
        similarity: cosines of unit features to `prototypes`, (n_rows, n_classes).
        counts: multiplicity of each row, (n_rows,).
        prototypes: unit rows, (n_classes, n_features).
        confident_rows: function from similarity and counts of the unfilled problem to its confident rows, bool
            (n_rows,); called only if positives are missing.
        threshold: γ, threshold between negative and positive rows.
        generator: random generator that draws the rows, with replacement.
        shards: processes that share the rows; together they draw the same rows as a single process.

    Returns:
        The given rows and those that were added.

    Paper: "Adaptive filling for unbalanced proportion of positive and negative".
    """
    positive = similarity.amax(dim=1) > threshold
    found = torch.stack([counts[positive].sum(dtype=torch.float64), counts.sum(dtype=torch.float64)])
    n_positive, n_rows = (int(number) for number in total(shards, found))
    missing = n_rows - 2 * n_positive
    if missing > 0:
        pool = confident_rows(similarity, counts) * counts
        if not before_and_all(shards, float(pool.sum(dtype=torch.float64)))[1]:
            return FilledRows(similarity, counts, 0)
        return FilledRows(similarity, counts + draw_rows(pool, missing, generator, shards), missing)
    if missing < 0:
        drawn = draw_rows(counts, -missing, generator, shards)
        chosen = drawn > 0
        fakes = fake_private_similarity(similarity[chosen], prototypes)
        return FilledRows(torch.cat([similarity, fakes]), torch.cat([counts, drawn[chosen]]), -missing)
    return FilledRows(similarity, counts, 0)


def draw_rows(pool: Tensor, size: int, generator: torch.Generator, shards: Shards | None = None) -> Tensor:
    """Draw rows with replacement, in proportion to their weights.

    Args:
        pool: weights, (n_rows,), whole numbers, not all zero.
        size: number of draws.
        generator: random generator, in the same state in every process.
        shards: processes that share the rows.

    Returns:
        Number of draws of each row, (n_rows,); they sum to `size` over all processes.
    """
    ends = pool.to(torch.float64).cumsum(0)
    own = float(ends[-1]) if len(ends) else 0.0
    before, everything = before_and_all(shards, own)
    tickets = torch.rand(size, generator=generator, dtype=torch.float64).to(pool.device) * everything - before
    tickets = tickets[(tickets >= 0) & (tickets < own)]
    rows = torch.searchsorted(ends, tickets, right=True)
    return torch.bincount(rows, minlength=len(pool)).to(pool.dtype)


def fake_private_similarity(similarity: Tensor, prototypes: Tensor) -> Tensor:
    """Compute the cosines of normalise(½ z + ½ farthest prototype) to the prototypes from those of z.

    Args:
        similarity: cosines of unit features z to `prototypes`, (n_samples, n_classes).
        prototypes: unit rows, (n_classes, n_features).

    Returns:
        Cosines of the synthetic private samples, (n_samples, n_classes).
    """
    lowest, farthest = similarity.min(dim=1)
    between = (prototypes @ prototypes.t())[farthest]
    # |z + c|² = 2 + 2 z·c for unit vectors; it vanishes only for a sample opposite to a prototype.
    length = (2 + 2 * lowest).clamp_min(1e-12).sqrt()
    return (similarity + between) / length[:, None]


# The unfilled problem only selects the rows that may be repeated, so a coarse solution is enough.
_POOL_ROUGHNESS = 1e4


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
    """Balance positive and negative rows by adaptive filling, and solve their unbalanced transport to the classes.

    Args:
        similarity: cosines of target features to the class prototypes, (n_samples, n_classes).
        prototypes: unit rows, (n_classes, n_features).
        class_mass: β, (n_classes,).
        counts: multiplicity of each row, (n_samples,); one if None.
        epsilon: weight of the entropy.
        marginal_penalty: κ.
        similarity_threshold: γ, threshold between negative and positive rows.
        tolerance: accuracy of the potentials.
        start: class potential of a similar filled problem, (n_classes,).
        generator: random generator that draws the filling.
        shards: processes that share the rows, each with its own part of `similarity` and `counts`.

    Returns:
        The solution of the filled problem.

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
    with one_thread_if_small(similarity.numel()):
        filled = adaptive_filling(similarity, counts, prototypes, confident, similarity_threshold, generator, shards)
        is_unfilled = bool(unfilled) and (start is None or not filled.n_filled)
        begin = unfilled[0].class_potential if is_unfilled else start
        return solve(filled.similarity, filled.counts, begin, tolerance)


def common_rows(potential: UnbalancedPotential, similarity: Array) -> Tensor:
    """Return the rows of which sample and class both have at least the mean mass, bool (n_samples,). Paper: Eq. (7)."""
    similarity = as_tensor(similarity, "similarity")
    assignment = potential.assign(similarity)
    is_common = potential.common_classes().to(similarity.device)
    return assignment.known & is_common[assignment.nearest]
