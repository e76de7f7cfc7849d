"""Align the domains adversarially, with less weight on source classes that the target rarely predicts (PADA).

References:
    Cao et al., Partial Adversarial Domain Adaptation, ECCV 2018, arXiv:1808.04205.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import domain_loss, reversal_strength, reversed_gradient
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.methods.networks import DomainDiscriminator

# A batch of classes with zero weight would give 0 / 0 in the weighted cross-entropy.
_SMALLEST_WEIGHT = 1e-6


class PADAOptions(MethodOptions):
    """Hyper-parameters of PADA."""

    adversarial_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the domain loss.")
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminator's hidden layers.")
    temperature: float = Field(1.0, gt=0, le=100, description="Logits are divided by it before they weigh the classes.")
    refreshes: int = Field(24, ge=1, le=100_000, description="How often in a run the class weights are renewed.")


class PADA(HeadMethod):
    """Adapt as DANN does, with a weight γ per source class in the cross-entropy and in the source's domain loss.

    γ is the mean prediction over the target, divided by its largest entry (published: in the domain loss by the largest
    in the batch). It starts with ones and is updated 24 times per run (published: every 500 of 12 004 steps). The
    published code makes a pass over the whole target for each update; here γ is the mean of the predictions since the
    last update, which the steps compute anyway and which cover a sample of the target, or all of a small target.

    Paper: Cao et al., ECCV 2018, section 3.2.

    Attributes:
        class_weights: γ, (c,).
        predicted: sum of the predictions since the last update, (c,).
    """

    options: PADAOptions

    class_weights: Tensor
    predicted: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: PADAOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.discriminator = DomainDiscriminator(settings.feature_size, options.discriminator_size)
        self.register_buffer("class_weights", torch.ones(n_classes))
        self.register_buffer("predicted", torch.zeros(n_classes, dtype=torch.float64))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = Σ γ_y CE(y, C(f_s)) / Σ γ_y + w · ½ [mean(γ_y · -log D(f_s)) + mean(-log(1 - D(f_t)))].

        D's gradient is reversed into f with a strength of 2 / (1 + exp(-10 p)) - 1, p = step / steps (published:
        p = step / 10 000).
        """
        source, target = self.batch_features(batch)
        self._renew(self.classifier(target), batch.step)
        strength = reversal_strength(batch.step, self.steps)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels, weight=self.class_weights)
        domains = domain_loss(
            *self.discriminator.of_domains(
                reversed_gradient(source, strength), reversed_gradient(target, strength), batch.generator
            ),
            source_weights=self.class_weights[batch.source_labels],
        )
        return Losses(
            total=classification + self.options.adversarial_weight * domains,
            parts={"source": classification, "domain": domains},
            class_mass=self.class_weights / self.class_weights.sum(),
        )

    @torch.no_grad()
    def _renew(self, target_logits: Tensor, step: int) -> None:
        """Add the predictions of a step, and update the class weights if the step ends a period."""
        self.predicted += (target_logits / self.options.temperature).softmax(dim=1).sum(dim=0)
        between = max(1, self.steps // self.options.refreshes)
        if (step + 1) % between == 0:
            self.class_weights.copy_((self.predicted / self.predicted.max()).clamp_min(_SMALLEST_WEIGHT))
            self.predicted.zero_()


INFO = MethodInfo(
    name="pada",
    title="PADA",
    source="Cao et al., Partial Adversarial Domain Adaptation, ECCV 2018",
    rule="unknown where the entropy of the prediction exceeds half of log C; PADA itself has no rule",
    build=PADA,
    options=PADAOptions,
)
