"""Transport a part of the target batch to source prototypes, and weight classes and samples by the plan (PPOT).

References:
    Yang et al., Prototypical Partial Optimal Transport for Universal Domain Adaptation, AAAI 2023, arXiv:2408.01089.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import weighted_entropy
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import NormalisedHeadMethod
from uniot.transport.partial import partial_plan

# A mass of zero cannot be transported. With this tolerance the plan is accurate to about one in a thousand.
_LEAST_ALPHA, _TOLERANCE = 0.01, 1e-4


def transport_loss(plan: Tensor, distances: Tensor) -> Tensor:
    """Return √⟨P, M⟩, a scalar, of a plan without gradient, (c, n), and squared distances, (c, n)."""
    # The root of zero has no finite gradient.
    return (plan.detach() * distances).sum().clamp_min(1e-12).sqrt()


def sample_weights(plan: Tensor, distances: Tensor, farthest: float = 0.25) -> tuple[Tensor, Tensor]:
    """Return the weight of each target sample as known and as unknown, (n,) each.

    The first is its share of the transported mass, with mean one. The second is one minus the first for the samples
    that are farthest from their nearest prototype, and zero for the others.

    Args:
        plan: (c, n).
        distances: of prototypes to samples, (c, n).
        farthest: fraction of the samples that may be unknown.
    """
    received = plan.sum(dim=0)
    known = received * (plan.shape[1] / received.sum())
    far = distances.amin(dim=0).topk(round(farthest * plan.shape[1])).indices
    return known, torch.zeros_like(known).index_copy(0, far, 1 - known[far])


def updated_class_weights(weights: Tensor, plan: Tensor, rate: float = 0.1) -> Tensor:
    """Return class weights of mean one after a batch, (c,), from those before it and a plan (c, n).

    They are a moving average of the mass that each class sends, measured in samples as in the authors' code.
    """
    moved = rate * plan.shape[1] * plan.sum(dim=1) + (1 - rate) * weights
    return moved * (len(moved) / moved.sum())


def moved_prototypes(prototypes: Tensor, features: Tensor, labels: Tensor, rate: float = 0.1) -> Tensor:
    """Return unit prototypes after a batch, (c, d), with gradients into the features; absent classes stay.

    Args:
        prototypes: before the batch, (c, d).
        features: unit rows of the source, (n, d).
        labels: class per row, (n,).
        rate: of the moving average.
    """
    of_class = F.one_hot(labels, len(prototypes)).to(features).t()
    counts = of_class.sum(dim=1, keepdim=True)
    means = torch.where(counts > 0, of_class @ features / counts.clamp_min(1), prototypes)
    return F.normalize((1 - rate) * prototypes + rate * means, dim=1)


class PPOTOptions(MethodOptions):
    """Hyper-parameters of PPOT, with the values of the authors' code as defaults."""

    threshold: float = Field(0.75, gt=0, lt=1, description="A sample is unknown if its largest probability is below.")
    transport_weight: float = Field(5.0, ge=0, le=1e3, description="Weight of the transport loss.")
    known_weight: float = Field(0.01, ge=0, le=1e3, description="Weight of the entropy of known samples, minimised.")
    unknown_weight: float = Field(2.0, ge=0, le=1e3, description="Weight of the entropy of unknown samples, maximised.")
    farthest: float = Field(0.25, gt=0, le=1, description="Fraction of a batch whose entropy may be maximised.")
    epsilon: float = Field(0.01, ge=1e-3, le=10, description="Entropic regularisation; the largest cost is 1.")
    confidence: float = Field(0.9, gt=0, lt=1, description="α is the fraction of samples that are this probable.")
    alpha_rate: float = Field(0.001, gt=0, le=1, description="Rate of the moving average of α.")
    beta_rate: float = Field(0.01, gt=0, le=1, description="Rate of the moving average of β.")
    rate: float = Field(0.1, gt=0, le=1, description="Rate of the moving averages of prototypes and class weights.")
    pretraining: float = Field(1 / 6, ge=0, lt=1, description="Fraction of the steps on the source alone.")
    rounds: int = Field(5, ge=1, le=1000, description="Times in a run that α is taken from recent batches.")


