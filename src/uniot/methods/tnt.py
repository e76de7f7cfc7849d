"""Reject by evidential uncertainty and contrast mutual nearest neighbours of the two domains (TNT, a reconstruction).

References:
    Chen et al., Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation, AAAI 2022,
    doi:10.1609/aaai.v36i6.20575.
    Sensoy et al., Evidential Deep Learning to Quantify Classification Uncertainty, NeurIPS 2018, arXiv:1806.01768.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import (
    IndexedFeatures,
    SampleBank,
    evidence,
    evidential_loss,
    evidential_uncertainty,
    mutual_neighbours,
    neighbour_contrastive_loss,
    reversal_strength,
    reversed_gradient,
    uncertainty_boundary_loss,
)
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod


class TNTOptions(MethodOptions):
    """Hyper-parameters of our reconstruction; the paper's values are not public."""

    n_neighbours: int = Field(1, ge=1, le=1000, description="How far down each other's list mutual neighbours are.")
    temperature: float = Field(0.1, ge=1e-3, le=100, description="τ; cosines of neighbours are divided by it.")
    contrast_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the contrast between neighbours.")
    boundary_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of uncertainty against confidence.")
    threshold_momentum: float = Field(0.9, ge=0, lt=1, description="Memory of the thresholds of the classes.")


