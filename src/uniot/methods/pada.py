"""PADA: adversarial alignment in which source classes that the target does not predict count little."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.losses.adversarial import domain_loss, reversal_strength, reversed_gradient
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks.discriminator import DomainDiscriminator
from uniot.settings import Settings

# A class that no target sample is predicted as keeps a trace: a batch of such classes alone would be 0 / 0.
_SMALLEST_WEIGHT = 1e-6


class PADAOptions(MethodOptions):
    """Hyper-parameters of PADA."""

    adversarial_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the domain loss.")
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminator's hidden layers.")
    temperature: float = Field(1.0, gt=0, le=100, description="Logits are divided by it before they weigh the classes.")
    refreshes: int = Field(24, ge=1, le=100_000, description="How often in a run the class weights are renewed.")


class PADA(HeadMethod):
    """DANN with a weight γ for each source class, in the cross-entropy and in the source's half of the domain loss.

    γ is the mean prediction over the target, divided by its largest entry (published: in the domain loss by the largest
    in the batch). It begins with ones and is renewed 24 times
    in a run (published: every 500 of 12 004 steps). The published code passes over the whole target for it; here it is
    the mean of the predictions since the last renewal, which the steps make anyway and which are of a sample of the
    target, or of all of it where it is small.

    Paper: Cao et al., Partial Adversarial Domain Adaptation, ECCV 2018, section 3.2.

    Attributes:
        class_weights: γ, (c,).
        predicted: sum of the predictions since the last renewal, (c,).
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
        """L = Σ γ_y CE(y, C(f_s)) / Σ γ_y + w · ½ [mean(γ_y · -log D(f_s)) + mean(-log(1 - D(f_t)))].

        D's gradient is reversed into f with a strength of 2 / (1 + exp(-10 p)) - 1, p the share of the run that is done
        (published: with p = step / 10 000).
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
        """Notes the predictions of a step, and makes weights of them when it is time."""
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
