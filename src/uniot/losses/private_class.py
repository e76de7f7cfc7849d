"""Target samples learn the cluster codes that balanced transport gives them and their neighbours."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def code_loss(logits: Tensor, codes: Tensor) -> Tensor:
    """Each sample predicts its own code. Paper: Eq. (11), (12)."""
    return F.cross_entropy(logits, codes)


def swapped_code_loss(logits: Tensor, neighbour_logits: Tensor, codes: Tensor, neighbour_codes: Tensor) -> Tensor:
    """Each sample predicts its neighbour's code, and the neighbour the sample's. Paper: Eq. (13)."""
    return (F.cross_entropy(logits, neighbour_codes) + F.cross_entropy(neighbour_logits, codes)) / 2


def private_class_loss(logits: Tensor, neighbour_logits: Tensor, codes: Tensor, neighbour_codes: Tensor) -> Tensor:
    """Mean of the global and the local loss; codes carry no gradient.

    Args:
        logits: (n, k), cosines of the anchors to the cluster prototypes divided by the temperature.
        neighbour_logits: (n, k), the same of their neighbours.
        codes: (n, k), rows that sum to one.
        neighbour_codes: (n, k).

    Paper: Eq. (14).
    """
    codes, neighbour_codes = codes.detach(), neighbour_codes.detach()
    local = swapped_code_loss(logits, neighbour_logits, codes, neighbour_codes)
    return (code_loss(logits, codes) + local) / 2
