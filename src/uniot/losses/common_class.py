"""Target samples that were detected as common learn the class that they were transported to."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def common_class_loss(logits: Tensor, classes: Tensor, detected: Tensor) -> Tensor:
    """Cross-entropy of the detected rows; zero where none is detected.

    Args:
        logits: (n, c), similarities divided by the temperature.
        classes: (n,), class that each row was transported to.
        detected: (n,), bool.

    Paper: Eq. (8).
    """
    # A batch may hold no common class at all; a mean over nothing would be NaN.
    if not bool(detected.any()):
        return logits.sum() * 0
    return F.cross_entropy(logits[detected], classes[detected])
