"""Reject by the entropy of a nearest-class-mean classifier whose temperature is calibrated on held-out source classes.

References:
    Deng and Jia, Universal Domain Adaptation from Foundation Models: A Baseline Study, arXiv:2305.11092.
    Guo et al., On Calibration of Modern Neural Networks, ICML 2017, arXiv:1706.04599.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import normalised_entropy
from uniot.methods.base import Batch, FinalFeatures, Losses, Method, MethodInfo, MethodOptions
from uniot.methods.decision import Decision
from uniot.methods.fitted import GivenPrototypes

# Cosines are at most 1, so that a temperature of 1 leaves every prediction almost flat; a trained CLIP has 0.01.
_BOUNDS = 0.01, 1.0
# Keeps logits finite if the margins of the target vanish.
_LEAST = 1e-3


def calibration_loss(cosines: Tensor, classes: Tensor, kept: Tensor, temperature: Tensor) -> Tensor:
    """Compute the loss of a temperature T, a scalar, if only some classes are known.

    With p = softmax(cosines / T) over the k known classes, it is the sum of the mean of -log p_y over their samples,
    the difference of the mean confidence max p and the accuracy on these samples, and the mean of max p - 1/k over the
    samples of other classes, zero if there are none.

    Args:
        cosines: of labelled samples to the prototypes, (n, c).
        classes: class index per sample, (n,).
        kept: indices of the known classes, (k,).
        temperature: T, a positive scalar.
    """
    labels = torch.full((cosines.shape[1],), -1).scatter(0, kept, torch.arange(len(kept)))[classes]
    known = labels >= 0
    log_p = F.log_softmax(cosines[:, kept] / temperature, dim=1)
    confidence, nearest = log_p.exp().max(dim=1)
    accuracy = (nearest == labels)[known].to(log_p).mean()
    loss = F.nll_loss(log_p[known], labels[known]) + (confidence[known].mean() - accuracy).abs()
    return loss if bool(known.all()) else loss + confidence[~known].mean() - 1 / len(kept)


def draw_half(n_classes: int, generator: torch.Generator) -> Tensor:
    """Return the indices of a random half of the classes, rounded up and at least two, because one has no rival."""
    return torch.randperm(n_classes, generator=generator)[: max(2, (n_classes + 1) // 2)]


def fit_temperature(cosines: Tensor, classes: Tensor, halves: Sequence[Tensor]) -> float:
    """Return the temperature from 0.01 to 1 with the least mean `calibration_loss` over several halves."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        temperature = cosines.new_tensor(math.exp(log_temperature))
        return sum(float(calibration_loss(cosines, classes, half, temperature)) for half in halves) / len(halves)

    return math.exp(float(minimize_scalar(loss, bounds=[math.log(bound) for bound in _BOUNDS], method="bounded").x))


def margins(cosines: Tensor) -> Tensor:
    """Return the largest cosine minus the mean cosine per sample, (n,); cosines: (n, c)."""
    return cosines.max(dim=1).values - cosines.mean(dim=1)


def expected_margin(cosines: Tensor, classes: Tensor) -> Tensor:
    """Return the mean margin, a scalar, of a target without shift in which every second sample is unknown.

    Each labelled sample counts twice: as it is, and without the prototype of its class.

    Args:
        cosines: of labelled samples to the prototypes, (n, c).
        classes: class index per sample, (n,).
    """
    n, c = cosines.shape
    others = cosines[~F.one_hot(classes, c).bool()].view(n, c - 1)
    return (margins(cosines).mean() + margins(others).mean()) / 2


class CalibratedOptions(MethodOptions):
    """Hyper-parameters of the baseline."""

    n_halves: int = Field(16, ge=1, le=1000, description="Random halves of the classes that are held out in turn.")
    follows_target: bool = Field(
        True, description="Whether the temperature falls with the margins between classes in the target."
    )


