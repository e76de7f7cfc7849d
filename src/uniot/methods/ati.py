"""Assign and transform iteratively (ATI): a linear map takes the source classes to the target samples assigned to them.

References:
    Panareda Busto and Gall, Open Set Domain Adaptation, ICCV 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import SampleBank
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.decision import Decision
from uniot.methods.head import HeadMethod


class ATIOptions(MethodOptions):
    """Hyper-parameters of ATI-λ, with the published values as defaults."""

    outlier_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="ρ; leaving a sample over costs λ, this share of the way from the least distance to the largest.",
    )
    rounds: int = Field(6, ge=1, le=1000, description="Assignments and transformations at most.")
    tolerance: float = Field(
        1e-3, ge=0, le=1, description="A round that brings the assigned less than this share nearer is the last."
    )


@dataclass(frozen=True)
class ClassTransform:
    """Move class means by a linear map: x ↦ xW with W = I + (coordinates)(shifts).

    Attributes:
        coordinates: maps a sample to its coordinates in terms of the class means, (d, c).
        shifts: displacement of each class mean, (c, d).
    """

    coordinates: Tensor
    shifts: Tensor

    @classmethod
    def between(cls, means: Tensor, goals: Tensor, counts: Tensor) -> ClassTransform:
        """Fit the map: of all W that minimise Σ_c n_c ‖S_c W - T_c‖², the nearest to the identity.

        The authors' gradient descent on W starts at the identity and converges to the same W.

        Args:
            means: S, (c, d).
            goals: T, mean of the n_c target samples of each class, (c, d); ignored for a class without samples.
            counts: n, (c,).

        Returns:
            The map.
        """
        weights = counts.double().sqrt()[:, None]
        coordinates = torch.linalg.pinv(weights * means.double()) * weights.t()
        return cls(coordinates.to(means.dtype), goals - means)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the transformed rows, (n, d), of rows (n, d)."""
        return rows + rows @ self.coordinates @ self.shifts


@dataclass(frozen=True)
class Alternation:
    """The result of `alternate`.

    Attributes:
        transform: map of source samples.
        means: transformed class means, (c, d).
        outlier_cost: λ, the distance beyond which a target sample belongs to no class.
        rounds: number of transformations that were made.
    """

    transform: ClassTransform
    means: Tensor
    outlier_cost: Tensor
    rounds: int


def alternate(
    means: Tensor, target: Tensor, outlier_share: float = 0.5, rounds: int = 6, tolerance: float = 1e-3
) -> Alternation:
    """Assign target samples to class means or to none, move the means to their samples, and repeat while it helps.

    A sample T_t goes to the class of the smallest d_ct = ‖S_c W - T_t‖, or to none if that distance is above
    λ = ρ max d + (1 - ρ) min d over all classes and samples. W then minimises E² = Σ ‖S_c W - T_t‖² over the assigned
    samples. The first round that does not lower E by more than the tolerance, relative to E before the first W, ends
    the search and is discarded.

    As in the authors' code, distances are not squared and a class may have no samples; the paper requires at least one
    sample per class, but in universal adaptation the target may lack a source class. W is fitted from the original
    means in each round, which is an option of their code, and not from those of the round before.

    Args:
        means: S, (c, d).
        target: T, (n, d).
        outlier_share: ρ.
        rounds: largest number of transformations.
        tolerance: smallest relative decrease of E that counts.

    Returns:
        The map, the moved means, λ and the number of rounds.

    Paper: Panareda Busto and Gall, ICCV 2017, section 3.
    """
    transform, moved, done = ClassTransform(means.new_zeros(means.shape[1], len(means)), means * 0), means, 0
    unmoved, lowest = None, torch.inf
    while True:
        distances = torch.cdist(target, moved)
        least, nearest = distances.min(dim=1)
        cost = outlier_share * distances.max() + (1 - outlier_share) * distances.min()
        if done == rounds:
            break
        is_close = least <= cost
        close, nearest = target[is_close], nearest[is_close]
        belongs = F.one_hot(nearest, len(means)).to(target)
        counts = belongs.sum(dim=0)
        found = ClassTransform.between(means, belongs.t() @ close / counts.clamp_min(1)[:, None], counts)
        unmoved = unmoved or float((means[nearest] - close).norm())
        energy = float((found(means)[nearest] - close).norm())
        if energy >= lowest - tolerance * unmoved:
            break
        transform, moved, lowest, done = found, found(means), energy, done + 1
    return Alternation(transform, moved, cost, done)


