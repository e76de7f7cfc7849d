"""Principal directions of many rows."""

from __future__ import annotations

import torch
from torch import Tensor

_POWER_ITERATIONS = 4


def leading_directions(rows: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Return the leading principal directions of rows (n, n_features) as orthonormal columns, (n_features, width).

    Subspace iteration, because a full decomposition of wide embeddings is slow.
    """
    if width >= rows.shape[1]:
        return torch.eye(rows.shape[1])
    start = torch.randn(rows.shape[1], min(width + 20, rows.shape[1]), generator=generator)
    found = torch.linalg.qr(start).Q
    for _ in range(_POWER_ITERATIONS):
        found = torch.linalg.qr(rows.t() @ (rows @ found)).Q
    within = (rows @ found).double()
    vectors = torch.linalg.eigh(within.t() @ within).eigenvectors.flip(1)
    leading: Tensor = found @ vectors[:, :width].float()
    return leading
