"""Pull target samples towards their neighbours; a closed-set and an open-set classifier correct each other (MLNet).

References:
    Lu et al., MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain Adaptation, AAAI 2024,
    arXiv:2312.07871.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import (
    SampleBank,
    jaccard,
    mixup_rejection_loss,
    neighbour_sets,
    neighbourhood_invariance_loss,
    one_vs_all_consistency_loss,
    one_vs_all_entropy,
    one_vs_all_loss,
    one_vs_all_probabilities,
)
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod

# Stored samples whose neighbours are searched for at a time, which bounds the memory for a large bank.
_BLOCK = 1024


class MLNetOptions(MethodOptions):
    """Hyper-parameters of MLNet, with the values published for Office-31 as defaults."""

    one_vs_all_weight: float = Field(0.5, ge=0, le=1e3, description="Weight of the one-vs-all loss of the source.")
    entropy_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the one-vs-all entropy of the target.")
    mixup_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the rejection of mixed features.")
    consistency_weight: float = Field(0.16, ge=0, le=1e3, description="Weight of the agreement of both classifiers.")
    neighbour_weight: float = Field(0.5, ge=0, le=1e3, description="Weight of the neighbour loss.")
    mixup_shape: int = Field(2, ge=1, le=100, description="a; shares of a mixture are drawn from Beta(a, a).")
    neighbour_ratio: float = Field(
        0.875, gt=0, lt=1, description="Least cosine of a neighbour, relative to the nearest."
    )
    scale: float = Field(10.0, gt=0, le=1e3, description="s; cosines are multiplied by it.")
    warmup: float = Field(0.02, ge=0, lt=1, description="Fraction of the steps before the neighbour loss begins.")


class MLNet(HeadMethod):
    """Adapt by the classifiers of OVANet, mix-up for rejection, and neighbours in a memory of the target.

    The neighbour loss pulls each target sample towards its neighbours, weighted by the Jaccard overlap of the two sets
    of neighbours, on the features of a linear bottleneck (published: the backbone's output). The memory has the newest
    unit feature of each target sample seen so far, of at most `queue_size`; overlaps are computed from it in each step.

    Attributes:
        one_vs_all: 2c rows, c for "not of this class" and then c for "of this class".
        memory: unit features of the target.
    """

    options: MLNetOptions

    def __init__(
        self, in_features: int, n_classes: int, settings: Settings, options: MLNetOptions, backbone: nn.Module | None
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.classifier = nn.Linear(settings.feature_size, n_classes, bias=False)
        self.one_vs_all = nn.Linear(settings.feature_size, 2 * n_classes, bias=False)
        self.memory = SampleBank(self.queue_size, settings.feature_size)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, C(f_s)) + 0.5 L_ova + 0.1 L_ent + 0.1 L_mix + 0.16 L_cons + 0.5 L_nbr, the last after the warm-up.
        L_ova and L_ent are those of OVANet.
        """
        options, (source, target) = self.options, self.batch_features(batch)
        self.memory.put(F.normalize(target.detach(), dim=1), batch.target_ids)
        opened = self.one_vs_all_logits(target)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        claimed, refused = one_vs_all_loss(self.one_vs_all_logits(source), batch.source_labels)
        parts = {"source": classification, "one_vs_all": claimed + refused, "entropy": one_vs_all_entropy(opened)}
        parts["mixup"] = self.mixup_loss(source, target, batch)
        parts["consistency"] = one_vs_all_consistency_loss(self.classifier(target), opened)
        is_warm = batch.step >= options.warmup * self.steps
        parts["neighbour"] = self.invariance_loss(target, batch.target_ids) if is_warm else source.new_zeros(())
        total = classification + options.one_vs_all_weight * parts["one_vs_all"]
        total = total + options.entropy_weight * parts["entropy"] + options.mixup_weight * parts["mixup"]
        total = total + options.consistency_weight * parts["consistency"]
        return Losses(total=total + options.neighbour_weight * parts["neighbour"], parts=parts)

    def mixup_loss(self, source: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """Return the loss of λ f_s + (1 - λ) f_t, a scalar, λ ~ Beta(a, a) per pair; features: (b, d) and (b', d)."""
        n, a = min(len(source), len(target)), self.options.mixup_shape
        # The a-th smallest of 2a - 1 uniform numbers has this distribution, and needs no other generator.
        share = torch.rand(n, 2 * a - 1, generator=batch.generator).sort(dim=1).values[:, a - 1 : a].to(source)
        mixed = share * source[:n] + (1 - share) * target[:n]
        return mixup_rejection_loss(self.one_vs_all_logits(mixed), batch.source_labels[:n])

    def invariance_loss(self, target: Tensor, target_ids: Tensor) -> Tensor:
        """Return the neighbour loss of a batch over the memory, a scalar; features: (n, d), ids: (n,)."""
        places, ratio = self.memory.filled(), self.options.neighbour_ratio
        rows, ids = self.memory.rows[places], self.memory.ids[places]
        is_self = target_ids[:, None] == ids
        cosines = F.normalize(target, dim=1) @ rows.t()
        with torch.no_grad():
            neighbours = neighbour_sets(cosines, is_self, ratio)
            weights = torch.zeros_like(cosines)
            # The sets of samples that are nobody's neighbours are not needed.
            for block in torch.nonzero(neighbours.any(dim=0)).flatten().split(_BLOCK):
                theirs = neighbour_sets(rows[block] @ rows.t(), ids[block][:, None] == ids, ratio)
                weights[:, block] = jaccard(neighbours, theirs)
        return neighbourhood_invariance_loss(cosines, is_self, neighbours, weights, self.options.scale)

    def score(self, features: Tensor) -> Tensor:
        """Return the one-vs-all probability of the predicted class per sample, (n,); features: (n, d)."""
        nearest = self.classifier(features).argmax(dim=1, keepdim=True)
        return one_vs_all_probabilities(self.one_vs_all_logits(features).double()).gather(1, nearest).squeeze(1)

    def one_vs_all_logits(self, features: Tensor) -> Tensor:
        """Return the logits of the one-vs-all classifiers, (n, 2, c), of features (n, d)."""
        logits: Tensor = self.one_vs_all(features)
        return logits.view(-1, 2, self.n_classes)

    def forget_samples(self) -> None:
        """Clear the memory."""
        self.memory.clear()


INFO = MethodInfo(
    name="mlnet",
    title="MLNet",
    source="Lu et al., MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain Adaptation, "
    "AAAI 2024",
    rule="unknown if the one-vs-all classifier of the predicted class gives less than one half",
    build=MLNet,
    options=MLNetOptions,
    idle=frozenset({"store_target"}),
)
