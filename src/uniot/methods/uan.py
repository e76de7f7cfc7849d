"""UAN: a weighted domain adversary, where samples count by how surely they are of a common class."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.losses.adversarial import domain_loss, reversal_strength, reversed_gradient
from uniot.losses.entropy import normalised_entropy
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks.discriminator import DomainDiscriminator
from uniot.settings import Settings


class UANOptions(MethodOptions):
    """Published values of UAN."""

    threshold: float = Field(-0.5, gt=-1, lt=1, description="w₀; a sample is unknown where its weight is below.")
    source_temperature: float = Field(
        10.0, gt=0, le=1e3, description="Logits of the source are divided by it before their entropy is taken."
    )
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminators' hidden layers.")
    faithful: bool = Field(
        False, description="Classify the source as the authors' code does, which takes the softmax twice."
    )


class UAN(HeadMethod):
    """Universal Adaptation Network. Paper: You et al., CVPR 2019.

    Two discriminators look at the features. D is the adversary. D' only watches: no gradient goes from it to the
    features, and its answer d' tells how much like the source a sample looks. With the normalised entropy
    Hn(p) = H(p) / log C, the weights of the samples are (paper: section 3.4)

        w_s(x) = Hn(p) - d'(x),    w_t(x) = d'(x) - Hn(p),

    scaled to [0, 1] and then to mean one within the batch, as the authors' code does. Source logits are divided by
    10 before, because a trained classifier is sure of all of them.
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
        # Weights are from -1 to 1, scores from 0 to 1.
        self.border = (options.threshold + 1) / 2

    def step(self, batch: Batch) -> Losses:
        """The losses of one step.

        L = CE(y, p_s) + mean(w_s · -log D(f_s)) + mean(w_t · -log(1 - D(f_t)))
          + mean(-log D'(f_s)) + mean(-log(1 - D'(f_t)))

        The features receive the gradient of D's terms with its sign turned. The strength of the reversal grows with
        step / steps; the authors ramp it over 10 000 of their 20 000 steps. Paper: section 3.3.
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
        # The shared loss takes the mean of both domains; the paper adds them.
        adversarial, watching = 2 * domain_loss(*judged, source_weights, target_weights), 2 * domain_loss(*watched)
        classified = source_logits.softmax(dim=1) if self.options.faithful else source_logits
        classification = F.cross_entropy(classified, batch.source_labels)
        return Losses(
            total=classification + adversarial + watching,
            parts={"source": classification, "adversarial": adversarial, "watching": watching},
        )

    def score(self, features: Tensor) -> Tensor:
        """(w_t + 1) / 2, so that the published border w₀ lies at (w₀ + 1) / 2. Paper: section 3.4."""
        return (source_likeness(self.watcher(features), self.classifier(features)) + 1) / 2


def source_likeness(domain_logits: Tensor, class_logits: Tensor) -> Tensor:
    """d' - Hn(p), (n,), from -1 to 1: large where a sample looks like the source and its class is clear."""
    return domain_logits.sigmoid() - normalised_entropy(class_logits)


def spread(weights: Tensor) -> Tensor:
    """Weights of a batch, (n,), scaled to [0, 1] and then to mean one; ones where they are all the same."""
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
