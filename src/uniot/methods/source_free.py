"""Train a classifier on the source, then adapt it to the target without the source: the base of GLC, GLC++ and LEAD.

References:
    Qu et al., Upcycling Models under Domain and Category Shift, CVPR 2023, arXiv:2303.07110.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import SampleBank
from uniot.methods.base import Batch, Losses, Method, MethodOptions, unchanged
from uniot.methods.head import NormalisedHeadMethod
from uniot.methods.networks import WeightNormLinear
from uniot.methods.pseudo_labels import estimate_clusters, soft_labels

_NETWORKS = ("backbone.", "bottleneck.", "norm.", "classifier.")


def stage_rate(step: int, first: int, last: int, steps: int) -> float:
    """Return the factor by which a loss is multiplied so that the learning rate decays over a stage of its own.

    The training decays the rate as (1 + 10 step/steps)^-0.75 over the whole run; with the factor, it decays in the same
    way from `first` to `last`.

    Args:
        step: number of the step, from zero.
        first: first step of the stage.
        last: step after the last one of the stage.
        steps: number of steps of the run.
    """
    return float(((1 + 10 * (step - first) / (last - first)) / (1 + 10 * step / steps)) ** -0.75)


@dataclass(frozen=True)
class TargetBatch:
    """A target batch with what is stored about it; only `features` and `logits` carry gradients.

    Attributes:
        features: normalised with the statistics of the batch, (n, d).
        logits: of the frozen classifier, (n, c).
        labels: pseudo-label per sample, `n_classes` for unknown, (n,).
        rows: newest stored feature of each sample, or of its nearest stored one, (n, d).
        neighbours: stored features of the nearest other samples, (n, k, d).
    """

    features: Tensor
    logits: Tensor
    labels: Tensor
    rows: Tensor
    neighbours: Tensor


class SourceFreeOptions(MethodOptions):
    """Hyper-parameters that the source-free methods share, with the values published for Office-31."""

    source_share: float = Field(
        0.5, gt=0, le=1, description="Fraction of the steps that train the source model; the others adapt it."
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="Of the source labels.")
    target_rate: float = Field(
        0.1, gt=0, le=100, description="Learning rate of the adaptation, as a multiple of that of the source model."
    )
    pseudo_weight: float = Field(0.3, ge=0, le=1e3, description="Weight of the cross-entropy of pseudo-labels.")
    n_neighbours: int = Field(
        4, ge=1, le=1000, description="Number of stored neighbours whose predictions are averaged."
    )
    entropy_threshold: float = Field(
        0.55, gt=0, lt=1, description="Samples whose entropy is above this multiple of log C are unknown."
    )


class SourceFreeMethod(NormalisedHeadMethod):
    """Adapt a source model to the target without source samples; a subclass implements pseudo-labels and losses.

    Stage 1 trains bottleneck and classifier by cross-entropy with smoothed labels on the source alone. Stage 2 never
    reads the source: the classifier is frozen, and the bottleneck (with the backbone, if it is trained) learns from the
    target. A method that was given a source model by `load_source` has no stage 1.

    The bottleneck is a linear layer with batch normalisation. Training uses the statistics of a whole batch of one
    domain, prediction and stored features the running statistics, so that they do not depend on the batch.

    Attributes:
        bank: newest feature of each target sample, with its pseudo-label; at most `queue_size` samples.
        has_source_model: whether the weights are those of a source model from the start, a scalar.
        n_clusters: estimated number of target classes, a scalar.
        rounds: number of times that pseudo-labels were made, and the step of the last time, (2,).
        multiples: of the number of classes, candidates for the number of clusters.
        recount_every: rounds between two estimates of the number of clusters; None for a single estimate.
    """

    options: SourceFreeOptions
    classifier: WeightNormLinear
    has_source_model: Tensor
    n_clusters: Tensor
    rounds: Tensor
    is_filled: Tensor
    multiples: ClassVar[tuple[float, ...]] = (0.25, 0.5, 1, 2, 3)
    recount_every: ClassVar[int | None] = None

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: SourceFreeOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        bottleneck = nn.Linear(in_features, settings.feature_size)
        nn.init.xavier_normal_(bottleneck.weight)
        nn.init.zeros_(bottleneck.bias)
        self.bottleneck = bottleneck
        self.classifier = WeightNormLinear(settings.feature_size, n_classes)
        self.bank = SampleBank(self.queue_size, settings.feature_size)
        self.threshold.fill_(1 - options.entropy_threshold)
        self.register_buffer("has_source_model", torch.zeros((), dtype=torch.bool))
        self.register_buffer("n_clusters", torch.zeros((), dtype=torch.long))
        self.register_buffer("rounds", torch.zeros(2, dtype=torch.long))
        # Only `prepare` uses it, before the first step, so a checkpoint does not need it.
        self.register_buffer("is_filled", torch.zeros((), dtype=torch.bool), persistent=False)

    @property
    def source_steps(self) -> int:
        """Return the number of steps of stage 1."""
        return 0 if bool(self.has_source_model) else max(1, round(self.options.source_share * self.steps))

    def load_source(self, state: Mapping[str, Tensor]) -> None:
        """Take over the weights of a source model, so that every step of the run adapts it.

        Args:
            state: state_dict of a source-free method of the same sizes; only its networks are read.

        Raises:
            SettingsError: the networks have other names or sizes.
        """
        both = given, _ = _networks(state), _networks(self.state_dict())
        shapes, own = ({name: tuple(value.shape) for name, value in one.items()} for one in both)
        if shapes != own:
            wrong = sorted(name for name in shapes | own if shapes.get(name) != own.get(name))[0]
            raise SettingsError(
                f"the source model has {shapes.get(wrong, 'nothing')} for {wrong}, expected "
                f"{own.get(wrong, 'nothing')}. Give a source model that glc, glc-plus or lead trained with the same "
                "classes, backbone and feature_size."
            )
        self.load_state_dict(given, strict=False)
        self.has_source_model.fill_(True)

    def source_weights(self) -> dict[str, Tensor]:
        """Return copies of the networks' weights by name, for `load_source`."""
        return {name: value.clone() for name, value in _networks(self.state_dict()).items()}

    def is_prepared(self) -> bool:
        """Whether the bank is filled, or stage 1 will fill it."""
        return self.source_steps > 0 or bool(self.is_filled)

    @torch.no_grad()
    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Store the features of a target batch; all are stored when the bank is full or a sample comes again."""
        self.is_filled.fill_(bool(torch.isin(target_ids, self.bank.ids).any()))
        self.bank.put(gather(self.features(target).float()), target_ids)
        self.is_filled.logical_or_((self.bank.ids >= 0).all())

    def step(self, batch: Batch) -> Losses:
        """Return the losses of a step of stage 1, CE(smoothed y, C(f_s)), or of stage 2, those of the method."""
        is_source = batch.step < self.source_steps
        # Without a gradient the optimiser leaves a weight alone; weight decay would move it otherwise.
        self.classifier.requires_grad_(is_source)
        return self._source_step(batch) if is_source else self._target_step(batch)

    def loss_weights(self) -> dict[str, float]:
        """Return the weight of each loss of stage 2 by its name."""
        return {"pseudo": self.options.pseudo_weight, "neighbours": 1.0}

    def target_losses(self, target: TargetBatch) -> dict[str, Tensor]:
        """Return the losses of stage 2 by their names, scalars."""
        probabilities = self.classifier(target.neighbours).softmax(dim=2).mean(dim=1)
        return {
            "pseudo": F.cross_entropy(target.logits, soft_labels(target.labels, self.n_classes)),
            "neighbours": F.cross_entropy(target.logits, probabilities),
        }

    def pseudo_labels(self, features: Tensor, probabilities: Tensor) -> Tensor:
        """Return a pseudo-label per stored sample, `n_classes` for unknown, (n,).

        Args:
            features: unit rows, (n, d).
            probabilities: predictions of the classifier, (n, c).
        """
        raise NotImplementedError

    def forget_samples(self) -> None:
        """Clear the bank."""
        self.bank.clear()

    def _source_step(self, batch: Batch) -> Losses:
        source = self.project(batch.gather(self.backbone(batch.source).float()), learning=True)
        smoothing = self.options.label_smoothing
        loss = F.cross_entropy(self.classifier(source), batch.source_labels, label_smoothing=smoothing)
        left = self.source_steps - batch.step
        if left <= math.ceil(self.queue_size / len(batch.target_ids)):
            with torch.no_grad():
                self.bank.put(batch.gather(self.features(batch.target).float()), batch.target_ids)
        zero = loss.new_zeros(())
        return Losses(
            total=stage_rate(batch.step, 0, self.source_steps, self.steps) * loss,
            parts={"source": loss} | dict.fromkeys(self.loss_weights(), zero),
            notes={"clusters": 0.0},
        )

    def _target_step(self, batch: Batch) -> Losses:
        embeddings = batch.gather(self.backbone(batch.target).float())
        self._label_if_due(batch)
        features = self.project(embeddings, learning=True)
        with torch.no_grad():
            now = self.project(embeddings, learning=False)
            places, near = self._places(now, batch.target_ids)
        labels = self.bank.labels[places]
        losses = self.target_losses(
            TargetBatch(features, self.classifier(features), labels, self.bank.rows[places], self.bank.rows[near])
        )
        # A sample that was not stored takes over the pseudo-label of its nearest neighbour.
        self.bank.put(now, batch.target_ids, labels)
        total = torch.stack([weight * losses[name] for name, weight in self.loss_weights().items()]).sum()
        rate = self.options.target_rate * stage_rate(batch.step, self.source_steps, self.steps, self.steps)
        return Losses(
            total=rate * total,
            parts={"source": total.new_zeros(())} | losses,
            detected=torch.where(labels < self.n_classes, labels, -1),
            notes={"clusters": float(self.n_clusters)},
        )

    @torch.no_grad()
    def _label_if_due(self, batch: Batch) -> None:
        """Make pseudo-labels if as many samples as are stored were seen since the last time."""
        count, before = self.rounds.tolist()
        places = self.bank.filled()
        if count and batch.step - before < max(1, len(places) // len(batch.target_ids)):
            return
        rows, features = self.bank.rows[places], F.normalize(self.bank.rows[places], dim=1)
        if count == 0 or (self.recount_every and count % self.recount_every == 0):
            self.n_clusters.fill_(estimate_clusters(features, self.n_classes, self.multiples))
        self.bank.labels[places] = self.pseudo_labels(features, self.classifier(rows).softmax(dim=1))
        self.rounds.copy_(torch.tensor([count + 1, batch.step]))

    def _places(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the place of each sample in the bank, or of its neighbour, (n,), and of its neighbours, (n, k)."""
        stored = self.bank.ids
        similarity = F.normalize(features, dim=1) @ F.normalize(self.bank.rows, dim=1).t()
        is_own = stored == ids[:, None]
        # Cosines are at least -1: below them, a sample is its own neighbour only if there is no other.
        similarity = similarity.where(~is_own, -2).masked_fill(stored < 0, -torch.inf)
        most = max(1, int((stored >= 0).sum()) - 1)
        near = similarity.topk(min(self.options.n_neighbours, most), dim=1).indices
        return torch.where(is_own.any(dim=1), is_own.int().argmax(dim=1), near[:, 0]), near


def _networks(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the part of a state_dict that a source model has."""
    return {name: value for name, value in state.items() if name.startswith(_NETWORKS)}


def as_source_free(method: Method) -> SourceFreeMethod:
    """Return the method, which must be one that adapts a source model; raise SettingsError otherwise."""
    if not isinstance(method, SourceFreeMethod):
        raise SettingsError(f"{method.settings.method} cannot adapt a source model. Use glc, glc-plus or lead.")
    return method