class ATI(HeadMethod):
    """Adapt by a linear map from the source to the target's known part; train a linear classifier on the mapped source.

    ATI has no network: it works on fixed features, here the embeddings or the output of a backbone that is not trained.
    The first third of the steps collects the means of the source classes and the target features (of at most
    `queue_size` samples); then assignment and transformation alternate once until they converge; for the remaining
    steps the classifier is trained on the mapped source (before that, on the original source). The map, the moved means
    and λ are saved with the weights, so that nothing is left to fit after the last step.

    The authors' linear SVM becomes a multi-class hinge loss with the weight decay of the training. They standardise the
    features and reduce them by PCA first; here they are used unchanged.

    Attributes:
        means: means of the source classes, (c, d).
        counts: number of samples behind each mean, (c,).
        coordinates: of the map, (d, c).
        shifts: of the map, (c, d).
        moved_means: transformed class means, (c, d).
        outlier_cost: λ, a scalar.
    """

    options: ATIOptions

    means: Tensor
    counts: Tensor
    coordinates: Tensor
    shifts: Tensor
    moved_means: Tensor
    outlier_cost: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: ATIOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.turning_step = self.steps // 3
        self.bottleneck = nn.Identity()
        self.classifier = nn.Linear(in_features, n_classes)
        self.memory = SampleBank(self.queue_size, in_features)
        self.register_buffer("means", torch.zeros(n_classes, in_features))
        self.register_buffer("counts", torch.zeros(n_classes))
        self.register_buffer("coordinates", torch.zeros(in_features, n_classes))
        self.register_buffer("shifts", torch.zeros(n_classes, in_features))
        self.register_buffer("moved_means", torch.zeros(n_classes, in_features))
        self.register_buffer("outlier_cost", torch.zeros(()))

    def train(self, mode: bool = True) -> ATI:
        """Return this module after setting its mode; the backbone stays in evaluation mode: its features are fixed."""
        super().train(mode)
        self.backbone.eval()
        return self

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = mean over the source of Σ_{k ≠ y} max(0, 1 - C(xW)_y + C(xW)_k) / c. Paper: section 3.
        """
        with torch.no_grad():
            source, target = self.batch_features(batch)
            if batch.step <= self.turning_step:
                self.collect(source, batch.source_labels, target, batch.target_ids)
            if batch.step == self.turning_step:
                self.assign_and_transform()
            mapped = ClassTransform(self.coordinates, self.shifts)(source)
        loss = F.multi_margin_loss(self.classifier(mapped), batch.source_labels)
        return Losses(loss, {"source": loss})

    def collect(self, source: Tensor, labels: Tensor, target: Tensor, target_ids: Tensor) -> None:
        """Add a batch to the class means and to the memory of the target.

        Args:
            source: features, (b, d).
            labels: class per source sample, (b,).
            target: features, (b', d).
            target_ids: sample id per target sample, (b',).
        """
        of_class = F.one_hot(labels, self.n_classes).to(source)
        self.counts += of_class.sum(dim=0)
        # A running mean: earlier samples are not stored.
        shares = of_class / self.counts.clamp_min(1)
        self.means += shares.t() @ source - shares.sum(dim=0)[:, None] * self.means
        self.memory.put(target, target_ids)

    def assign_and_transform(self) -> None:
        """Fit the map and λ to the collected samples, then clear the memory of the target."""
        seen = self.counts > 0
        target = self.memory.rows[self.memory.filled()]
        options = self.options
        found = alternate(self.means[seen], target, options.outlier_share, options.rounds, options.tolerance)
        self.coordinates[:, seen] = found.transform.coordinates
        self.shifts[seen] = found.transform.shifts
        # A class without samples has no mean; an infinite one is nearest to nothing.
        self.moved_means.fill_(torch.inf)
        self.moved_means[seen] = found.means
        self.outlier_cost.copy_(found.outlier_cost)
        self.memory.clear()

    def decide(self, features: Tensor) -> Decision:
        """Decide for the class of the largest logit; unknown if every moved class mean is farther away than λ.

        Args:
            features: (n, d).

        Returns:
            The decision; its score is λ / (λ + distance to the nearest moved mean), (n,).
        """
        with torch.no_grad():
            rows, means = features.double(), self.moved_means.double()
            least = torch.cdist(rows, means, compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1)
            cost = self.outlier_cost.double()
            # The score is one half, the threshold, if the distance is λ.
            score = cost / (cost + least).clamp_min(torch.finfo(torch.float64).tiny)
            return Decision.of(self.classifier(features).softmax(dim=1), score, self.threshold)

    def forget_samples(self) -> None:
        """Clear the memory, which is already empty after a complete training."""
        self.memory.clear()


INFO = MethodInfo(
    name="ati",
    title="ATI",
    source="Panareda Busto and Gall, Open Set Domain Adaptation, ICCV 2017",
    rule="unknown where the nearest transformed class mean is farther than λ, half-way from the least distance to the "
    "largest",
    build=ATI,
    options=ATIOptions,
)
