"""Align the domains adversarially, with more weight on samples that are likely of a common class (UAN).

References:
    You et al., Universal Domain Adaptation, CVPR 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import domain_loss, normalised_entropy, reversal_strength, reversed_gradient
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.methods.networks import DomainDiscriminator


class UANOptions(MethodOptions):
    """Hyper-parameters of UAN, with the published values as defaults."""

    threshold: float = Field(-0.5, gt=-1, lt=1, description="w₀; a sample is unknown where its weight is below.")
    source_temperature: float = Field(
        10.0, gt=0, le=1e3, description="Logits of the source are divided by it before their entropy is taken."
    )
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminators' hidden layers.")
    faithful: bool = Field(
        False, description="Classify the source as the authors' code does, which takes the softmax twice."
    )


class UAN(HeadMethod):
    """Adapt by a Universal Adaptation Network. Paper: You et al., CVPR 2019.

    There are two discriminators on the features. D is adversarial. D' is not: no gradient flows from it to the
    features, and its output d' measures the similarity of a sample to the source. With the normalised entropy
    Hn(p) = H(p) / log C, the weights of the samples are (paper: section 3.4)

        w_s(x) = Hn(p) - d'(x),    w_t(x) = d'(x) - Hn(p),

    scaled to [0, 1] and then to mean one within the batch, as in the authors' code. Source logits are divided by 10
    before, because a trained classifier is confident on all of them.
    """

    options: UANOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UANOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.adversary = DomainDiscriminator(settings.feature_size, options.discriminator_size)
        self.watcher = DomainDiscriminator(settings.feature_size, options.discriminator_size)
        # The published threshold is for weights in [-1, 1]; scores are in [0, 1].
        self.threshold.fill_((options.threshold + 1) / 2)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, p_s) + mean(w_s · -log D(f_s)) + mean(w_t · -log(1 - D(f_t)))
          + mean(-log D'(f_s)) + mean(-log(1 - D'(f_t)))

        The gradient of D's terms is reversed into the features. The strength of the reversal grows with step / steps;
        the authors ramp it over 10 000 of their 20 000 steps. Paper: section 3.3.
        """
        source, target = self.batch_features(batch)
        source_logits, target_logits = self.classifier(source), self.classifier(target)
        watched = self.watcher.of_domains(source.detach(), target.detach(), batch.generator)
        strength = reversal_strength(batch.step, self.steps)
        judged = self.adversary.of_domains(
            reversed_gradient(source, strength), reversed_gradient(target, strength), batch.generator
        )
        with torch.no_grad():
            source_weights = spread(-source_likeness(watched[0], source_logits / self.options.source_temperature))
            target_weights = spread(source_likeness(watched[1], target_logits))
        # The shared loss averages the domains; the paper adds them.
        adversarial, watching = 2 * domain_loss(*judged, source_weights, target_weights), 2 * domain_loss(*watched)
        classified = source_logits.softmax(dim=1) if self.options.faithful else source_logits
        classification = F.cross_entropy(classified, batch.source_labels)
        return Losses(
            total=classification + adversarial + watching,
            parts={"source": classification, "adversarial": adversarial, "watching": watching},
        )

    def score(self, features: Tensor) -> Tensor:
        """Return (w_t + 1) / 2 per sample, (n,); the published threshold w₀ becomes (w₀ + 1) / 2. Paper: section 3.4.

        Args:
            features: (n, d).
        """
        return (source_likeness(self.watcher(features), self.classifier(features)) + 1) / 2


def source_likeness(domain_logits: Tensor, class_logits: Tensor) -> Tensor:
    """Return d' - Hn(p) per sample, (n,), from -1 to 1: large if it resembles the source and has a certain class.

    Args:
        domain_logits: output of D', (n,).
        class_logits: (n, c).
    """
    return domain_logits.sigmoid() - normalised_entropy(class_logits)


def spread(weights: Tensor) -> Tensor:
    """Return the weights of a batch, (n,), scaled to [0, 1] and then to mean one; ones if they are all equal."""
    least, most = weights.min(), weights.max()
    if bool(most <= least):
        return torch.ones_like(weights)
    scaled = (weights - least) / (most - least)
    return scaled / scaled.mean()


INFO = MethodInfo(
    name="uan",
    title="UAN",
    source="You et al., Universal Domain Adaptation, CVPR 2019",
    rule="unknown where d' - H(p) / log C is below -0.5, d' being how surely a discriminator takes it for the source",
    build=UAN,
    options=UANOptions,
    learning_rate=0.001,
)
