"""Losses of one-vs-all classifiers: one binary classifier per class accepts or rejects a sample.

References:
    Saito and Saenko, OVANet: One-vs-All Network for Universal Domain Adaptation, ICCV 2021, arXiv:2104.03344.
    Lu et al., MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain Adaptation, AAAI 2024,
    arXiv:2312.07871.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def one_vs_all_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the loss of the positive and of the hardest negative binary classifier per sample.

    With p_k the probability of classifier k that a sample of class y is of class k, the first loss is mean(-log p_y),
    the second mean(max over k ≠ y of -log(1 - p_k)).

    Args:
        logits: per classifier "not of this class", then "of this class", (n, 2, c).
        labels: class per sample, (n,).

    Returns:
        Positive and negative loss, scalars.

    Paper: Saito and Saenko, OVANet, ICCV 2021, hard negative classifier sampling.

    Example:
        >>> logits = torch.zeros(1, 2, 3)  # one sample, three undecided classifiers
        >>> positive, negative = one_vs_all_loss(logits, torch.tensor([0]))
        >>> round(float(positive), 4), round(float(negative), 4)  # log 2 each
        (0.6931, 0.6931)
    """
    log_odds = _log_odds(logits)
    of_class = F.one_hot(labels, log_odds.shape[1]).bool()
    claimed = F.softplus(-log_odds)[of_class].mean()
    # Losses are not negative, so a zero for the sample's own class never exceeds the maximum of the others.
    refused = F.softplus(log_odds).masked_fill(of_class, 0).amax(dim=1).mean()
    return claimed, refused


def one_vs_all_entropy(logits: Tensor) -> Tensor:
    """Compute the mean over samples and classifiers of the binary entropy.

    Args:
        logits: (n, 2, c).

    Returns:
        The mean entropy, a scalar.

    Paper: Saito and Saenko, OVANet, ICCV 2021, open-set entropy minimisation. As in the authors' code it is a mean over
    the classes and not their sum.

    Example:
        >>> round(float(one_vs_all_entropy(torch.zeros(4, 2, 3))), 4)  # log 2
        0.6931
    """
    log_odds = _log_odds(logits)
    p = log_odds.sigmoid()
    return (p * F.softplus(-log_odds) + (1 - p) * F.softplus(log_odds)).mean()


def one_vs_all_probabilities(logits: Tensor) -> Tensor:
    """Return the probability of each class by its binary classifier, (n, c), from logits (n, 2, c).

    Example:
        >>> one_vs_all_probabilities(torch.zeros(1, 2, 3))
        tensor([[0.5000, 0.5000, 0.5000]])
    """
    return _log_odds(logits).sigmoid()


def _log_odds(logits: Tensor) -> Tensor:
    """Return the difference of the two logits, (n, c), whose sigmoid is their softmax."""
    return logits[:, 1] - logits[:, 0]


def mixup_rejection_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return mean(-log(1 - p_y)), a scalar: a mixture of a source and a target sample is not of the source's class.

    Args:
        logits: of mixed features, per classifier "not of this class", then "of this class", (n, 2, c).
        labels: class of the source sample, (n,).

    Paper: Lu et al., AAAI 2024, cross-domain mix-up.

    Example:
        >>> round(float(mixup_rejection_loss(torch.zeros(2, 2, 3), torch.tensor([0, 2]))), 4)  # log 2
        0.6931
    """
    return F.softplus((logits[:, 1] - logits[:, 0]).gather(1, labels[:, None])).mean()


def one_vs_all_consistency_loss(logits: Tensor, one_vs_all_logits: Tensor) -> Tensor:
    """Return -mean(p_k q_k) over samples and classes, a scalar; p by the closed-set, q by the open-set classifiers.

    Args:
        logits: of the closed-set classifier, (n, c).
        one_vs_all_logits: (n, 2, c).

    Paper: Lu et al., AAAI 2024, consistency constraint. As in the authors' code it is a mean over the classes.

    Example:
        >>> float(one_vs_all_consistency_loss(torch.zeros(1, 2), torch.zeros(1, 2, 2)))
        -0.25
    """
    return -(logits.softmax(dim=1) * one_vs_all_probabilities(one_vs_all_logits)).mean()
