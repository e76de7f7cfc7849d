"""Each target sample gathers round a few others, or round the prototype of a class."""

from __future__ import annotations

import torch
from torch import Tensor

from uniot.losses.entropy import entropy


def neighbourhood_clustering_loss(
    target: Tensor, class_logits: Tensor, to_remembered: Tensor, temperature: float = 0.05
) -> Tensor:
    """Entropy of whom each target sample is like: the class prototypes, the other samples of the batch, the remembered.

    p_ij ∝ exp(z_i · f_j / τ) over all f_j but the sample itself; the loss is the mean of H(p_i).

    Args:
        target: (n, d), unit rows.
        class_logits: (n, c), cosines to the class prototypes divided by the temperature.
        to_remembered: (n, m), cosines to target samples that are not in this batch.
        temperature: τ.

    Paper: Saito et al., DANCE, NeurIPS 2020, neighbourhood clustering.
    """
    n = len(target)
    is_other = ~torch.eye(n, dtype=torch.bool, device=target.device)
    to_others = (target @ target.t())[is_other].view(n, n - 1)
    alike = torch.cat([to_others, to_remembered], dim=1) / temperature
    return entropy(torch.cat([class_logits, alike], dim=1)).mean()
