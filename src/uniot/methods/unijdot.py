"""Joint transport in which anchors take the target samples that a threshold calls unknown (UniJDOT).

References:
    Mussard et al., Deep Joint Distribution Optimal Transport for Universal Domain Adaptation on Time Series,
    arXiv:2503.11217.
    Yen et al., A New Criterion for Automatic Multilevel Thresholding, IEEE Transactions on Image Processing 4, 1995.
    Chapel et al., Unbalanced Optimal Transport through Non-negative Penalized Linear Regression, NeurIPS 2021,
    arXiv:2106.04145.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.discovery.kmeans import spherical_kmeans
from uniot.losses import Prototypes, SampleBank, anchored_joint_cost, anchored_transport_loss
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.decision import Decision
from uniot.methods.head import HeadMethod
from uniot.methods.networks import ProjectionHead
from uniot.transport.rows import check_finite

_BINS = 256
# A threshold strictly between 0 and 1, whatever the scores are.
_LEAST_THRESHOLD = 1e-6
# Enough for the loss of a step; the plan then differs little from that after a thousand iterations.
_STEP_ITERATIONS, _STEP_TOLERANCE = 100, 1e-5


def yen_threshold(values: Tensor) -> float:
    """Return the centre of the bin at which Yen's criterion of a histogram with 256 bins is largest.

    With p_i the fractions of the bins and P their sum up to a bin, the criterion is
    -log(Σ p_i² up to it · Σ p_i² after it) + 2 log(P (1 - P)).

    Args:
        values: (n,), at least one.
    """
    values = values.detach().double().flatten()
    low, high = float(values.min()), float(values.max())
    if low == high:
        return low
    counts = values.histc(_BINS, low, high)
    p = counts / counts.sum()
    below, above = p.square().cumsum(0)[:-1], p.square().flip(0).cumsum(0).flip(0)[1:]
    mass = p.cumsum(0)[:-1]
    criterion = 2 * (mass * (1 - mass)).log() - (below * above).log()
    # Without any mass on a side there is nothing to separate.
    best = int(criterion.nan_to_num(nan=-torch.inf, posinf=-torch.inf).argmax())
    return low + (best + 0.5) * (high - low) / _BINS


def penalised_plan(
    cost: Tensor,
    rows: Tensor,
    columns: Tensor,
    marginal_penalty: float = 0.5,
    *,
    iterations: int = 1000,
    tolerance: float = 1e-15,
) -> Tensor:
    """Solve unbalanced transport without entropy by majorisation-minimisation.

    Minimise ⟨γ, M⟩ + τ KL(γ 1 ‖ a) + τ KL(γᵀ 1 ‖ b).

    Args:
        cost: M, (n, m); used without gradient.
        rows: a, (n,).
        columns: b, (m,).
        marginal_penalty: τ.
        iterations: maximum number.
        tolerance: iterations end when the plan changes by less, as the root of the sum of squares.

    Returns:
        The plan γ, of the type of `cost`, (n, m).

    Raises:
        DataError: the cost is not finite.

    Paper: Chapel et al., NeurIPS 2021, majorisation-minimisation for the Kullback-Leibler divergence.
    """
    check_finite(cost, "cost")
    a, b = rows.double(), columns.double()
    kernel = (a[:, None] * b).sqrt() * (-cost.detach().double() / (2 * marginal_penalty)).exp()
    plan = a[:, None] * b
    for _ in range(iterations):
        # 10⁻¹⁶ as in POT: rows and columns may lose all of their mass.
        after = kernel * plan / ((plan.sum(dim=1)[:, None] * plan.sum(dim=0)).sqrt() + 1e-16)
        change, plan = float((after - plan).square().sum().sqrt()), after
        if change < tolerance:
            break
    return plan.to(cost)


def moved_anchors(anchors: Tensor, rows: Tensor, rate: float = 0.1) -> Tensor:
    """Return anchors, (k, d), after a batch: each moves towards the mean of its m nearest rows by 1 - (1 - rate)^m.

    Args:
        anchors: (k, d).
        rows: features of the target, (n, d).
        rate: for a single row.
    """
    nearest = F.one_hot(torch.cdist(rows, anchors).argmin(dim=1), len(anchors)).to(rows).t()
    counts = nearest.sum(dim=1, keepdim=True)
    means = nearest @ rows / counts.clamp_min(1)
    return anchors + (1 - (1 - rate) ** counts) * (means - anchors)


class UniJDOTOptions(MethodOptions):
    """Hyper-parameters of UniJDOT, with those of the authors' code for HAR and a convolutional network as defaults."""

    feature_weight: float = Field(2.8, ge=0, le=1e3, description="α, weight of distances of features in the cost.")
    label_weight: float = Field(1.35, ge=0, le=1e3, description="λ, weight of distances of labels in the cost.")
    source_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the source's cross-entropy.")
    n_clusters: int = Field(15, ge=1, le=10_000, description="Clusters of the target, which unknown samples move to.")
    memory_size: int = Field(10, ge=1, le=1000, description="Source features per class that a sample is compared with.")
    marginal_penalty: float = Field(0.5, ge=0.05, le=1e3, description="τ, weight of the penalties on both marginals.")
    temperature: float = Field(0.05, ge=1e-3, le=10, description="Cosines to class prototypes are divided by it.")
    pretraining: float = Field(0.5, ge=0, lt=1, description="Fraction of the steps on the source alone.")
    joint_score: bool = Field(True, description="Whether the score uses distances to source features as well.")


