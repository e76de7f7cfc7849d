"""Cluster target neighbourhoods and push prediction entropies away from the threshold (DANCE).

References:
    Saito et al., Universal Domain Adaptation through Self-Supervision, NeurIPS 2020, arXiv:2002.07953.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import Prototypes, SampleBank, entropy_separation_loss, neighbourhood_clustering_loss
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.fitted import GivenPrototypes
from uniot.methods.head import HeadMethod


class DANCEOptions(MethodOptions):
    """Hyper-parameters of DANCE, with the published values as defaults."""

    temperature: float = Field(0.05, ge=1e-3, le=100, description="τ; cosines are divided by it.")
    target_weight: float = Field(0.05, ge=0, le=1e3, description="η, weight of both target losses.")
    margin: float = Field(
        0.5, ge=0, le=100, description="m, in nats; entropies as close as this to the border are left alone."
    )


class DANCE(HeadMethod):
    """Adapt by a cosine classifier, neighbourhood clustering over a memory of the target, and entropy separation.

    As published, the classifier takes the normalised output of the backbone, without a bottleneck: on embeddings it is
    all that is trained. (A new layer in between has ten times the learning rate of a backbone, and soon makes every
    prediction confident.) The memory holds the newest feature of each target sample, of at most `queue_size` samples
    (published: of all). Samples that have not been drawn yet are not in it; in the authors' code they are zeros.

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

    def embedding_features(self, embeddings: Tensor) -> Tensor:
        """Return unit features, (n, d), of embeddings (n, ...)."""
        return F.normalize(super().embedding_features(embeddings), dim=1)

    @torch.no_grad()
    def use_prototypes(self, given: GivenPrototypes) -> None:
        """Start the classifier from these prototypes; training changes them."""
        if given.weight != 1:
            raise SettingsError(
                "dance starts from the prototypes and has no class means to average them with. Leave prototype_weight "
                "out, or use the method unincm."
            )
        self.classifier.weight.copy_(given.rows)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, W z_s / τ) + η (L_nc + L_es), with unit features z and unit rows of W.

        L_nc is the mean entropy over the target batch of p_ij ∝ exp(z_i · f_j / τ), where the f_j are the rows of W,
        the other samples of the batch, and the stored samples that are not in the batch.
        L_es = -mean(|H(p) - log(C)/2| if that is above m, else 0), p the classifier's prediction.
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
        """Return the cosines to the m stored samples that are not in the batch, (n, m).

        Args:
            target: unit features of the batch, (n, d).
            target_ids: sample id per row, (n,).
        """
        ids = self.memory.ids
        # Dropping columns after the product is faster than copying the rows of a large memory.
        return (target @ self.memory.rows.t())[:, (ids >= 0) & ~torch.isin(ids, target_ids)]

    @torch.no_grad()
    def after_step(self) -> None:
        """Normalise the class prototypes to unit norm."""
        self.classifier.renormalise()

    def forget_samples(self) -> None:
        """Clear the memory."""
        self.memory.clear()

    def class_prototypes(self) -> Tensor:
        """Return the class prototypes, unit rows, (c, d)."""
        return self.classifier.weight.detach()


class _CosineClassifier(Prototypes):
    """Classify by cosines to unit prototypes, divided by a temperature."""

    def __init__(self, count: int, feature_size: int, temperature: float) -> None:
        super().__init__(count, feature_size)
        self.temperature = temperature

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits, (n, count), of unit features (n, d)."""
        return super().forward(features) / self.temperature


INFO = MethodInfo(
    name="dance",
    title="DANCE",
    source="Saito et al., Universal Domain Adaptation through Self-Supervision, NeurIPS 2020",
    rule="unknown where the entropy of the prediction exceeds half of log C",
    build=DANCE,
    options=DANCEOptions,
    idle=frozenset({"feature_size", "input_norm", "store_target"}),
)
