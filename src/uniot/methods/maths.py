"""Contrast mutual nearest neighbours of the two domains, test for private classes, self-train by prototypes (MATHS).

References:
    Chen et al., Mutual Nearest Neighbor Contrast and Hybrid Prototype Self-Training for Universal Domain Adaptation,
    AAAI 2022, doi:10.1609/aaai.v36i6.20574.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.discovery.kmeans import spherical_kmeans
from uniot.losses import IndexedFeatures, SampleBank, mutual_neighbours, neighbour_contrastive_loss
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.dcc_consensus import mean_directions
from uniot.methods.decision import Decision
from uniot.methods.dip_test import neighbourhood_angles, split_threshold, unimodality_p_value
from uniot.methods.head import HeadMethod
from uniot.methods.pseudo_labels import evenly_spaced

_MOST_PRIVATE = 3  # clusters per source class


def prototype_loss(logits: Tensor, labels: Tensor, confidences: Tensor) -> Tensor:
    """Return mean(w_i · -log q_i(k_i)), a scalar; logits of q: (n, m), labels k: (n,), confidences w: (n,)."""
    return (confidences.detach() * F.cross_entropy(logits, labels, reduction="none")).mean()


class MATHSOptions(MethodOptions):
    """Hyper-parameters of our reconstruction; the paper's values are not public in code."""

    n_neighbours: int = Field(1, ge=1, le=1000, description="How far down each other's list mutual neighbours are.")
    contrast_temperature: float = Field(0.1, ge=1e-3, le=100, description="Cosines of neighbours are divided by it.")
    temperature: float = Field(0.05, ge=1e-3, le=100, description="Cosines to prototypes are divided by it.")
    contrast_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the contrast between neighbours.")
    prototype_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the self-training.")
    n_averaged: int = Field(4, ge=0, le=1000, description="Target neighbours with which a sample is tested.")
    significance: float = Field(0.05, ge=0.001, le=1, description="Largest p-value of one mode with private classes.")
    alignment: float = Field(0.5, ge=0, lt=1, description="Fraction of the steps before the self-training.")
    rounds: int = Field(10, ge=1, le=1000, description="Times in a run that the prototypes are computed.")


