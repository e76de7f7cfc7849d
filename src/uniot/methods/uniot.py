"""UniOT: common-class detection by unbalanced transport, private-class discovery by balanced transport.

References:
    Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022, arXiv:2210.17067.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.base import Batch, FinalFeatures, Losses, Method, MethodInfo, unchanged
from uniot.methods.decision import Decision
from uniot.methods.fitted import FittedState, potential_tensors, read_potential
from uniot.methods.uniot_options import UniOTOptions
from uniot.nn.memory import FeatureQueue, nearest_neighbours
from uniot.nn.networks import ProjectionHead, Prototypes
from uniot.transport.filling import filled_potential
from uniot.transport.plan import UnbalancedPotential, balanced_plan
from uniot.transport.rows import Shards


def common_class_loss(logits: Tensor, classes: Tensor, detected: Tensor) -> Tensor:
    """Return the cross-entropy of the detected rows; zero if none is detected.

    Args:
        logits: (n, c), similarities divided by the temperature.
        classes: (n,), class that each row was transported to.
        detected: (n,), bool.

    Paper: Eq. (8).
    """
    # A batch may hold no common class at all; a mean over nothing would be NaN.
    return F.cross_entropy(logits[detected], classes[detected]) if bool(detected.any()) else logits.sum() * 0


def code_loss(logits: Tensor, codes: Tensor) -> Tensor:
    """Predict each sample's own cluster code. Paper: Eq. (11), (12)."""
    return F.cross_entropy(logits, codes)


def swapped_code_loss(logits: Tensor, neighbour_logits: Tensor, codes: Tensor, neighbour_codes: Tensor) -> Tensor:
    """Predict each sample's neighbour's cluster code, and the neighbour the sample's. Paper: Eq. (13)."""
    return (F.cross_entropy(logits, neighbour_codes) + F.cross_entropy(neighbour_logits, codes)) / 2


def private_class_loss(logits: Tensor, neighbour_logits: Tensor, codes: Tensor, neighbour_codes: Tensor) -> Tensor:
    """Return the mean of the global and the local loss; codes carry no gradient.

    Args:
        logits: (n, k), cosines of the anchors to the cluster prototypes divided by the temperature.
        neighbour_logits: (n, k), the same of their neighbours.
        codes: (n, k), rows that sum to one.
        neighbour_codes: (n, k).

    Paper: Eq. (14).
    """
    codes, neighbour_codes = codes.detach(), neighbour_codes.detach()
    local = swapped_code_loss(logits, neighbour_logits, codes, neighbour_codes)
    return (code_loss(logits, codes) + local) / 2


# The final rule decides thousands of samples at once, some of them close to the threshold.
_RULE_TOLERANCE = 1e-9


