"""Align the domains by a discriminator behind a gradient reversal (DANN).

References:
    Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, arXiv:1505.07818.
"""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import nn

from uniot.config import Settings
from uniot.losses import domain_loss, reversal_strength, reversed_gradient
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.methods.networks import DomainDiscriminator


class DANNOptions(MethodOptions):
    """Hyper-parameters of DANN."""

    adversarial_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the domain loss.")
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminator's hidden layers.")


class DANN(HeadMethod):
    """Adapt by cross-entropy on the source and a domain discriminator D behind a gradient reversal.

    The whole target is aligned with the whole source, including the private classes of both.

    Paper: Ganin et al., JMLR 2016, section 4.
    """

    options: DANNOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: DANNOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.discriminator = DomainDiscriminator(settings.feature_size, options.discriminator_size)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, C(f_s)) + w · ½ [mean(-log D(f_s)) + mean(-log(1 - D(f_t)))], D's gradient reversed into f.

        The strength of the reversal is 2 / (1 + exp(-10 p)) - 1 with p = step / steps, as published.
        """
        source, target = self.batch_features(batch)
        strength = reversal_strength(batch.step, self.steps)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        domains = domain_loss(
            *self.discriminator.of_domains(
                reversed_gradient(source, strength), reversed_gradient(target, strength), batch.generator
            ),
        )
        total = classification + self.options.adversarial_weight * domains
        return Losses(total, {"source": classification, "domain": domains})


INFO = MethodInfo(
    name="dann",
    title="DANN",
    source="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
    rule="unknown where the entropy of the prediction exceeds half of log C; DANN itself has no rule",
    build=DANN,
    options=DANNOptions,
)