class MATHS(HeadMethod):
    """Adapt by contrast of mutual nearest neighbours, then by self-training with hybrid prototypes.

    A reconstruction: no code of the authors is public; formulas and values are ours. Do not quote the results as the
    paper's. The classifier compares unit features with a unit row per class.

    After the first stage, the angles of the target to the class means of the source are tested for one mode. If there
    are more, samples with an angle above Otsu's threshold are private, and clustered, with clusters as large as the
    classes. Prototypes are hybrid: that of a class lies half-way between its means in the source and in the target, and
    each private cluster has one. A sample is unknown iff the nearest prototype is that of a private cluster.

    Attributes:
        prototypes: of the classes, then of the private clusters, (c + 3 c, d); those in use come first.
        n_private: number of private clusters, a scalar.
        p_value: of the test, a scalar; one before it.
    """

    options: MATHSOptions
    classifier: nn.Linear
    prototypes: Tensor
    n_private: Tensor
    p_value: Tensor

    def __init__(
        self, in_features: int, n_classes: int, settings: Settings, options: MATHSOptions, backbone: nn.Module | None
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.classifier = nn.Linear(settings.feature_size, n_classes, bias=False)
        self.source_bank = SampleBank(self.queue_size, settings.feature_size)
        self.target_bank = SampleBank(self.queue_size, settings.feature_size)
        self.first = max(1, round(options.alignment * self.steps))  # the banks are empty at step 0
        self.round_length = max(1, math.ceil((self.steps - self.first) / options.rounds))
        self.register_buffer("prototypes", torch.zeros((1 + _MOST_PRIVATE) * n_classes, settings.feature_size))
        self.register_buffer("n_private", torch.zeros((), dtype=torch.long))
        self.register_buffer("p_value", torch.ones((), dtype=torch.float64))

    def embedding_features(self, embeddings: Tensor) -> Tensor:
        """Return unit features, (n, feature_size), of embeddings (n, ...)."""
        return F.normalize(super().embedding_features(embeddings), dim=1)

    def prototype_logits(self, features: Tensor) -> Tensor:
        """Return the cosines to the prototypes divided by τ, (n, c + 3 c), -inf if not in use; features: (n, d)."""
        unused = torch.arange(len(self.prototypes), device=features.device) >= self.n_classes + self.n_private
        return (features @ self.prototypes.t() / self.options.temperature).masked_fill(unused, -torch.inf)

    def step(self, batch: Batch) -> Losses:
        """Return the losses: CE(y, p_s) + 0.1 L_contrast, and + 0.1 L_prototype in the second half of the run."""
        options, (source, target) = self.options, self.batch_features(batch)
        logits = source @ F.normalize(self.classifier.weight, dim=1).t() / options.temperature
        classification = F.cross_entropy(logits, batch.source_labels)
        prototype, is_common = source.new_zeros(()), torch.ones_like(batch.target_ids, dtype=torch.bool)
        if batch.step >= self.first:
            if (batch.step - self.first) % self.round_length == 0:
                self.fit_prototypes(self.target_bank.rows[self.target_bank.filled()])
            logits = self.prototype_logits(target)
            confidences, labels = logits.softmax(dim=1).max(dim=1)
            prototype, is_common = prototype_loss(logits, labels, confidences), labels < self.n_classes
        contrast = self.contrast(source, target, batch, is_common)
        total = classification + options.contrast_weight * contrast + options.prototype_weight * prototype
        notes = {"private_prototypes": float(self.n_private), "p_value": float(self.p_value)}
        return Losses(total, {"source": classification, "contrast": contrast, "prototype": prototype}, notes=notes)

    def contrast(self, source: Tensor, target: Tensor, batch: Batch, is_common: Tensor) -> Tensor:
        """Return the loss, a scalar, of mutual neighbours across the domains against all stored samples.

        Features are unit rows, (b, d) and (b', d); a target sample has neighbours only if `is_common`, (b',).
        """
        # A batch has no source ids: each sample is stored as a new one, with a negative id that no target sample has.
        numbers = batch.step * len(source) + torch.arange(len(source), device=source.device)
        banks = self.source_bank, self.target_bank
        banks[0].put(source.detach(), numbers, batch.source_labels)
        banks[1].put(target.detach(), batch.target_ids, is_common.long())
        i, j = (bank.filled() for bank in banks)
        stored = (
            IndexedFeatures(banks[0].rows[i], -1 - banks[0].ids[i]),
            IndexedFeatures(banks[1].rows[j], banks[1].ids[j]),
        )

        def one_way(anchors: IndexedFeatures, own: IndexedFeatures, other: IndexedFeatures, counts: Tensor) -> Tensor:
            positives = mutual_neighbours(anchors, own, other, self.options.n_neighbours) & counts
            cosines = anchors.features @ torch.cat([other.features, own.features]).t()
            hidden = anchors.ids[:, None] == torch.cat([other.ids, own.ids])
            logits = cosines / self.options.contrast_temperature
            return neighbour_contrastive_loss(logits, F.pad(positives, (0, len(own.ids))), hidden)

        from_source = one_way(IndexedFeatures(source, -1 - numbers), *stored, banks[1].labels[j] == 1)
        return (from_source + one_way(IndexedFeatures(target, batch.target_ids), *stored[::-1], is_common[:, None])) / 2

    @torch.no_grad()
    def fit_prototypes(self, target: Tensor) -> None:
        """Compute the hybrid prototypes from unit target features (n, d); the first time after the test."""
        target, c, filled = evenly_spaced(target), self.n_classes, self.source_bank.filled()
        rows = F.normalize(self.classifier.weight, dim=1)
        source = mean_directions(self.source_bank.rows[filled], self.source_bank.labels[filled], rows)
        is_first = not bool(self.prototypes.any())
        groups = self.detect_private(target, source) if is_first else self.prototype_logits(target).argmax(dim=1)
        used = self.prototypes[: c + int(self.n_private)]
        means = mean_directions(target, groups, torch.cat([source, used[c:]]))
        used.copy_(torch.cat([F.normalize(source + means[:c], dim=1), means[c:]]))

    def detect_private(self, target: Tensor, source: Tensor) -> Tensor:
        """Return the class of each common sample, c plus the cluster of each private one, (n,).

        IndexedFeatures are of unit norm: features of the target, (n, d), and class means of the source, (c, d).
        """
        groups = (target @ source.t()).argmax(dim=1)
        angles = neighbourhood_angles(target, source, self.options.n_averaged)
        self.p_value.fill_(unimodality_p_value(angles.cpu().numpy()))
        is_private = angles > (split_threshold(angles) if float(self.p_value) <= self.options.significance else math.pi)
        n = int(is_private.sum())
        if n:
            as_large = round(n * len(groups[~is_private].unique()) / (len(groups) - n))
            self.n_private.fill_(min(max(as_large, 1), n, _MOST_PRIVATE * self.n_classes))
            clusters = spherical_kmeans(target[is_private].cpu(), int(self.n_private), restarts=1)
            groups[is_private] = self.n_classes + torch.from_numpy(clusters.groups).to(groups)
        return groups

    def finalize(self, final: FinalFeatures) -> None:
        """Compute the prototypes from the features after the last step."""
        self.fit_prototypes(final.whole_target())

    def score(self, features: Tensor) -> Tensor:
        """Return q_common / (q_common + q_private) per sample, (n,), of the nearest prototypes of both kinds.

        Without private prototypes it is (1 + q_common) / 2, so that nothing is rejected; features: unit rows, (n, d).
        """
        common, private = self.prototype_logits(features).double().tensor_split([self.n_classes], dim=1)
        without = (1 + common.softmax(dim=1).amax(dim=1)) / 2
        return torch.where(self.n_private > 0, (common.amax(dim=1) - private.amax(dim=1)).sigmoid(), without)

    @torch.no_grad()
    def decide(self, features: Tensor) -> Decision:
        """Decide for the nearest prototype: its class, or unknown if it is that of a private cluster."""
        probabilities = self.prototype_logits(features)[:, : self.n_classes].softmax(dim=1)
        return Decision.of(probabilities, self.score(features), self.threshold)

    def forget_samples(self) -> None:
        """Clear the banks."""
        self.source_bank.clear()
        self.target_bank.clear()


INFO = MethodInfo(
    name="maths",
    title="MATHS (reconstruction)",
    source="Chen et al., Mutual Nearest Neighbor Contrast and Hybrid Prototype Self-Training for Universal Domain "
    "Adaptation, AAAI 2022",
    rule="unknown if a dip test finds private classes in the target and the nearest prototype is of such a class",
    build=MATHS,
    options=MATHSOptions,
    is_reconstruction=True,
    idle=frozenset({"store_target"}),
)
