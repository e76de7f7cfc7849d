"""DANCE: target samples gather round neighbours or classes, and their entropy is driven apart (NeurIPS 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.losses.entropy_separation import entropy_separation_loss
from uniot.losses.neighbourhood import neighbourhood_clustering_loss
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks import Prototypes
from uniot.networks.sample_bank import SampleBank
from uniot.settings import Settings


class DANCEOptions(MethodOptions):
    """Published values of DANCE."""

    temperature: float = Field(0.05, ge=1e-3, le=100, description="τ; cosines are divided by it.")
    target_weight: float = Field(0.05, ge=0, le=1e3, description="η, weight of both target losses.")
    margin: float = Field(
        0.5, ge=0, le=100, description="m, in nats; entropies as close as this to the border are left alone."
    )


class DANCE(HeadMethod):
    """Cosine classifier, neighbourhood clustering over a memory of the target, and entropy separation.

    As published, the classifier sits on the unit output of the backbone, without a bottleneck: on embeddings it is all
    that is trained. (A new layer in between learns ten times as fast as a backbone would, and soon leaves no prediction
    undecided.) The memory holds the newest feature of each target sample, of `queue_size` samples at most
    (published: of all). Those that have not been seen yet are not in it; in the authors' code they are zeros.

    Attributes:
        memory: unit features of the target.
    """

    options: DANCEOptions

    classifier: _CosineClassifier

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: DANCEOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.bottleneck = nn.Identity()
        self.classifier = _CosineClassifier(n_classes, in_features, options.temperature)
        self.memory = SampleBank(self.queue_size, in_features)

    def features(self, inputs: Tensor) -> Tensor:
        """Inputs to unit features, (n, d)."""
        return F.normalize(super().features(inputs), dim=1)

    def step(self, batch: Batch) -> Losses:
        """L = CE(y, W z_s / τ) + η (L_nc + L_es), with unit features z and unit rows of W.

        L_nc is the mean entropy over the target batch of p_ij ∝ exp(z_i · f_j / τ), where the f_j are the rows of W,
        the other samples of the batch, and the memory of samples that are not in the batch.
        L_es = -mean(|H(p) - log(C)/2| where that is above m, zero elsewhere), p the classifier's answer.
        Paper: Saito et al., Universal Domain Adaptation through Self-Supervision, NeurIPS 2020, section 3.
        """
        source, target = self.batch_features(batch)
        logits = self.classifier(target)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        to_remembered = self.cosines_to_remembered(target, batch.target_ids)
        clustering = neighbourhood_clustering_loss(target, logits, to_remembered, self.options.temperature)
        separation = entropy_separation_loss(logits, self.options.margin)
        self.memory.put(target.detach(), batch.target_ids)
        return Losses(
            total=classification + self.options.target_weight * (clustering + separation),
            parts={"source": classification, "clustering": clustering, "separation": separation},
        )

    def cosines_to_remembered(self, target: Tensor, target_ids: Tensor) -> Tensor:
        """Of unit features (n, d) to the samples in the memory that are not among them, (n, m)."""
        ids = self.memory.ids
        # Columns are dropped after the product: copying the rows of a large memory takes longer.
        return (target @ self.memory.rows.t())[:, (ids >= 0) & ~torch.isin(ids, target_ids)]

    @torch.no_grad()
    def after_step(self) -> None:
        """Brings the class prototypes back to unit norm."""
        self.classifier.renormalise()

    def forget_samples(self) -> None:
        """Empties the memory."""
        self.memory.clear()

    def class_prototypes(self) -> Tensor:
        """Unit rows, (c, d)."""
        return self.classifier.weight.detach()


class _CosineClassifier(Prototypes):
    """Cosines to unit prototypes, divided by a temperature."""

    def __init__(self, count: int, feature_size: int, temperature: float) -> None:
        super().__init__(count, feature_size)
        self.temperature = temperature

    def forward(self, features: Tensor) -> Tensor:
        """Logits of unit features (n, d), (n, count)."""
        return super().forward(features) / self.temperature


INFO = MethodInfo(
    name="dance",
    title="DANCE",
    source="Saito et al., Universal Domain Adaptation through Self-Supervision, NeurIPS 2020",
    rule="unknown where the entropy of the prediction exceeds half of log C",
    build=DANCE,
    options=DANCEOptions,
)
