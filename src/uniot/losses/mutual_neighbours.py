"""Samples that are among each other's nearest come closer, within a domain and across."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Features of samples of one domain.

    Attributes:
        features: unit rows, (n, d).
        ids: which sample each is, (n,); no sample of another domain has the same.
    """

    features: Tensor
    ids: Tensor


@torch.no_grad()
def mutual_neighbours(anchors: Rows, own: Rows, other: Rows, n_neighbours: int) -> Tensor:
    """Which rows of a domain are near an anchor that is also near them, (n, m), bool.

    Row j of `other` is a neighbour of anchor i if it is among the `n_neighbours` most similar to i in `other`, and
    fewer than `n_neighbours` other samples of `own` are more similar to j than i is. A sample is never its own.

    Args:
        anchors: n rows.
        own: rows of the anchors' domain.
        other: m rows of the domain that is looked in, which may be the same.
        n_neighbours: how far down the list a neighbour may be.
    """
    similarity = anchors.features @ other.features.t()
    similarity.masked_fill_(anchors.ids[:, None] == other.ids, -torch.inf)
    best, chosen = similarity.topk(min(n_neighbours, similarity.shape[1]), dim=1)
    rivals = other.features[chosen.flatten()] @ own.features.t()
    # Neither the anchor nor the chosen sample itself is a rival of the anchor.
    rivals.masked_fill_(other.ids[chosen.flatten()][:, None] == own.ids, -torch.inf)
    rivals.masked_fill_(anchors.ids.repeat_interleave(chosen.shape[1])[:, None] == own.ids, -torch.inf)
    nearer = (rivals > best.flatten()[:, None]).sum(dim=1).view_as(chosen)
    is_mutual = (nearer < n_neighbours) & best.isfinite()
    return torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, chosen, is_mutual)


def neighbour_contrast(logits: Tensor, positives: Tensor, hidden: Tensor) -> Tensor:
    """Mean of -log p over the positives of each row, then over the rows that have any; zero where none has.

    Args:
        logits: (n, m), similarities divided by a temperature; p is their softmax.
        positives: (n, m), bool, none of them hidden.
        hidden: (n, m), bool, left out of the softmax.
    """
    counts = positives.sum(dim=1)
    # A batch may have no neighbours at all; a mean over nothing would be NaN.
    if not bool(counts.any()):
        return logits.sum() * 0
    log_p = logits.masked_fill(hidden, -torch.inf).log_softmax(dim=1)
    of_rows = -log_p.masked_fill(~positives, 0).sum(dim=1) / counts.clamp_min(1)
    return of_rows[counts > 0].mean()
