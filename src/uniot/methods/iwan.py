"""Align the domains adversarially, with more weight on source samples that resemble the target (IWAN).

References:
    Zhang et al., Importance Weighted Adversarial Nets for Partial Domain Adaptation, CVPR 2018, arXiv:1803.09210.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import domain_loss, entropy, reversal_strength, reversed_gradient
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.methods.networks import DomainDiscriminator


class IWANOptions(MethodOptions):
    """Hyper-parameters of IWAN."""

    adversarial_weight: float = Field(3.0, ge=0, le=1e3, description="Weight of the weighted domain loss.")
    weigher_weight: float = Field(
        4.5, ge=0, le=1e3, description="Weight of the loss of the discriminator that gives the weights."
    )
    entropy_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the entropy of target predictions.")
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminators' hidden layers.")


class IWAN(HeadMethod):
    """Adapt by two discriminators, one that weights source samples and one that aligns them, and by target entropy.

    Source and target share one bottleneck, as in the Transfer-Learning-Library, whose loss weights and learning rate
    are the defaults (its script for Office-31 has a lower learning rate, 0.0003, for ten times the steps); its
    bottleneck has batch normalisation and ReLU. The paper has a network per domain and freezes that of the source
    during the adaptation.

    Paper: Zhang et al., CVPR 2018, section 3.
    """

    options: IWANOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: IWANOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.weigher = DomainDiscriminator(settings.feature_size, options.discriminator_size)
        self.discriminator = DomainDiscriminator(settings.feature_size, options.discriminator_size)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, C(f_s)) + 4.5 L_D + 3 L_D0 + 0.1 mean H(C(f_t)).

        L_D = ½ [mean(-log D(f_s)) + mean(-log(1 - D(f_t)))] trains D alone, not the features.
        L_D0 = ½ [mean(w · -log D0(f_s)) + mean(-log(1 - D0(f_t)))] with w = (1 - D(f_s)) / mean(1 - D(f_s)); its
        gradient is reversed into f with a strength of 2 / (1 + exp(-10 p)) - 1, p = step / steps (published:
        p = step / 10 000, the length of a run there).
        """
        source, target = self.batch_features(batch)
        strength = reversal_strength(batch.step, self.steps)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        weighing = domain_loss(*self.weigher.of_domains(source.detach(), target.detach(), batch.generator))
        domains = domain_loss(
            *self.discriminator.of_domains(
                reversed_gradient(source, strength), reversed_gradient(target, strength), batch.generator
            ),
            source_weights=self.source_weights(source),
        )
        uncertainty = entropy(self.classifier(target)).mean()
        total = (
            classification
            + self.options.weigher_weight * weighing
            + self.options.adversarial_weight * domains
            + self.options.entropy_weight * uncertainty
        )
        parts = {"source": classification, "weigher": weighing, "domain": domains, "entropy": uncertainty}
        return Losses(total, parts)

    @torch.no_grad()
    def source_weights(self, source: Tensor) -> Tensor:
        """Return (1 - D(f)) / mean(1 - D(f)) per source sample, (b,); source: features, (b, d).

        They are computed without dropout; the published code has its noise in the weights.
        """
        # Logarithms avoid 0 / 0 if D is certain about the whole batch.
        return F.logsigmoid(-self.weigher(source)).softmax(dim=0) * len(source)


INFO = MethodInfo(
    name="iwan",
    title="IWAN",
    source="Zhang et al., Importance Weighted Adversarial Nets for Partial Domain Adaptation, CVPR 2018",
    rule="unknown where the entropy of the prediction exceeds half of log C; IWAN itself has no rule",
    build=IWAN,
    options=IWANOptions,
    learning_rate=0.001,
)
