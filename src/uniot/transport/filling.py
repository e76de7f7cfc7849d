"""Adaptive filling: rows added so that positives and negatives are equally many.

A row is positive where its largest similarity exceeds γ. Too few positives: confident rows are repeated. Too
few negatives: fake private samples, halfway between a sample and its farthest prototype, are added. A repeat
is a count on a row rather than a copy of it, and a fake's similarities follow from its sample's, so neither
needs the features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.transport.shards import Shards, before_and_all, total


@dataclass(frozen=True)
class FilledRows:
    """The rows of a filled problem: the given ones first, fakes after them.

    Attributes:
        similarity: (n + fakes, c).
        counts: (n + fakes,), how often each row stands in the problem.
        n_filled: rows that filling added, repeats counted.
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
    """Balances positive and negative rows.

    Args:
        similarity: (n, c), cosines of unit features to `prototypes`.
        counts: (n,), how often each row stands in the problem.
        prototypes: (c, d), unit rows.
        confident_rows: from (similarity, counts) of the unfilled problem to its confident rows, bool (n,);
            called only where positives are missing.
        threshold: γ.
        generator: draws the rows, with replacement.
        shards: the processes that share the rows; their draws together are those of one process.

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
    """How often each row is drawn when `size` draws with replacement fall on rows in proportion to `pool`.

    Args:
        pool: (n,), whole numbers, not all zero.
        size: number of draws.
        generator: source of randomness, in the same state in every process.
        shards: the processes that share the rows.

    Returns:
        (n,), whole numbers that sum to `size`, over the processes where there are several.
    """
    ends = pool.to(torch.float64).cumsum(0)
    own = float(ends[-1]) if len(ends) else 0.0
    before, everything = before_and_all(shards, own)
    tickets = torch.rand(size, generator=generator, dtype=torch.float64).to(pool.device) * everything - before
    tickets = tickets[(tickets >= 0) & (tickets < own)]
    rows = torch.searchsorted(ends, tickets, right=True)
    return torch.bincount(rows, minlength=len(pool)).to(pool.dtype)


def fake_private_similarity(similarity: Tensor, prototypes: Tensor) -> Tensor:
    """Cosines of normalise(½ z + ½ farthest prototype) to the prototypes, from those of z.

    Args:
        similarity: (n, c), cosines of unit features z to `prototypes`.
        prototypes: (c, d), unit rows.

    Returns:
        (n, c).
    """
    lowest, farthest = similarity.min(dim=1)
    between = (prototypes @ prototypes.t())[farthest]
    # |z + c|² = 2 + 2 z·c for unit vectors; it vanishes only for a sample opposite to a prototype.
    length = (2 + 2 * lowest).clamp_min(1e-12).sqrt()
    return (similarity + between) / length[:, None]
