"""UniOT: universal domain adaptation by two optimal transports (Chang et al., NeurIPS 2022).

source batch ─► feature ─► class prototypes ─────────────► L_cls
target batch ─► feature ─► unbalanced plan (+ queue, filling) ► common samples ► L_CCD
                      └──► balanced plan (+ neighbours, queue) ► codes ► L_PCD
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.errors import SettingsError
from uniot.losses import common_class_loss, private_class_loss
from uniot.methods.decision import Decision
from uniot.methods.method import Batch, FeaturesAsTheyAre, Losses, MethodInfo, MethodOptions, unchanged
from uniot.networks import FeatureQueue, ProjectionHead, Prototypes, nearest_neighbours
from uniot.settings import CheckedSettings, Settings
from uniot.stored_tensors import StoredTensors
from uniot.transport import Shards, UnbalancedPotential, balanced_plan, filled_potential

# The final rule decides thousands of samples at once, some of them close to the border.
_RULE_TOLERANCE = 1e-9


class _SolvedNumbers(CheckedSettings):
    """The numbers of a solved transport, as a run folder keeps them."""

    total_mass: float = Field(gt=0, allow_inf_nan=False, description="Of the plan before it is divided by it.")
    n_rows: int = Field(ge=1, lt=2**53, description="Rows of the problem.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Weight of the entropy.")
    marginal_penalty: float = Field(gt=0, allow_inf_nan=False, description="Penalty on the marginals.")
    tolerance: float = Field(ge=0, le=1, description="Accuracy of the solution.")
    converged: bool = Field(description="Whether the solver reached the tolerance.")
    passes: int = Field(ge=0, lt=2**53, description="Passes over the rows.")


class UniOTMethod(FeaturesAsTheyAre, nn.Module):
    """The networks and the state of UniOT, and the losses of one step."""

    class_mass: Tensor
    potential: Tensor
    solved: UnbalancedPotential | None = None
    """The transport of the whole target, which decides; None before the end of the training."""

    def __init__(self, in_features: int, n_classes: int, settings: Settings, backbone: nn.Module | None = None) -> None:
        """Builds the method with random weights.

        Args:
            in_features: width of an embedding, or of the backbone's output.
            n_classes: source classes.
            settings: resolved settings.
            backbone: from inputs to embeddings; nothing for embeddings.
        """
        super().__init__()
        if settings.n_clusters is None or settings.queue_size is None:
            raise SettingsError("n_clusters and queue_size are not decided. Give settings.resolved(n_target).")
        self.settings = settings
        self.backbone = backbone or nn.Identity()
        self.projection = ProjectionHead(in_features, settings.hidden_size, settings.feature_size)
        self.classes = Prototypes(n_classes, settings.feature_size)
        self.clusters = Prototypes(settings.n_clusters, settings.feature_size)
        self.queue = FeatureQueue(settings.queue_size, settings.feature_size)
        self.register_buffer("class_mass", torch.full((n_classes,), 1 / n_classes, dtype=torch.float64))
        self.register_buffer("potential", torch.zeros(n_classes, dtype=torch.float64))

    def features(self, inputs: Tensor) -> Tensor:
        """Inputs to unit features, (n, feature_size)."""
        features: Tensor = self.projection(self.backbone(inputs))
        return features

    @torch.no_grad()
    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Fills the queue before the first step, as the authors' code does."""
        self.queue.push(gather(self.features(target)), target_ids)

    def is_prepared(self) -> bool:
        """Whether the queue is full."""
        return bool((self.queue.ids >= 0).all())

    def step(self, batch: Batch) -> Losses:
        """Source classification, common-class detection and private-class discovery. Paper: Eq. (15)."""
        embeddings = torch.cat([self.backbone(batch.source), self.backbone(batch.target)])
        own = self.projection(embeddings).float().split([len(batch.source), len(batch.target)])
        source, target = (batch.gather(features) for features in own)
        tau = self.settings.temperature
        classification = F.cross_entropy(self.classes(source) / tau, batch.source_labels)
        private = self.private_class_loss(target, batch, embeddings[len(batch.source) :])
        common, detected = self.common_class_loss(target, batch)
        self.queue.push(target.detach(), batch.target_ids)
        return Losses(
            total=classification + self.settings.adaptation_weight * (common + private),
            parts={"source": classification, "common": common, "private": private},
            detected=detected,
            notes={"detected": float("nan") if detected is None else float((detected >= 0).float().mean())},
            class_mass=self.class_mass,
        )

    def common_class_loss(self, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Cross-entropy of the rows detected as common, and what they were detected as. Paper: Eq. (4)–(9)."""
        # The reference waits until the class prototypes mean something.
        if batch.step <= self.settings.detection_start:
            return target.new_zeros(()), None
        cosines = self.classes(target)
        rows = torch.cat([cosines.detach(), self.classes(self.queue.features).detach()])
        in_batch = rows.new_ones(len(target))
        # A sample of the queue, with replacement and as long as it, is a count on each of its rows.
        drawn = torch.randint(len(self.queue), (len(self.queue),), generator=batch.generator)
        from_queue = torch.bincount(drawn, minlength=len(self.queue)).to(rows)
        potential = self.transport(rows, torch.cat([in_batch, from_queue]), batch.generator)
        assignment = potential.assign(cosines.detach())
        is_common = assignment.known & potential.common_classes().to(target.device)[assignment.nearest]
        momentum = self.settings.class_mass_momentum
        self.class_mass.mul_(momentum).add_(potential.class_confidence.to(target.device), alpha=1 - momentum)
        self.potential.copy_(potential.class_potential)
        loss = common_class_loss(cosines / self.settings.temperature, assignment.nearest, is_common)
        return loss, torch.where(is_common, assignment.nearest, -1)

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Anchors and their neighbours learn balanced cluster codes. Paper: Eq. (10)–(14).

        Args:
            target: features of the whole target batch, (b', d).
            batch: of the step.
            embeddings: what the features of this process were made from; only variants look at it.
        """
        logits, neighbour_logits, codes, neighbour_codes = self.coded_pairs(target, batch)
        return private_class_loss(logits, neighbour_logits, codes, neighbour_codes)

    def coded_pairs(self, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits of anchors and of their neighbours, (b', K) each, and the balanced codes of both."""
        neighbours = nearest_neighbours(target, batch.target_ids, self.queue)
        picked = torch.randint(len(self.queue), (len(self.clusters.weight),), generator=batch.generator)
        cosines = self.clusters(torch.cat([target, neighbours]))
        with torch.no_grad():
            rows = torch.cat([cosines, self.clusters(self.queue.features[picked.to(target.device)])])
            plan = balanced_plan(rows, self.settings.balanced_epsilon, self.settings.balanced_iterations)
            codes, neighbour_codes = (plan * len(rows))[: len(cosines)].chunk(2)
        logits, neighbour_logits = (cosines / self.settings.temperature).chunk(2)
        return logits, neighbour_logits, codes, neighbour_codes

    @torch.no_grad()
    def after_step(self) -> None:
        """Brings the prototypes back to the sphere."""
        self.classes.renormalise()
        self.clusters.renormalise()

    def conclude(self, features: Tensor, generator: torch.Generator, shards: Shards | None = None) -> None:
        """Solves the test problem of the whole target.

        Paper: the testing phase; the class is the row's largest entry, and there is no column test.
        """
        self.solved = self.transport(self._cosines(features), None, generator, _RULE_TOLERANCE, shards)

    def decide(self, features: Tensor) -> Decision:
        """Shares are the masses that the plan gives to each class, in units of a row's mean mass."""
        if self.solved is None:
            raise SettingsError("this method has not been trained to its end. Train it first.")
        cosines = self._cosines(features)
        return Decision(self.solved.log_mass(cosines).exp() * self.solved.n_rows, self.solved.assign(cosines).known)

    def rule_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The solved transport."""
        assert self.solved is not None
        values = {part.name: getattr(self.solved, part.name) for part in fields(self.solved)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return tensors, {name: value for name, value in values.items() if name not in tensors}

    def load_rule_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Takes back the solved transport."""
        stored, n_classes = StoredTensors("the rule of the run", tensors), len(self.class_mass)
        self.solved = UnbalancedPotential(
            class_potential=stored.take("class_potential", (n_classes,), torch.float64),
            class_confidence=stored.take("class_confidence", (n_classes,), torch.float64),
            **_SolvedNumbers.checked(**about).model_dump(),
        )

    @torch.no_grad()
    def forget_samples(self) -> None:
        """Empties the queue."""
        self.queue.features.zero_()
        self.queue.ids.fill_(-1)
        self.queue.cursor.zero_()

    def class_prototypes(self) -> Tensor:
        """Unit rows, (c, d)."""
        return self.classes.weight.detach()

    def cluster_prototypes(self) -> Tensor:
        """Unit rows, (K, d)."""
        return self.clusters.weight.detach()

    @torch.no_grad()
    def _cosines(self, features: Tensor) -> Tensor:
        return features.double() @ self.classes.weight.double().t()

    @torch.no_grad()
    def transport(
        self,
        cosines: Tensor,
        counts: Tensor | None,
        generator: torch.Generator,
        tolerance: float = 1e-6,
        shards: Shards | None = None,
    ) -> UnbalancedPotential:
        """The filled unbalanced problem of these rows, with the class mass learnt so far. Paper: Eq. (4)."""
        return filled_potential(
            cosines,
            self.classes.weight.detach().to(cosines.dtype),
            self.class_mass,
            counts=counts,
            epsilon=self.settings.epsilon,
            marginal_penalty=self.settings.marginal_penalty,
            similarity_threshold=self.settings.similarity_threshold,
            tolerance=tolerance,
            start=self.potential,
            generator=generator,
            shards=shards,
        )


def _build(
    in_features: int, n_classes: int, settings: Settings, _options: MethodOptions, backbone: nn.Module | None
) -> UniOTMethod:
    return UniOTMethod(in_features, n_classes, settings, backbone)


INFO = MethodInfo(
    name="uniot",
    title="UniOT",
    source="Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022",
    rule="unknown where the transport gives no class more than a row's mean mass",
    build=_build,
)