class TNT(HeadMethod):
    """Adapt by evidential neighbourhood contrastive learning. Paper: Chen et al., AAAI 2022.

    A reconstruction: no code of the authors is public, and what is public of the paper names the parts without their
    formulas or values. Named are an evidential head; a cross-domain contrastive loss with several positives, which are
    mutual nearest neighbours; an adversarial objective of uncertainty against confidence; and a threshold per class.
    Formulas and values here are ours, chosen on D2W and A2W of Office-31; the geometric mean in the threshold was then
    preferred to the arithmetic one on two random splits of its classes. Do not quote the results as the paper's.

    Evidence and uncertainty. e_c = exp(logit_c), and u = C / Σ_c (e_c + 1): classes do not compete for it as they do in
    a softmax.

    Thresholds. They are learnt from the source alone. Its samples give the uncertainty u of known samples; without the
    evidence for their own class they represent unknown samples, u' = C / (Σ_c (e_c + 1) - e_y). The threshold δ_c is
    the geometric mean, the midpoint on the scale of the logits, of the mean u of the samples of class c and the mean u'
    of those whose second best class is c; both means are moving averages. A sample is unknown iff its u exceeds the
    threshold of the class for which it has most evidence.

    Attributes:
        inside: mean u of the samples of each class, (c,).
        outside: mean u' of the samples of other classes that are closest to each class, (c,).
    """

    options: TNTOptions

    inside: Tensor
    outside: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: TNTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.source_bank = SampleBank(self.queue_size, settings.feature_size)
        self.target_bank = SampleBank(self.queue_size, settings.feature_size)
        # A class without source samples has the threshold zero and rejects every sample.
        self.register_buffer("inside", torch.zeros(n_classes))
        self.register_buffer("outside", torch.ones(n_classes))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = L_evidence + 0.1 L_contrast + 0.1 L_boundary

        L_evidence: evidential cross-entropy of the source; the weight of the penalty grows over the first fifth of the
        run (`evidential_loss`).
        L_contrast: see `contrast`.
        L_boundary: mean |u - δ| over the target, δ the threshold of the nearest class. The classifier moves
        uncertainties to the thresholds; the features, by a reversed gradient, move them away, more strongly as
        step / steps grows.
        """
        source, target = self.batch_features(batch)
        source_evidence = evidence(self.classifier(source))
        classification = evidential_loss(source_evidence, batch.source_labels, min(1.0, 5 * batch.step / self.steps))
        self._learn_thresholds(source_evidence.detach(), batch.source_labels)
        contrast = self.contrast(source, target, batch)
        strength = reversal_strength(batch.step, self.steps)
        target_evidence = evidence(self.classifier(reversed_gradient(target, strength)))
        boundary = uncertainty_boundary_loss(
            evidential_uncertainty(target_evidence), self.thresholds_of(target_evidence)
        )
        total = classification + self.options.contrast_weight * contrast + self.options.boundary_weight * boundary
        return Losses(total, {"source": classification, "contrast": contrast, "boundary": boundary})

    def contrast(self, source: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """Compute the contrast of each sample's mutual neighbours in the other domain to all other stored samples.

        The other samples are the latest `queue_size` of each domain. A pair is ignored if its target sample is
        predicted unknown.

        Args:
            source: features, (b, d).
            target: features, (b', d).
            batch: has the step and the target ids.

        Returns:
            The loss, a scalar.
        """
        with torch.no_grad():
            seems_known = self.score(target) >= self.threshold
        # A batch has no source ids, so each sample is stored as a new one.
        numbers = batch.step * len(source) + torch.arange(len(source), device=source.device)
        source, target = F.normalize(source, dim=1), F.normalize(target, dim=1)
        self.source_bank.put(source.detach(), numbers)
        self.target_bank.put(target.detach(), batch.target_ids, seems_known.long())
        places = self.source_bank.filled(), self.target_bank.filled()
        # Negative ids of the source cannot equal those of the target.
        sources = IndexedFeatures(self.source_bank.rows[places[0]], -1 - self.source_bank.ids[places[0]])
        targets = IndexedFeatures(self.target_bank.rows[places[1]], self.target_bank.ids[places[1]])
        seemed_known = self.target_bank.labels[places[1]] == 1
        of_source = self._contrast(IndexedFeatures(source, -1 - numbers), sources, targets, seemed_known)
        of_target = self._contrast(IndexedFeatures(target, batch.target_ids), targets, sources, seems_known[:, None])
        return (of_source + of_target) / 2

    def thresholds_of(self, evidences: Tensor) -> Tensor:
        """Return δ of the class with most evidence per row, (n,); evidences: (n, c)."""
        return (self.inside * self.outside).sqrt()[evidences.argmax(dim=1)]

    def score(self, features: Tensor) -> Tensor:
        """Return δ (1 - u) / (δ (1 - u) + u (1 - δ)) per sample, (n,): below one half iff u exceeds δ."""
        evidences = evidence(self.classifier(features))
        u, threshold = evidential_uncertainty(evidences), self.thresholds_of(evidences)
        confident, uncertain = threshold * (1 - u), u * (1 - threshold)
        return confident / (confident + uncertain)

    def forget_samples(self) -> None:
        """Clear the banks."""
        self.source_bank.clear()
        self.target_bank.clear()

    def _contrast(
        self, anchors: IndexedFeatures, own: IndexedFeatures, other: IndexedFeatures, counts: Tensor
    ) -> Tensor:
        neighbours = mutual_neighbours(anchors, own, other, self.options.n_neighbours) & counts
        logits = anchors.features @ torch.cat([other.features, own.features]).t() / self.options.temperature
        hidden = anchors.ids[:, None] == torch.cat([other.ids, own.ids])
        return neighbour_contrastive_loss(logits, F.pad(neighbours, (0, len(own.ids))), hidden)

    @torch.no_grad()
    def _learn_thresholds(self, evidences: Tensor, labels: Tensor) -> None:
        others = evidences.masked_fill(F.one_hot(labels, self.n_classes).bool(), 0)
        self._average(self.inside, evidential_uncertainty(evidences), labels)
        self._average(self.outside, evidential_uncertainty(others), others.argmax(dim=1))

    def _average(self, means: Tensor, values: Tensor, classes: Tensor) -> None:
        """Update the moving averages of the classes that have values in this batch."""
        counts = torch.bincount(classes, minlength=len(means))
        here = torch.zeros_like(means).index_add_(0, classes, values) / counts.clamp_min(1)
        momentum = self.options.threshold_momentum
        means.copy_(torch.where(counts > 0, momentum * means + (1 - momentum) * here, means))


INFO = MethodInfo(
    name="tnt",
    title="TNT (reconstruction)",
    source="Chen et al., Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation, AAAI 2022",
    rule="unknown where the evidential uncertainty exceeds the threshold of the nearest class, learnt from the source",
    build=TNT,
    options=TNTOptions,
    is_reconstruction=True,
    idle=frozenset({"store_target"}),
)
