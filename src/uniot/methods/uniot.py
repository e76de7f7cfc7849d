"""UniOT: common-class detection by unbalanced transport, private-class discovery by balanced transport.

The losses are `uniot.losses.UniOTLoss`; here they meet the network, the training and the final rule.

References:
    Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022, arXiv:2210.17067.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import UniOTLoss, UniOTLosses, UniOTRule
from uniot.methods.base import Batch, FinalFeatures, Losses, Method, MethodInfo, MethodOptions, unchanged
from uniot.methods.decision import Decision
from uniot.methods.fitted import FittedState, potential_tensors, read_potential
from uniot.methods.networks import ProjectionHead

# Largest number of target samples for which a number of cluster prototypes is used.
_CLUSTERS = ((3500, 50), (10_000, 150), (100_000, 500))


class UniOTOptions(MethodOptions):
    """Hyper-parameters of UniOT, with the paper's values as defaults."""

    n_clusters: int | None = Field(
        None, ge=1, le=100_000, description="Number K of cluster prototypes; None derives it from the target's size."
    )
    hidden_size: int = Field(2048, ge=1, le=1_000_000, description="Width of the projection's hidden layer.")
    temperature: float = Field(0.1, ge=1e-3, le=100, description="τ; cosines are divided by it.")
    adaptation_weight: float = Field(0.1, ge=0, le=1e3, description="λ, weight of both target losses.")
    similarity_threshold: float = Field(
        0.7,
        ge=-1,
        le=1,
        description="γ, approximate threshold between positive and negative rows in adaptive filling.",
    )
    class_mass_momentum: float = Field(0.7, ge=0, le=1, description="μ, memory of the class mass β.")
    epsilon: float = Field(0.01, ge=1e-3, le=10, description="ε, entropy of the unbalanced transport.")
    marginal_penalty: float = Field(0.5, ge=0.05, le=1e3, description="κ, penalty on its marginals.")
    balanced_epsilon: float = Field(0.05, ge=1e-3, le=10, description="ε of the balanced transport.")
    balanced_iterations: int = Field(3, ge=1, le=10_000, description="Scaling steps of the balanced transport.")
    detection_start: int = Field(
        100, ge=0, le=10_000_000, description="Step after which common-class detection trains."
    )

    def resolved(self, n_target: int) -> UniOTOptions:
        """Return the same options with the number of clusters decided.

        It follows the paper: 50 up to 3 k samples (Office), 150 for 4 k (Office-Home), 500 for tens of thousands
        (VisDA), 1000 beyond; never more than a quarter of the samples.
        """
        clusters = next((k for limit, k in _CLUSTERS if n_target <= limit), 1000)
        return self.model_copy(update={"n_clusters": self.n_clusters or min(clusters, max(2, n_target // 4))})

    def step_warnings(self, steps: int) -> tuple[str, ...]:
        """Return a warning if common-class detection would never train."""
        first = self.detection_start + 2  # steps are counted from zero, and detection trains after that step
        if steps >= first:
            return ()
        return (
            f"common-class detection trains from step {first} on (detection_start = {self.detection_start}), and "
            f"this run ends with step {steps}, so it never does. Give more steps.",
        )


class UniOTMethod(Method):
    """The networks and the state of UniOT, and the losses of one step.

    Attributes:
        projection: maps embeddings to unit features.
        loss: the losses, with the prototypes of classes and clusters, the queue and the class mass β.
        solved: transport of the whole target, which decides.
    """

    has_transport = True

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        """Build the method with random weights.

        Args:
            in_features: width of an embedding, or of the backbone's output.
            n_classes: number of source classes.
            settings: resolved settings.
            options: resolved hyper-parameters of UniOT.
            backbone: maps inputs to embeddings; None if the inputs are embeddings.
        """
        super().__init__()
        if options.n_clusters is None or settings.queue_size is None:
            raise SettingsError("n_clusters and queue_size are not set. Give resolved_settings(settings, n_target).")
        self.settings, self.options = settings, options
        self.backbone = backbone or nn.Identity()
        self.projection = ProjectionHead(in_features, options.hidden_size, settings.feature_size)
        self.loss = UniOTLoss(
            n_classes,
            options.n_clusters,
            settings.feature_size,
            settings.queue_size,
            temperature=options.temperature,
            adaptation_weight=options.adaptation_weight,
            class_mass_momentum=options.class_mass_momentum,
            similarity_threshold=options.similarity_threshold,
            epsilon=options.epsilon,
            marginal_penalty=options.marginal_penalty,
            balanced_epsilon=options.balanced_epsilon,
            balanced_iterations=options.balanced_iterations,
            detection_start=options.detection_start,
        )
        self.solved = FittedState(potential_tensors, partial(read_potential, n_classes=n_classes))

    def features(self, inputs: Tensor) -> Tensor:
        """Return unit features, (n_samples, feature_size)."""
        features: Tensor = self.projection(self.backbone(inputs))
        return features

    @torch.no_grad()
    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Fill the queue before the first step, as the authors' code does."""
        self.loss.queue.push(gather(self.features(target)), target_ids)

    def is_prepared(self) -> bool:
        """Whether the queue is full."""
        return self.loss.queue.n_stored == len(self.loss.queue)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of source, common-class detection and private-class discovery. Paper: Eq. (15)."""
        embeddings = self.batch_embeddings(batch)
        own = self.projection(embeddings).float().split([len(batch.source), len(batch.target)])
        source, target = (batch.gather(features) for features in own)
        losses: UniOTLosses = self.loss(
            source,
            batch.source_labels,
            target,
            batch.target_ids,
            step=batch.step,
            generator=batch.generator,
            private=self.private_class_loss(target, batch, embeddings[len(batch.source) :]),
        )
        detected = losses.detected
        return Losses(
            total=losses.total,
            parts={"source": losses.classification, "common": losses.common, "private": losses.private},
            detected=detected,
            notes={"detected": float("nan") if detected is None else float((detected >= 0).float().mean())},
            class_mass=self.loss.common.class_mass,
        )

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor | None:
        """Return a loss in place of L_PCD, a scalar, for a variant; None for L_PCD.

        Args:
            target: features of the whole target batch, (b', feature_size).
            batch: has the sample ids and the random generator.
            embeddings: of the target batch, before the projection, (b', in_features).
        """
        return None

    @torch.no_grad()
    def after_step(self) -> None:
        """Normalise the prototypes to unit length."""
        self.loss.renormalise()

    def finalize(self, final: FinalFeatures) -> None:
        """Solve the transport of the whole target. Paper: the testing phase."""
        self.solved.value = self.loss.fit_rule(final.target, final.generator, shards=final.shards).potential

    def is_finalized(self) -> bool:
        """Whether the transport of the whole target is solved."""
        return self.solved.value is not None

    def decide(self, features: Tensor) -> Decision:
        """Decide by the mass that the plan gives to each class, in units of a row's mean mass."""
        rule = UniOTRule(self.class_prototypes(), self.solved.get())
        odds = rule.odds(features)
        return Decision(odds, rule.is_known(odds))

    def warm_start(self, before: Method, old_classes: Sequence[int], class_features: Callable[[int], Tensor]) -> None:
        """Take over networks, clusters, and prototype and mass of the classes that the earlier run had.

        A new class starts at the mean direction of its samples, with an even mass. The queue starts empty.
        """
        trained = before.trained_part()
        if not isinstance(trained, UniOTMethod):
            raise SettingsError(
                "only UniOT and UniNCM continue from weights that UniOT trained, and this run is of "
                f"{before.settings.method}. Start from random weights: with --names on the command line, without "
                "`start` in Python."
            )
        weights, own = dict(trained.state_dict()), self.state_dict()
        old_prototypes, old_mass = weights.pop("loss.classes.weight"), weights.pop("loss.common.class_mass")
        same = (name for name in own.keys() & weights.keys() if weights[name].shape == own[name].shape)
        kept = {name: weights[name] for name in same if not name.startswith(("loss.queue.", "loss.common.potential"))}
        self.load_state_dict(kept, strict=False)
        prototypes, mass = (
            own["loss.classes.weight"].clone(),
            torch.full_like(self.loss.common.class_mass, 1 / len(old_classes)),
        )
        for index, old in enumerate(old_classes):
            if old >= 0:
                prototypes[index], mass[index] = old_prototypes[old], old_mass[old]
            else:
                prototypes[index] = F.normalize(class_features(index).mean(dim=0), dim=0)
        with torch.no_grad():
            self.loss.classes.weight.copy_(prototypes)
            self.loss.common.class_mass.copy_(mass / mass.sum())

    def forget_samples(self) -> None:
        """Empty the queue."""
        self.loss.queue.clear()

    def class_prototypes(self) -> Tensor:
        """Return unit rows, (n_classes, feature_size)."""
        return self.loss.classes.weight.detach()

    def cluster_prototypes(self) -> Tensor:
        """Return unit rows, (K, feature_size)."""
        return self.loss.clusters.weight.detach()


INFO = MethodInfo(
    name="uniot",
    title="UniOT",
    source="Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022",
    rule="unknown if the transport gives no class more than a row's mean mass",
    build=UniOTMethod,
    options=UniOTOptions,
    can_continue=True,
    idle=frozenset({"store_target"}),
)
