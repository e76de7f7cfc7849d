"""Distillation: a student learns the class probabilities that a teacher predicts.

References:
    Deng and Jia, Universal Domain Adaptation from Foundation Models: A Baseline Study, arXiv:2305.11092.
"""

from __future__ import annotations

from torch import Tensor

# As in the authors' code; it bounds the loss of a class that the student rules out.
_LEAST = 1e-5


def distillation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """Return mean(-Σ_k q_k log(p_k + 10⁻⁵)), a scalar, of a student's p = softmax(logits) and a teacher's q.

    Args:
        logits: of the student, (n, c); the loss is zero without samples.
        teacher: class probabilities, (n, c); used without gradient.

    Example:
        >>> round(float(distillation_loss(torch.zeros(1, 2), torch.tensor([[0.3, 0.7]]))), 4)  # log 2
        0.6931
    """
    return -(teacher.detach() * (logits.softmax(dim=1) + _LEAST).log()).sum() / max(1, len(logits))
