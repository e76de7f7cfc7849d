"""One small classifier per class says whether a sample is of that class or not."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def one_vs_all_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample is claimed by the classifier of its class, and refused by the one that is most tempted to claim it.

    With p_k the probability that classifier k claims a sample of class y:
    the first is mean(-log p_y), the second mean(max over k ≠ y of -log(1 - p_k)).

    Args:
        logits: (n, 2, c): of each classifier "not of this class", then "of this class".
        labels: (n,), class of each sample.

    Paper: Saito and Saenko, OVANet, ICCV 2021, hard negative classifier sampling.
    """
    evidence = _evidence(logits)
    of_class = F.one_hot(labels, evidence.shape[1]).bool()
    claimed = F.softplus(-evidence)[of_class].mean()
    # A loss is never negative, so a zero in the place of the sample's own class is never the largest by mistake.
    refused = F.softplus(evidence).masked_fill(of_class, 0).amax(dim=1).mean()
    return claimed, refused


def one_vs_all_entropy(logits: Tensor) -> Tensor:
    """Mean over samples and classifiers of the entropy of "of this class or not".

    Args:
        logits: (n, 2, c).

    Paper: Saito and Saenko, OVANet, ICCV 2021, open-set entropy minimisation. As in the authors' code it is a mean over
    the classes and not their sum.
    """
    evidence = _evidence(logits)
    p = evidence.sigmoid()
    return (p * F.softplus(-evidence) + (1 - p) * F.softplus(evidence)).mean()


def claims(logits: Tensor) -> Tensor:
    """Probability that each classifier claims each sample, (n, c), from logits (n, 2, c)."""
    return _evidence(logits).sigmoid()


def _evidence(logits: Tensor) -> Tensor:
    """A softmax over two logits is the sigmoid of their difference."""
    return logits[:, 1] - logits[:, 0]
