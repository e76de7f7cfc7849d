"""Target predictions that are nearly sure become surer, those that are nearly unsure become more unsure."""

from __future__ import annotations

import math

from torch import Tensor

from uniot.losses.entropy import entropy


def entropy_separation_loss(logits: Tensor, margin: float = 0.5) -> Tensor:
    """-|H(p) - ρ| where that distance is above the margin, zero elsewhere; the mean over the samples.

    ρ is half of the largest entropy, log(c) / 2. Within the margin nothing pushes: there it is not yet clear whether a
    sample belongs to a class. The authors' code has the constant -margin there, with the same gradients.

    Args:
        logits: (n, c).
        margin: m.

    Paper: Saito et al., DANCE, NeurIPS 2020, entropy separation.
    """
    distance = (entropy(logits) - math.log(logits.shape[1]) / 2).abs()
    return -distance.where(distance > margin, 0).mean()