class UniJDOT(HeadMethod):
    """Adapt by joint transport of source samples to known samples and of cluster centres to unknown ones.

    A sample's score is the largest probability of softmax(s ⊙ logits), with s = softmax(-distances) of the distances to
    the nearest stored source feature of each class. In a batch, samples below Yen's threshold are unknown.

    Attributes:
        threshold: Yen's threshold of the whole target, a scalar, float64.
        source_features: unit features of the source, (n_classes, memory_size, d); the oldest is overwritten.
        counts: number of features that were stored per class, (n_classes,).
        anchors: centres of clusters of the target, (n_clusters, d).
        target_bank: recent embeddings of the target, from which the clusters are made; empty after the training.
    """

    options: UniJDOTOptions
    classifier: Prototypes
    source_features: Tensor
    counts: Tensor
    anchors: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniJDOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        width = settings.feature_size
        self.bottleneck = ProjectionHead(in_features, max(1, in_features // 2), width)
        self.classifier = Prototypes(n_classes, width)
        self.first = round(options.pretraining * self.steps)
        self.target_bank = SampleBank(self.queue_size, in_features)
        self.register_buffer("threshold", torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("source_features", torch.zeros(n_classes, options.memory_size, width))
        self.register_buffer("counts", torch.zeros(n_classes, dtype=torch.long))
        self.register_buffer("anchors", torch.zeros(options.n_clusters, width))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step: w CE(y, p_s), and after pretraining + half of ⟨γ, C⟩ over pairs that fit."""
        own = self.batch_embeddings(batch).float()
        source_rows, target_rows = map(batch.gather, own.split([len(batch.source), len(batch.target)]))
        source, labels = self.bottleneck(source_rows), batch.source_labels
        self.remember(source.detach(), labels)
        classification = F.cross_entropy(self.logits(source), labels)
        if batch.step < self.first:
            self.target_bank.put(target_rows.detach(), batch.target_ids)
            zero = source.new_zeros(())
            return Losses(classification, {"source": classification, "transport": zero}, notes={"unknown": 0.0})
        if batch.step == self.first:
            self.target_bank.put(target_rows.detach(), batch.target_ids)
            self.cluster(batch.generator)
        target = self.bottleneck(target_rows)
        self.anchors.copy_(moved_anchors(self.anchors, target.detach()))
        logits, options = self.logits(target), self.options
        score = self.score(target.detach())
        unknown = score < yen_threshold(score)
        cost = anchored_joint_cost(
            source, target, self.anchors, labels, logits, unknown, options.feature_weight, options.label_weight
        )
        transport = anchored_transport_loss(cost, self.plan(cost, len(source)), len(source), unknown)
        total = options.source_weight * classification + transport
        parts = {"source": classification, "transport": transport}
        return Losses(total, parts, notes={"unknown": float(unknown.double().mean())})

    def plan(self, cost: Tensor, n_source: int) -> Tensor:
        """Return the plan, (b + k, b'): half of the mass is that of the source samples, half that of the anchors."""
        n_anchors, n_target = len(cost) - n_source, cost.shape[1]
        rows = torch.cat([torch.full((n_source,), 0.5 / n_source), torch.full((n_anchors,), 0.5 / n_anchors)])
        columns, penalty = torch.full((n_target,), 1 / n_target), self.options.marginal_penalty
        on_cpu = cost.detach().cpu()
        plan = penalised_plan(on_cpu, rows, columns, penalty, iterations=_STEP_ITERATIONS, tolerance=_STEP_TOLERANCE)
        return plan.to(cost)

    @torch.no_grad()
    def remember(self, features: Tensor, labels: Tensor) -> None:
        """Store the features of a source batch, (b, d), by class; the oldest of a class are overwritten."""
        of_class = F.one_hot(labels, self.n_classes)
        before = (of_class.cumsum(dim=0) - of_class).gather(1, labels[:, None])[:, 0]
        size, new = self.source_features.shape[1], of_class.sum(dim=0)
        # Of more new features than places, only the last are stored, so that no place is written twice.
        kept = before >= new[labels] - size
        places = (self.counts[labels] + before) % size
        self.source_features[labels[kept], places[kept]] = features[kept]
        self.counts += new

    @torch.no_grad()
    def cluster(self, generator: torch.Generator) -> None:
        """Take the centres of clusters of the stored target embeddings as anchors, and forget the embeddings."""
        rows = self.bottleneck(self.target_bank.rows[self.target_bank.filled()]).cpu()
        n_clusters = min(self.options.n_clusters, len(rows))
        seed = int(torch.randint(2**31, (), generator=generator))
        centres = torch.from_numpy(spherical_kmeans(rows.numpy(), n_clusters, seed=seed).centres)
        # With fewer samples than clusters, a centre is an anchor several times.
        self.anchors.copy_(centres[torch.arange(self.options.n_clusters) % n_clusters])
        self.target_bank.clear()

    def after_step(self) -> None:
        """Normalise the class prototypes."""
        self.classifier.renormalise()

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Fit Yen's threshold to the scores of the whole target."""
        self.target_bank.clear()
        threshold = yen_threshold(self.score(final.whole_target()))
        self.threshold.fill_(min(max(threshold, _LEAST_THRESHOLD), 1 - _LEAST_THRESHOLD))

    def forget_samples(self) -> None:
        """Remove the embeddings of the target; stored source features are part of the rule and stay."""
        self.target_bank.clear()

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of unit features (n, d), (n, n_classes)."""
        cosines: Tensor = self.classifier(features)
        return cosines / self.options.temperature

    def score(self, features: Tensor) -> Tensor:
        """Return the largest probability of the joint score per sample, (n,); features: (n, d)."""
        logits = self.logits(features)
        if self.options.joint_score:
            logits = logits * self.closeness(features)
        return logits.softmax(dim=1).amax(dim=1)

    def closeness(self, features: Tensor) -> Tensor:
        """Return softmax(-distance to the nearest stored feature of each class), (n, n_classes)."""
        flat = self.source_features.flatten(0, 1)
        distances = (2 - 2 * features @ flat.t()).clamp_min(1e-12).sqrt().view(-1, *self.source_features.shape[:2])
        is_stored = torch.arange(self.source_features.shape[1], device=self.counts.device) < self.counts[:, None]
        # No class is nearer than two unit vectors can be far from each other before it has a feature.
        return (-distances.where(is_stored, 2.0).amin(dim=2)).softmax(dim=1)

    def decide(self, features: Tensor) -> Decision:
        """Decide for the class of the largest logit; known if the joint score is not below the threshold."""
        with torch.no_grad():
            return Decision.of(self.logits(features).softmax(dim=1), self.score(features), self.threshold)


INFO = MethodInfo(
    name="unijdot",
    title="UniJDOT",
    source="Mussard et al., Deep Joint Distribution Optimal Transport for Universal Domain Adaptation on Time Series, "
    "arXiv:2503.11217",
    rule="unknown if softmax(logits · closeness to the source features of each class) is below Yen's threshold of the "
    "target",
    build=UniJDOT,
    options=UniJDOTOptions,
    idle=frozenset({"store_target"}),
)
