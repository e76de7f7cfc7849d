"""ATI: assign and transform iteratively (Panareda Busto and Gall, ICCV 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.methods.decision import Decision
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks.sample_bank import SampleBank
from uniot.settings import Settings


class ATIOptions(MethodOptions):
    """Published values of ATI-λ."""

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
    """A linear map that moves class means: x ↦ xW with W = I + (coordinates)(shifts).

    Attributes:
        coordinates: (d, c), from a sample to how much of each class mean it holds.
        shifts: (c, d), from each class mean to where it goes.
    """

    coordinates: Tensor
    shifts: Tensor

    @classmethod
    def between(cls, means: Tensor, goals: Tensor, counts: Tensor) -> ClassTransform:
        """Of all W that minimise Σ_c n_c ‖S_c W - T_c‖², the nearest to the identity.

        That is where the authors' descent on W, which starts at the identity, ends.

        Args:
            means: S, (c, d).
            goals: T, (c, d), mean of the n_c target samples of each class; any where there are none.
            counts: n, (c,).
        """
        weights = counts.double().sqrt()[:, None]
        coordinates = torch.linalg.pinv(weights * means.double()) * weights.t()
        return cls(coordinates.to(means.dtype), goals - means)

    def __call__(self, rows: Tensor) -> Tensor:
        """Rows (n, d), transformed."""
        return rows + rows @ self.coordinates @ self.shifts


@dataclass(frozen=True)
class Alternation:
    """What assigning and transforming in turn ends with.

    Attributes:
        transform: of source samples.
        means: transformed class means, (c, d).
        outlier_cost: λ, the distance beyond which a target sample belongs to no class.
        rounds: how many transformations it took.
    """

    transform: ClassTransform
    means: Tensor
    outlier_cost: Tensor
    rounds: int


def alternate(
    means: Tensor, target: Tensor, outlier_share: float = 0.5, rounds: int = 6, tolerance: float = 1e-3
) -> Alternation:
    """Assigns target samples to class means or to none, moves the means to their samples, and so on while it helps.

    A sample T_t goes to the class of the smallest d_ct = ‖S_c W - T_t‖, or to none where that is above
    λ = ρ max d + (1 - ρ) min d over all classes and samples. W then minimises E² = Σ ‖S_c W - T_t‖² over the assigned.
    A round that does not lower E by more than the tolerance, as a share of E before the first W, is the last one, and
    does not count.

    As in the authors' code, distances are not squared and a class may be left without samples; the paper asks for at
    least one sample a class, but in universal adaptation the target may lack a source class. W is found from the
    original means in each round, which their code has as an option, and not from those of the round before.

    Args:
        means: S, (c, d).
        target: T, (n, d).
        outlier_share: ρ.
        rounds: at most so many transformations.
        tolerance: of E.

    Paper: Panareda Busto and Gall, Open Set Domain Adaptation, ICCV 2017, section 3.
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
    """A linear map takes the source to the target's known part; a linear classifier is trained on the mapped source.

    ATI has no network: it works on fixed features, here the embeddings or the output of a backbone that is not trained.
    In the first third of the steps the means of the source classes and the features of the target are collected (the
    latter of `queue_size` samples at most); then assignment and transformation alternate to their end, once; in the
    rest of the steps the classifier sees the source as the map takes it (before that, as it is). The map, the moved
    means and λ are saved with the weights, so that nothing is left to do when the training ends.

    The authors' linear SVM becomes a multi-class hinge loss with the weight decay of the training. They standardise
    the features and reduce them by PCA first; here they are as they come.

    Attributes:
        means: of the source classes, (c, d), and how many samples they are of: `counts`, (c,).
        moved_means: where the map takes them.
        outlier_cost: λ.
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
        """The backbone stays as it is in predictions: its features are fixed."""
        super().train(mode)
        self.backbone.eval()
        return self

    def step(self, batch: Batch) -> Losses:
        """L = mean over the source of Σ_{k ≠ y} max(0, 1 - C(xW)_y + C(xW)_k) / c. Paper: section 3."""
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
        """Takes a batch into the class means and into the memory of the target."""
        of_class = F.one_hot(labels, self.n_classes).to(source)
        self.counts += of_class.sum(dim=0)
        # Each mean moves towards the new samples by their share of all samples so far.
        shares = of_class / self.counts.clamp_min(1)
        self.means += shares.t() @ source - shares.sum(dim=0)[:, None] * self.means
        self.memory.put(target, target_ids)

    def assign_and_transform(self) -> None:
        """Fixes the map and λ from what was collected, and lets go of the target's features."""
        seen = self.counts > 0
        target = self.memory.rows[self.memory.filled()]
        options = self.options
        found = alternate(self.means[seen], target, options.outlier_share, options.rounds, options.tolerance)
        self.coordinates[:, seen] = found.transform.coordinates
        self.shifts[seen] = found.transform.shifts
        # A class of which no sample has come yet is far from everything.
        self.moved_means.fill_(torch.inf)
        self.moved_means[seen] = found.means
        self.outlier_cost.copy_(found.outlier_cost)
        self.memory.clear()

    def decide(self, features: Tensor) -> Decision:
        """The classifier names the class; unknown is what is farther than λ from every moved class mean."""
        with torch.no_grad():
            rows, means = features.double(), self.moved_means.double()
            least = torch.cdist(rows, means, compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1)
            cost = self.outlier_cost.double()
            # One half where the distance is λ.
            score = cost / (cost + least).clamp_min(torch.finfo(torch.float64).tiny)
            return Decision.of(self.classifier(features).softmax(dim=1), score, self.border)

    def forget_samples(self) -> None:
        """Empties the memory, which the end of the training finds empty already."""
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
