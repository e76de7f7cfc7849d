"""A classifier with a further class for unknown lays a boundary through the target."""

from __future__ import annotations

from torch import Tensor


def unknown_boundary_loss(logits: Tensor, boundary: float = 0.5) -> Tensor:
    """Mean of -t log p(unknown) - (1 - t) log(1 - p(unknown)), smallest where p(unknown) is t for every sample.

    Args:
        logits: (n, c + 1), unknown last.
        boundary: t.

    Paper: Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018, section 3.
    """
    log_p = logits.log_softmax(dim=1)
    log_unknown, log_known = log_p[:, -1], log_p[:, :-1].logsumexp(dim=1)
    return -(boundary * log_unknown + (1 - boundary) * log_known).mean()