class UniOTMethod(Method):
    """The networks and the state of UniOT, and the losses of one step.

    Attributes:
        class_mass: β, moving average of the mass that each source class receives, (n_classes,).
        potential: class potential of the last step, from which the next one starts, (n_classes,).
        solved: transport of the whole target, which decides.
    """

    class_mass: Tensor
    potential: Tensor
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
        self.classes = Prototypes(n_classes, settings.feature_size)
        self.clusters = Prototypes(options.n_clusters, settings.feature_size)
        self.queue = FeatureQueue(settings.queue_size, settings.feature_size)
        self.register_buffer("class_mass", torch.full((n_classes,), 1 / n_classes, dtype=torch.float64))
        self.register_buffer("potential", torch.zeros(n_classes, dtype=torch.float64))
        self.solved = FittedState(potential_tensors, partial(read_potential, n_classes=n_classes))

    def features(self, inputs: Tensor) -> Tensor:
        """Return unit features, (n_samples, feature_size)."""
        features: Tensor = self.projection(self.backbone(inputs))
        return features

    @torch.no_grad()
    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Fill the queue before the first step, as the authors' code does."""
        self.queue.push(gather(self.features(target)), target_ids)

    def is_prepared(self) -> bool:
        """Whether the queue is full."""
        return bool((self.queue.ids >= 0).all())

    def step(self, batch: Batch) -> Losses:
        """Return the losses of source, common-class detection and private-class discovery. Paper: Eq. (15)."""
        embeddings = torch.cat([self.backbone(batch.source), self.backbone(batch.target)])
        own = self.projection(embeddings).float().split([len(batch.source), len(batch.target)])
        source, target = (batch.gather(features) for features in own)
        tau = self.options.temperature
        classification = F.cross_entropy(self.classes(source) / tau, batch.source_labels)
        private = self.private_class_loss(target, batch, embeddings[len(batch.source) :])
        common, detected = self.common_class_loss(target, batch)
        self.queue.push(target.detach(), batch.target_ids)
        return Losses(
            total=classification + self.options.adaptation_weight * (common + private),
            parts={"source": classification, "common": common, "private": private},
            detected=detected,
            notes={"detected": float("nan") if detected is None else float((detected >= 0).float().mean())},
            class_mass=self.class_mass,
        )

    def common_class_loss(self, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the cross-entropy of rows detected as common, and their classes, -1 for none. Paper: Eq. (4)–(9)."""
        # The authors' code waits until the class prototypes are informative.
        if batch.step <= self.options.detection_start:
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
        momentum = self.options.class_mass_momentum
        self.class_mass.mul_(momentum).add_(potential.class_confidence.to(target.device), alpha=1 - momentum)
        self.potential.copy_(potential.class_potential)
        loss = common_class_loss(cosines / self.options.temperature, assignment.nearest, is_common)
        return loss, torch.where(is_common, assignment.nearest, -1)

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return the loss of anchors and neighbours against balanced cluster codes. Paper: Eq. (10)–(14).

        `target` has the features of the whole batch, (b', feature_size); only variants use `embeddings`.
        """
        logits, neighbour_logits, codes, neighbour_codes = self.coded_pairs(target, batch)
        return private_class_loss(logits, neighbour_logits, codes, neighbour_codes)

    def coded_pairs(self, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the logits of anchors and of their neighbours, (b', K) each, and the balanced codes of both."""
        neighbours = nearest_neighbours(target, batch.target_ids, self.queue)
        picked = torch.randint(len(self.queue), (len(self.clusters.weight),), generator=batch.generator)
        cosines = self.clusters(torch.cat([target, neighbours]))
        with torch.no_grad():
            rows = torch.cat([cosines, self.clusters(self.queue.features[picked.to(target.device)])])
            plan = balanced_plan(rows, self.options.balanced_epsilon, self.options.balanced_iterations)
            codes, neighbour_codes = (plan * len(rows))[: len(cosines)].chunk(2)
        logits, neighbour_logits = (cosines / self.options.temperature).chunk(2)
        return logits, neighbour_logits, codes, neighbour_codes

    @torch.no_grad()
    def after_step(self) -> None:
        """Normalise the prototypes to unit length."""
        self.classes.renormalise()
        self.clusters.renormalise()

    def finalize(self, final: FinalFeatures) -> None:
        """Solve the transport of the whole target.

        Paper: the testing phase; the class is the row's largest entry, and there is no column test.
        """
        cosines = self._cosines(final.target)
        self.solved.value = self.transport(cosines, None, final.generator, _RULE_TOLERANCE, final.shards)

    def is_finalized(self) -> bool:
        """Whether the transport of the whole target is solved."""
        return self.solved.value is not None

    def decide(self, features: Tensor) -> Decision:
        """Decide by the mass that the plan gives to each class, in units of a row's mean mass."""
        solved, cosines = self.solved.get(), self._cosines(features)
        odds = solved.log_mass(cosines).exp() * solved.n_rows
        return Decision(odds, odds.max(dim=1).values >= 1 - solved.tolerance)

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
        old_prototypes, old_mass = weights.pop("classes.weight"), weights.pop("class_mass")
        same = (name for name in own.keys() & weights.keys() if weights[name].shape == own[name].shape)
        kept = {name: weights[name] for name in same if not name.startswith(("queue.", "potential"))}
        self.load_state_dict(kept, strict=False)
        prototypes, mass = own["classes.weight"].clone(), torch.full_like(self.class_mass, 1 / len(old_classes))
        for index, old in enumerate(old_classes):
            if old >= 0:
                prototypes[index], mass[index] = old_prototypes[old], old_mass[old]
            else:
                prototypes[index] = F.normalize(class_features(index).mean(dim=0), dim=0)
        with torch.no_grad():
            self.classes.weight.copy_(prototypes)
            self.class_mass.copy_(mass / mass.sum())

    def forget_samples(self) -> None:
        """Empty the queue."""
        self.queue.clear()

    def class_prototypes(self) -> Tensor:
        """Return unit rows, (n_classes, feature_size)."""
        return self.classes.weight.detach()

    def cluster_prototypes(self) -> Tensor:
        """Return unit rows, (K, feature_size)."""
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
        """Solve the filled unbalanced problem of these rows with the class mass learnt so far.

        Args:
            cosines: of samples to the class prototypes, (n, n_classes).
            counts: weight of each row, (n,); one each if None.
            generator: for adaptive filling.
            tolerance: accuracy of the solution.
            shards: adds over processes that hold a part of the rows each.

        Paper: Eq. (4).
        """
        return filled_potential(
            cosines,
            self.classes.weight.detach().to(cosines.dtype),
            self.class_mass,
            counts=counts,
            epsilon=self.options.epsilon,
            marginal_penalty=self.options.marginal_penalty,
            similarity_threshold=self.options.similarity_threshold,
            tolerance=tolerance,
            start=self.potential,
            generator=generator,
            shards=shards,
        )


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
