"""Weight samples by the entropy, confidence and disagreement of several classifiers (CMU).

References:
    Fu et al., Learning to Detect Open Classes for Universal Domain Adaptation, ECCV 2020.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import FeatureQueue, domain_loss, reversal_strength, reversed_gradient
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.methods.networks import DomainDiscriminator
from uniot.transport.rows import Shards

_CERTAINTIES = 3


class CMUOptions(MethodOptions):
    """Hyper-parameters of CMU, with the published values as defaults except for the perturbation."""

    threshold: float = Field(0.5, gt=0, lt=1, description="w₀; a sample is unknown where its score is below.")
    perturbation: float = Field(
        0.1,
        ge=0,
        le=10,
        description="Noise on the features that each classifier learns from, as a share of their norm.",
    )
    discriminator_size: int = Field(1024, ge=1, le=100_000, description="Width of the discriminator's hidden layers.")
    rounds: int = Field(
        20, ge=1, le=10_000, description="Times in a run that class weights and extremes of the target are taken anew."
    )


class CMU(HeadMethod):
    """Adapt adversarially, weighted by Calibrated Multiple Uncertainties. Paper: Fu et al., ECCV 2020.

    Five further classifiers G_1 … G_5 are trained on the features; no gradient flows from them to the features. With
    p_i the softmax of G_i, a target sample is more certain if its entropy is smaller, its confidence larger and the
    disagreement of the classifiers smaller (paper: section 3, multiple uncertainties):

        entropy = mean_i H(p_i) / log C,   confidence = mean_i max_c p_ic,   consistency = mean_c std_i p_ic

    Each of them is scaled to [0, 1] by its minimum and maximum over the target, and

        w_t(x) = ((1 - entropy) + (1 - consistency) + confidence) / 3.

    The weight of a source sample is the mean probability of its class over the target samples with w_t ≥ w₀, scaled to
    [0, 1] over the classes.

    Differences from the authors' code (its directory `new`): there the five classifiers are trained on five kinds of
    augmented images; embeddings cannot be augmented so, hence each is trained on its own random noise on the features,
    of a size that we chose. There classifiers and features are trained in turns of 500 and 1000 steps after a round of
    pretraining; here both are trained in every step, and in the first of the 20 rounds the features receive no
    adversarial gradient. There minima, maxima and class weights are taken from the whole target once per round; here
    from the latest `queue_size` target features. There the scores are scaled at test time alone; here in training too.
    The target terms of the adversarial loss have the weights of the target, as in the paper; the code uses those of the
    source. Their bottleneck and discriminator have batch normalisation.

    Attributes:
        class_weights: weight of each source class, (c,).
        least: minimum of each certainty over the target, (3,).
        most: maximum of each certainty over the target, (3,).
    """

    options: CMUOptions

    class_weights: Tensor
    least: Tensor
    most: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: CMUOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        heads = [nn.Linear(settings.feature_size, n_classes) for _ in _INITIALISATIONS]
        for head, initialise in zip(heads, _INITIALISATIONS, strict=True):
            initialise(head.weight)
        self.heads = nn.ModuleList(heads)
        self.adversary = DomainDiscriminator(settings.feature_size, options.discriminator_size)
        self.queue = FeatureQueue(self.queue_size, settings.feature_size)
        self.threshold.fill_(options.threshold)
        self.round_length = max(1, self.steps // options.rounds)
        self.register_buffer("class_weights", torch.ones(n_classes))
        self.register_buffer("least", torch.zeros(_CERTAINTIES))
        self.register_buffer("most", torch.ones(_CERTAINTIES))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, p_s) + sum_i CE(y, p_i of f_s with noise)
          + ½ mean(w_s · -log D(f_s)) + ½ mean(w_t · -log(1 - D(f_t)))

        The gradient of D's terms is reversed into the features, with a strength that grows with step / steps.
        """
        source, target = self.batch_features(batch)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        ensemble = self.ensemble_loss(source.detach(), batch)
        if batch.step > 0 and batch.step % self.round_length == 0:
            self.look_at_target()
        adversarial = self.adversarial_loss(source, target, batch)
        self.queue.push(target.detach(), batch.target_ids)
        return Losses(
            total=classification + ensemble + adversarial,
            parts={"source": classification, "ensemble": ensemble, "adversarial": adversarial},
        )

    def ensemble_loss(self, source: Tensor, batch: Batch) -> Tensor:
        """Return the sum of the five classifiers' cross-entropies, a scalar; each has its own noise on the features.

        Args:
            source: features without gradient, (b, d).
            batch: has the labels and the random generator.
        """
        noise = torch.randn(len(self.heads), *source.shape, generator=batch.generator).to(source)
        length = source.norm(dim=1, keepdim=True) / source.shape[1] ** 0.5
        varied = source + self.options.perturbation * length * noise
        losses = [
            F.cross_entropy(head(features), batch.source_labels)
            for head, features in zip(self.heads, varied, strict=True)
        ]
        return torch.stack(losses).sum()

    def adversarial_loss(self, source: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """Return the discriminator's loss, a scalar; source samples are weighted by class, target samples by score.

        Args:
            source: features, (b, d).
            target: features, (b', d).
            batch: has the labels, the step and the random generator.
        """
        # The scores of the first round are noise: the discriminator is trained, but no gradient reaches the features.
        strength = reversal_strength(max(0, batch.step - self.round_length), self.steps)
        judged = self.adversary.of_domains(
            reversed_gradient(source, strength), reversed_gradient(target, strength), batch.generator
        )
        with torch.no_grad():
            source_weights, target_weights = self.class_weights[batch.source_labels], self.score(target)
        return domain_loss(*judged, source_weights, target_weights)

    @torch.no_grad()
    def look_at_target(self) -> None:
        """Update the range of the certainties and the class weights from the queue."""
        features = self.queue.features[self.queue.ids >= 0]
        self._set_extremes(self.certainties(features), None)
        sure = self.score(features) >= self.threshold
        # A mean over no certain samples would be NaN; the earlier weights are kept.
        if not bool(sure.any()):
            return
        share = self.classifier(features[sure]).softmax(dim=1).mean(dim=0)
        self.class_weights.copy_((share - share.min()) / (share.max() - share.min()).clamp_min(1e-12))

    def certainties(self, features: Tensor) -> Tensor:
        """Return negative entropy, confidence and negative disagreement of the classifiers per sample, (n, 3)."""
        log_p = torch.stack([head(features) for head in self.heads]).log_softmax(dim=2)
        p = log_p.exp()
        entropy = -(p * log_p).sum(dim=2).mean(dim=0)
        confidence = p.max(dim=2).values.mean(dim=0)
        consistency = p.std(dim=0).mean(dim=1)
        return torch.stack([-entropy, confidence, -consistency], dim=1)

    def score(self, features: Tensor) -> Tensor:
        """Return w_t per sample, (n,), from 0 to 1, with the latest range of the certainties; features: (n, d)."""
        width = (self.most - self.least).clamp_min(1e-12)
        return ((self.certainties(features) - self.least) / width).clamp(0, 1).mean(dim=1)

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Fit the range of the certainties to the whole target; it is kept for new samples."""
        self._set_extremes(self.certainties(final.target), final.shards)

    def forget_samples(self) -> None:
        """Clear the queue."""
        self.queue.clear()

    def _set_extremes(self, certainties: Tensor, shards: Shards | None) -> None:
        extremes = torch.stack([certainties.min(dim=0).values, certainties.max(dim=0).values])
        if shards is not None:
            of_each = extremes.new_zeros(shards.count, *extremes.shape)
            of_each[shards.rank] = extremes
            of_each = shards.add(of_each)
            extremes = torch.stack([of_each[:, 0].min(dim=0).values, of_each[:, 1].max(dim=0).values])
        self.least.copy_(extremes[0])
        self.most.copy_(extremes[1])


def _as_it_is(weight: Tensor) -> Tensor:
    """Return the weights unchanged, for a layer that keeps its default initialisation."""
    return weight


def _wide_xavier(weight: Tensor) -> Tensor:
    return nn.init.xavier_uniform_(weight, gain=nn.init.calculate_gain("relu"))


def _kaiming_uniform(weight: Tensor) -> Tensor:
    return nn.init.kaiming_uniform_(weight, nonlinearity="relu")


# Different initialisations make the classifiers disagree on samples that the source does not determine.
_INITIALISATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    _as_it_is,
    _wide_xavier,
    nn.init.xavier_normal_,
    _kaiming_uniform,
    nn.init.kaiming_normal_,
)


INFO = MethodInfo(
    name="cmu",
    title="CMU",
    source="Fu et al., Learning to Detect Open Classes for Universal Domain Adaptation, ECCV 2020",
    rule="unknown where entropy, confidence and agreement of five classifiers, scaled over the target, are below 0.5",
    build=CMU,
    options=CMUOptions,
    idle=frozenset({"store_target"}),
)