class Calibrated(Method):
    """Classify by the nearest prototype, with logits cosine / T. The temperature T is fitted to the source.

    Attributes:
        prototypes: unit rows, (n_classes, n_features): class means, or what the user gave; zero before `finalize`.
        temperature: T, a scalar, float64; zero before `finalize`.
        classifier: trains the backbone by cross-entropy on the source; None if the embeddings are given.
    """

    has_own_space = True
    prototypes: Tensor
    temperature: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: CalibratedOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.options = settings, options
        self.classifier = None if backbone is None else nn.Linear(in_features, n_classes)
        self.backbone = backbone or nn.Identity()
        self.register_buffer("prototypes", torch.zeros(n_classes, in_features))
        self.register_buffer("temperature", torch.zeros((), dtype=torch.float64))
        self._given: GivenPrototypes | None = None

    def use_prototypes(self, given: GivenPrototypes) -> None:
        """Compare samples with these prototypes, or with the mean of them and the class means."""
        self._given = given

    def features(self, inputs: Tensor) -> Tensor:
        """Return the embeddings, (n_samples, in_features)."""
        return torch.flatten(self.backbone(inputs), 1)

    def step(self, batch: Batch) -> Losses:
        """Return the cross-entropy of the source, which trains the backbone."""
        if self.classifier is None:
            raise SettingsError("there is nothing to train: the embeddings are given. Take no step.")
        source = batch.gather(self.features(batch.source).float())
        loss = F.cross_entropy(self.classifier(source), batch.source_labels)
        return Losses(loss, {"source": loss})

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Compute the prototypes, class means or what was given, and fit the temperature."""
        rows = F.normalize(final.source, dim=1)
        assert final.class_sums is not None
        sums, counts = final.class_sums.sums.sum(dim=0), final.class_sums.counts.sum(dim=0)
        means = F.normalize(sums, dim=1)
        given, weight = (means, 0.0) if self._given is None else (self._given.rows, self._given.weight)
        self.prototypes.copy_(F.normalize(weight * given + (1 - weight) * means, dim=1))
        cosines = self.cosines(rows)
        if weight < 1:
            # Nothing is left of a class with one sample if that is taken away.
            others = F.normalize(sums[final.classes] - rows * (counts[final.classes] > 1)[:, None], dim=1)
            own = F.normalize(weight * given[final.classes] + (1 - weight) * others, dim=1)
            cosines.scatter_(1, final.classes[:, None], (rows * own).sum(dim=1, keepdim=True))
        halves = [draw_half(len(self.prototypes), final.generator) for _ in range(self.options.n_halves)]
        temperature = fit_temperature(cosines, final.classes, halves)
        if self.options.follows_target:
            mean = float(margins(self.cosines(final.whole_target())).mean())
            # Shift makes margins smaller; larger ones only mean that few samples are unknown.
            ratio = min(1.0, mean / max(float(expected_margin(cosines, final.classes)), 1e-12))
            temperature = max(_LEAST, ratio * temperature)
        self.temperature.fill_(temperature)

    def is_finalized(self) -> bool:
        """Whether the temperature is fitted."""
        return bool(self.temperature > 0)

    def cosines(self, features: Tensor) -> Tensor:
        """Return the cosines to the prototypes, (n_samples, n_classes), float64."""
        return F.normalize(features.double(), dim=1) @ self.prototypes.double().t()

    def decide(self, features: Tensor) -> Decision:
        """Decide for the nearest prototype; unknown iff H(p) > log(C) / 2, with p = softmax(cosines / T)."""
        with torch.no_grad():
            logits = self.cosines(features) / self.temperature
            return Decision.of(logits.softmax(dim=1), 1 - normalised_entropy(logits), 0.5)

    def class_prototypes(self) -> Tensor:
        """Return unit rows, (n_classes, n_features)."""
        return self.prototypes

    def trained_part(self) -> Method | None:
        """Return this method if its backbone was trained, else None."""
        return None if self.classifier is None else self


INFO = MethodInfo(
    name="calibrated",
    title="Calibrated source",
    source="Deng and Jia, Universal Domain Adaptation from Foundation Models: A Baseline Study, arXiv:2305.11092, "
    "its calibration without its text classifier",
    rule="unknown if the entropy of the prediction, at a temperature calibrated on held-out classes of the source, "
    "exceeds half of log C",
    build=Calibrated,
    options=CalibratedOptions,
    is_closed_form=True,
    idle=frozenset({"queue_size", "store_target", "feature_size"}),
)
