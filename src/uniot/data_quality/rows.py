"""Embeddings as unit rows of few dimensions, in blocks, so that wide ones are never copied as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_BLOCK = 4096


def unit_blocks(embeddings: np.ndarray) -> Iterator[Tensor]:
    """Yield unit rows of embeddings (n, ...), flattened, some thousand at a time."""
    for start in range(0, len(embeddings), _BLOCK):
        yield unit_rows(embeddings[start : start + _BLOCK])


def unit_rows(embeddings: np.ndarray) -> Tensor:
    """Return float32 rows of unit norm, (n, d); a row of zeros stays one."""
    rows = torch.from_numpy(np.ascontiguousarray(embeddings, dtype=np.float32)).flatten(1)
    # Divided by the largest entry first, so that no square leaves the range of float32.
    return F.normalize(rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(1e-30), dim=1)


def mapped(embeddings: np.ndarray, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to the unit rows of embeddings, block by block."""
    return torch.cat([function(block) for block in unit_blocks(embeddings)])