class PPOT(NormalisedHeadMethod):
    """Adapt by partial transport of mass α from the target batch to source prototypes of capacity α / (β c) each.

    α estimates the fraction of target samples, β the fraction of source classes that are common. The features are a
    linear layer, batch normalisation and ReLU, as in the authors' code; training uses the statistics of each domain's
    whole batch, prediction the running statistics of both. The target does not train the classifier.

    Attributes:
        prototypes: unit class prototypes, (c, d).
        class_weights: (c,), with mean one.
        shares: recent fraction of confident target samples, α and β, (3,).
    """

    options: PPOTOptions
    classifier: nn.Linear
    prototypes: Tensor
    class_weights: Tensor
    shares: Tensor

    def __init__(
        self, in_features: int, n_classes: int, settings: Settings, options: PPOTOptions, backbone: nn.Module | None
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.threshold.fill_(options.threshold)
        self.first = round(options.pretraining * self.steps)
        self.round_length = max(1, math.ceil((self.steps - self.first) / options.rounds))
        self.register_buffer("prototypes", torch.zeros(n_classes, settings.feature_size))
        self.register_buffer("class_weights", torch.ones(n_classes))
        self.register_buffer("shares", torch.zeros(3, dtype=torch.float64))

    def project(self, embeddings: Tensor, *, learning: bool) -> Tensor:
        """Return features, (n, feature_size), of embeddings (n, d); `learning` uses the statistics of these rows."""
        return super().project(embeddings, learning=learning).relu()

    def step(self, batch: Batch) -> Losses:
        """Return the losses: CE of the source, and after pretraining + 5 √⟨P, M⟩ + 0.01 mean(w H) - 2 mean(u H)."""
        own = self.batch_embeddings(batch).float()
        domains = own.split([len(batch.source), len(batch.target)])
        source, target = (self.project(batch.gather(rows), learning=True) for rows in domains)
        logits = F.linear(target, self.classifier.weight.detach(), self.classifier.bias.detach())
        units, labels = F.normalize(source, dim=1), batch.source_labels
        prototypes = moved_prototypes(self.prototypes, units, labels, self.options.rate)
        self.prototypes.copy_(prototypes.detach())
        self.update_alpha(logits.detach(), batch.step)
        transport = known = unknown = source.new_zeros(())
        if batch.step >= self.first:
            distances = 2 - 2 * prototypes @ F.normalize(target, dim=1).t()  # squared, of unit rows
            plan = self.plan(distances.detach())
            self.update_classes(plan)
            weights = sample_weights(plan, distances.detach(), self.options.farthest)
            known, unknown = (weighted_entropy(logits, of_kind) for of_kind in weights)
            transport = transport_loss(plan, distances)
        classification = F.cross_entropy(self.classifier(source), labels, self.class_weights)
        entropies = self.options.known_weight * known - self.options.unknown_weight * unknown
        return Losses(
            total=classification + self.options.transport_weight * transport + entropies,
            parts={"source": classification, "transport": transport, "known": known, "unknown": unknown},
            notes={"alpha": float(self.shares[1]), "beta": float(self.shares[2])},
            class_mass=self.class_weights / self.n_classes,
        )

    @torch.no_grad()
    def update_alpha(self, logits: Tensor, step: int) -> None:
        """Update α, from recent batches at the start of a round and slowly within it; β starts at the same value."""
        confident = float((logits.softmax(dim=1).amax(dim=1) >= self.options.confidence).double().mean())
        recent, alpha, beta = self.shares.tolist()
        recent += (1 if step == 0 else self.options.rate) * (confident - recent)
        is_start = step <= self.first or (step - self.first) % self.round_length == 0
        alpha = max(_LEAST_ALPHA, recent if is_start else alpha + self.options.alpha_rate * (confident - alpha))
        self.shares.copy_(self.shares.new_tensor([recent, alpha, alpha if step <= self.first else beta]))

    def plan(self, distances: Tensor) -> Tensor:
        """Return the transport plan, (c, n), of squared distances (c, n); their unit does not matter."""
        (_, alpha, beta), (c, n) = self.shares.tolist(), distances.shape
        rows, columns = torch.full((c,), alpha / beta / c), torch.full((n,), 1 / n)
        cost = distances / distances.max().clamp_min(1e-12)
        plan = partial_plan(-cost.double(), rows, columns, alpha, self.options.epsilon, tolerance=_TOLERANCE)
        return plan.matrix.to(distances)

    @torch.no_grad()
    def update_classes(self, plan: Tensor) -> None:
        """Update class weights and β, the fraction of classes of more than mean weight."""
        self.class_weights.copy_(updated_class_weights(self.class_weights, plan, self.options.rate))
        common = (self.class_weights > 1).double().mean()
        self.shares[2] += self.options.beta_rate * (common.to(self.shares) - self.shares[2])

    def score(self, features: Tensor) -> Tensor:
        """Return the largest class probability per sample, (n,); features: (n, d)."""
        return torch.amax(self.classifier(features).softmax(dim=1), dim=1)


INFO = MethodInfo(
    name="ppot",
    title="PPOT",
    source="Yang et al., Prototypical Partial Optimal Transport for Universal Domain Adaptation, AAAI 2023",
    rule="unknown if the largest class probability is below 0.75",
    build=PPOT,
    options=PPOTOptions,
    learning_rate=0.001,
)
