"""UniOT's losses: common-class detection (L_CCD), private-class discovery (L_PCD), their sum with L_cls; prediction.

Every loss here is a `torch.nn.Module` that needs nothing but features, labels and sample ids, so that it fits into any
training loop; `examples/plain_torch_uniot.py` is one. `UniOTLoss.fit_rule` labels the target after the training.

References:
    Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022, arXiv:2210.17067.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.errors import DataError
from uniot.losses.memory import FeatureQueue, nearest_neighbours
from uniot.losses.prototypes import Prototypes
from uniot.transport import Shards, UnbalancedPotential, balanced_plan, filled_potential, unbalanced_potential

# The final rule decides thousands of samples at once, some of them close to the threshold.
_RULE_TOLERANCE = 1e-9
# Largest distance of a feature's norm from one; under autocast a norm has the 8 bits of bfloat16.
_NORM_TOLERANCE, _AUTOCAST_NORM_TOLERANCE = 1e-3, 1e-2


def common_class_detection_loss(logits: Tensor, classes: Tensor, is_common: Tensor) -> Tensor:
    """Return L_CCD, the mean cross-entropy of the common rows, a scalar; zero if there is none.

    L_CCD = -mean over common i of log softmax(logits_i)[classes_i]

    Args:
        logits: similarities to the class prototypes divided by the temperature, (n, c).
        classes: class that each row was transported to, (n,).
        is_common: whether each row was detected as common, (n,), bool.

    Paper: Eq. (8).

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> loss = common_class_detection_loss(logits, torch.tensor([0, 0]), torch.tensor([True, False]))
        >>> round(float(loss), 4)
        0.1269
    """
    # A batch may hold no common class at all; a mean over nothing would be NaN.
    return F.cross_entropy(logits[is_common], classes[is_common]) if bool(is_common.any()) else logits.sum() * 0


def code_loss(logits: Tensor, codes: Tensor) -> Tensor:
    """Return L_global, a scalar: each sample predicts its own cluster code.

    L_global = -mean_i Σ_k codes_ik log softmax(logits_i)_k

    Args:
        logits: cosines to the cluster prototypes divided by the temperature, (n, k).
        codes: rows of the balanced transport plan, each scaled to sum to one, (n, k).

    Paper: Eq. (11), (12).

    Example:
        >>> round(float(code_loss(torch.zeros(3, 4), torch.full((3, 4), 0.25))), 4)  # log 4
        1.3863
    """
    return F.cross_entropy(logits, codes)


def swapped_code_loss(logits: Tensor, neighbour_logits: Tensor, codes: Tensor, neighbour_codes: Tensor) -> Tensor:
    """Return L_local, a scalar: each sample predicts the cluster code of its neighbour, and the neighbour the sample's.

    L_local = ½ [CE(neighbour_codes, softmax(logits)) + CE(codes, softmax(neighbour_logits))]

    With two views of a sample in place of a sample and its neighbour, it is the loss of SwAV.

    Args:
        logits: of the samples, (n, k).
        neighbour_logits: of their neighbours, (n, k).
        codes: of the samples, rows that sum to one, (n, k).
        neighbour_codes: of their neighbours, (n, k).

    Paper: Eq. (13).

    Example:
        >>> logits, other = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 3.0]])
        >>> first, second = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> agree = swapped_code_loss(logits, logits, first, first)
        >>> differ = swapped_code_loss(logits, other, first, second)
        >>> bool(agree < differ)
        True
    """
    return (F.cross_entropy(logits, neighbour_codes) + F.cross_entropy(neighbour_logits, codes)) / 2


def private_class_discovery_loss(
    logits: Tensor,
    neighbour_logits: Tensor,
    codes: Tensor,
    neighbour_codes: Tensor,
    global_weight: float = 0.5,
    local_weight: float = 0.5,
) -> Tensor:
    """Return L_PCD = global_weight · L_global + local_weight · L_local, a scalar; no gradient flows through the codes.

    Both weights are ½ in the paper.

    Args:
        logits: cosines of the samples to the cluster prototypes divided by the temperature, (n, k).
        neighbour_logits: the same of their neighbours, (n, k).
        codes: cluster codes of the samples, rows that sum to one, (n, k).
        neighbour_codes: cluster codes of the neighbours, (n, k).
        global_weight: weight of `code_loss`.
        local_weight: weight of `swapped_code_loss`.

    Paper: Eq. (14).

    Example:
        >>> logits, codes = torch.zeros(5, 4), torch.eye(4)[[0, 1, 2, 3, 0]]
        >>> round(float(private_class_discovery_loss(logits, logits, codes, codes)), 4)  # log 4
        1.3863
    """
    codes, neighbour_codes = codes.detach(), neighbour_codes.detach()
    local = swapped_code_loss(logits, neighbour_logits, codes, neighbour_codes)
    return global_weight * code_loss(logits, codes) + local_weight * local


class CommonClassDetectionLoss(nn.Module):
    """L_CCD: cross-entropy of the target samples that unbalanced transport detects as common.

    The batch and a sample of the queue are transported to the class prototypes, after adaptive filling. A sample is
    common if its row receives at least the mean mass of a row and its class at least the mean mass of a class.

    This is for training; to label the target use `UniOTLoss.fit_rule`.

    Attributes:
        class_mass: β, moving average of the mass that each class receives, (n_classes,).
        potential: class potential of the last problem, from which the next one starts, (n_classes,).

    Paper: Eq. (4)–(9).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> prototypes, queue = Prototypes(3, 8), FeatureQueue(20, 8)
        >>> queue.push(F.normalize(torch.randn(20, 8), dim=1), torch.arange(20))
        >>> l_ccd = CommonClassDetectionLoss(n_classes=3)
        >>> loss, detected = l_ccd(F.normalize(torch.randn(4, 8), dim=1), prototypes, queue)
        >>> loss.shape, detected.shape
        (torch.Size([]), torch.Size([4]))
    """

    class_mass: Tensor
    potential: Tensor

    def __init__(
        self,
        n_classes: int,
        *,
        temperature: float = 0.1,
        class_mass_momentum: float = 0.7,
        epsilon: float = 0.01,
        marginal_penalty: float = 0.5,
        similarity_threshold: float = 0.7,
        fills: bool = True,
    ) -> None:
        """Start with a uniform class mass.

        Args:
            n_classes: number of source classes.
            temperature: τ; cosines are divided by it.
            class_mass_momentum: μ of the moving average of the class mass.
            epsilon: ε, weight of the entropy in the unbalanced transport.
            marginal_penalty: κ, weight of the penalties on its marginals.
            similarity_threshold: γ, threshold between positive and negative rows in adaptive filling.
            fills: whether the problem is filled; without filling it is the paper's ablation L_CCD†.
        """
        super().__init__()
        self.temperature, self.class_mass_momentum = temperature, class_mass_momentum
        self.epsilon, self.marginal_penalty = epsilon, marginal_penalty
        self.similarity_threshold, self.fills = similarity_threshold, fills
        self.register_buffer("class_mass", torch.full((n_classes,), 1 / n_classes, dtype=torch.float64))
        self.register_buffer("potential", torch.zeros(n_classes, dtype=torch.float64))

    def forward(
        self, target: Tensor, prototypes: Prototypes, queue: FeatureQueue, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, a scalar, and the class of each detected sample, -1 for the others, (n,); update β.

        For training only: the result is random and depends on the batch, and β is updated in eval mode as well. To
        label the target use `UniOTLoss.fit_rule`.

        Args:
            target: unit features of a target batch, (n, d).
            prototypes: of the classes.
            queue: features of earlier batches; it must be full.
            generator: random generator on the CPU; None for torch's default one.

        Raises:
            DataError: the features have the wrong width, dtype or norm, or the queue is not full.
        """
        _check_features(target, prototypes, "target")
        queue.require_full()
        generator = torch.default_generator if generator is None else generator
        cosines: Tensor = prototypes(target)
        rows = torch.cat([cosines.detach(), prototypes(queue.features).detach()])
        in_batch = rows.new_ones(len(target))
        # To draw as many rows as the queue has, with replacement, is to weight each row by how often it was drawn.
        drawn = torch.randint(len(queue), (len(queue),), generator=generator)
        from_queue = torch.bincount(drawn, minlength=len(queue)).to(rows)
        counts = torch.cat([in_batch, from_queue])
        potential = self.solve(rows, prototypes, generator, counts=counts, fills=self.fills)
        assignment = potential.assign(cosines.detach())
        is_common = assignment.known & potential.common_classes().to(target.device)[assignment.nearest]
        momentum = self.class_mass_momentum
        # Eq. (9): β ← μ β + (1 − μ) · the column sums of the plan divided by its total.
        self.class_mass.mul_(momentum).add_(potential.class_confidence.to(target.device), alpha=1 - momentum)
        self.potential.copy_(potential.class_potential)
        loss = common_class_detection_loss(cosines / self.temperature, assignment.nearest, is_common)
        return loss, torch.where(is_common, assignment.nearest, -1)

    @torch.no_grad()
    def solve(
        self,
        cosines: Tensor,
        prototypes: Prototypes,
        generator: torch.Generator | None = None,
        *,
        counts: Tensor | None = None,
        tolerance: float = 1e-6,
        fills: bool = True,
        shards: Shards | None = None,
    ) -> UnbalancedPotential:
        """Return the solution of the unbalanced transport of samples to classes, with the class mass learnt so far.

        β stays as it is. `UniOTLoss.fit_rule` is this problem for the whole target.

        Args:
            cosines: of samples to the class prototypes, (n, n_classes).
            prototypes: of the classes.
            generator: random generator of adaptive filling, on the CPU; None for torch's default one.
            counts: number of times that each row counts, (n,); once each if None.
            tolerance: accuracy of the solution.
            fills: whether the problem is filled.
            shards: adds over processes that hold a part of the rows each.

        Returns:
            The solution, `uniot.transport.UnbalancedPotential`: its `assign` gives the class of each sample and whether
            it is known, its `log_mass` the rows of the plan, its `class_confidence` the column sums.

        Paper: Eq. (4).
        """
        if not fills:
            return unbalanced_potential(
                cosines,
                self.class_mass,
                self.epsilon,
                self.marginal_penalty,
                tolerance,
                row_counts=counts,
                start=self.potential,
            )
        return filled_potential(
            cosines,
            prototypes.weight.detach().to(cosines.dtype),
            self.class_mass,
            counts=counts,
            epsilon=self.epsilon,
            marginal_penalty=self.marginal_penalty,
            similarity_threshold=self.similarity_threshold,
            tolerance=tolerance,
            start=self.potential,
            generator=torch.default_generator if generator is None else generator,
            shards=shards,
        )


class PrivateClassDiscoveryLoss(nn.Module):
    """L_PCD: target samples and their nearest neighbours predict each other's cluster codes.

    The codes are the balanced transport of the batch, its neighbours and a sample of the queue to the cluster
    prototypes, so that no cluster takes all samples.

    Paper: Eq. (10)–(14).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> prototypes, queue = Prototypes(5, 8), FeatureQueue(20, 8)
        >>> queue.push(F.normalize(torch.randn(20, 8), dim=1), torch.arange(20))
        >>> l_pcd = PrivateClassDiscoveryLoss()
        >>> loss = l_pcd(F.normalize(torch.randn(4, 8), dim=1), torch.tensor([20, 21, 22, 23]), prototypes, queue)
        >>> loss.shape
        torch.Size([])
    """

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        epsilon: float = 0.05,
        iterations: int = 3,
        global_weight: float = 0.5,
        local_weight: float = 0.5,
    ) -> None:
        """Set the hyper-parameters; the module has no weights.

        Args:
            temperature: τ; cosines are divided by it.
            epsilon: weight of the entropy in the balanced transport.
            iterations: scaling steps of the balanced transport.
            global_weight: weight of L_global (`code_loss`).
            local_weight: weight of L_local (`swapped_code_loss`).
        """
        super().__init__()
        self.temperature, self.epsilon, self.iterations = temperature, epsilon, iterations
        self.global_weight, self.local_weight = global_weight, local_weight

    def forward(
        self,
        target: Tensor,
        target_ids: Tensor,
        prototypes: Prototypes,
        queue: FeatureQueue,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the loss, a scalar.

        Args:
            target: unit features of a target batch, (n, d).
            target_ids: index of each sample in the target, (n,).
            prototypes: of the clusters, (k, d).
            queue: features of earlier batches; it must be full.
            generator: random generator on the CPU; None for torch's default one.

        Raises:
            DataError: the features have the wrong width, dtype or norm, or the queue is not full.
        """
        pairs = self.coded_pairs(target, target_ids, prototypes, queue, generator)
        return private_class_discovery_loss(*pairs, self.global_weight, self.local_weight)

    def coded_pairs(
        self,
        target: Tensor,
        target_ids: Tensor,
        prototypes: Prototypes,
        queue: FeatureQueue,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the logits of samples and of their neighbours, then the codes of both, (n, k) each.

        Arguments as in `forward`.
        """
        _check_features(target, prototypes, "target")
        queue.require_full()
        neighbours = nearest_neighbours(target, target_ids, queue)
        drawn = torch.randint(len(queue), (len(prototypes.weight),), generator=generator)
        cosines: Tensor = prototypes(torch.cat([target, neighbours]))
        with torch.no_grad():
            queued = prototypes(queue.features[drawn.to(target.device)])
        codes, neighbour_codes = self.codes(cosines, queued).chunk(2)
        logits, neighbour_logits = (cosines / self.temperature).chunk(2)
        return logits, neighbour_logits, codes, neighbour_codes

    @torch.no_grad()
    def codes(self, cosines: Tensor, queued: Tensor) -> Tensor:
        """Return the cluster code of each row, (n, k), without gradient.

        Args:
            cosines: to the cluster prototypes, (n, k).
            queued: the same of features of the queue, which are balanced with them, (m, k).
        """
        rows = torch.cat([cosines, queued])
        return (balanced_plan(rows, self.epsilon, self.iterations).mass * len(rows))[: len(cosines)]


@dataclass(frozen=True)
class UniOTRule:
    """The fitted prediction rule of UniOT: the class of a sample, or unknown.

    It is the solution of one unbalanced transport of the whole target to the classes. The class potentials carry this
    solution, so that each sample, of the target or new, is predicted by itself, in batches of any size.

    Attributes:
        prototypes: of the classes, unit rows, (n_classes, feature_size).
        potential: solution of the transport.

    Paper: the testing phase; the class is the largest entry of the row, and there is no test of the columns.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> loss = UniOTLoss(n_classes=3, n_clusters=5, feature_size=8, queue_size=20)
        >>> rule = loss.fit_rule(F.normalize(torch.randn(40, 8), dim=1))
        >>> rule.predict(loss.classes.weight.detach())  # the prototypes themselves
        tensor([0, 1, 2])
    """

    prototypes: Tensor
    potential: UnbalancedPotential

    def predict(self, features: Tensor) -> Tensor:
        """Return the class index of each sample, -1 for unknown, (n,).

        Args:
            features: unit features of the trained network in eval mode, (n, feature_size).

        Raises:
            DataError: the features have the wrong width, dtype or norm.
        """
        _check_features(features, self.prototypes, "features")
        odds = self.odds(features)
        return torch.where(self.is_known(odds), odds.argmax(dim=1), -1)

    @torch.no_grad()
    def odds(self, features: Tensor) -> Tensor:
        """Return the mass that the plan gives to each class, in units of a row's mean mass 1/n, (n, n_classes).

        A sample is known if its largest odds are at least 1; the larger, the more confident.

        Args:
            features: unit features, (n, feature_size).

        Returns:
            Odds, float64. The largest one per sample is n w^t of the paper.

        Paper: Eq. (5).
        """
        cosines = features.double() @ self.prototypes.double().t()
        return self.potential.log_mass(cosines).exp() * self.potential.n_rows

    def is_known(self, odds: Tensor) -> Tensor:
        """Return whether each sample is known, by its odds (n, n_classes), bool (n,). Paper: first test of Eq. (7)."""
        return odds.max(dim=1).values >= 1 - self.potential.tolerance


@dataclass(frozen=True)
class UniOTLosses:
    """Result of `UniOTLoss`.

    Attributes:
        total: L = L_cls + λ (L_CCD + L_PCD), a scalar with gradient.
        classification: L_cls, cross-entropy of the source.
        common: L_CCD; zero before detection starts.
        private: L_PCD.
        detected: class of each target sample that was detected as common, -1 for the others, (n,); None before
            detection starts. These are training targets of one batch, not predictions.
    """

    total: Tensor
    classification: Tensor
    common: Tensor
    private: Tensor
    detected: Tensor | None


class UniOTLoss(nn.Module):
    """The loss of UniOT, L = L_cls + λ (L_CCD + L_PCD), for unit features of any network.

    It owns the prototypes of the classes and of the clusters, which are trained with the network, and the queue of
    target features. L_cls is the cross-entropy of `loss.classes(source) / temperature`, so the network needs no
    classification head and the loop no cross-entropy of its own.

    Give its parameters to the optimiser, fill the queue before the first step, and call `renormalise` after each one.
    After the training, `fit_rule` labels the target. `examples/plain_torch_uniot.py` is a whole loop.

    Attributes:
        classes: prototypes of the source classes.
        clusters: prototypes of the target's clusters.
        queue: features of earlier target batches.
        common: L_CCD, with the class mass β.
        private: L_PCD.

    Paper: Eq. (15).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> network = nn.Linear(10, 8)
        >>> loss = UniOTLoss(n_classes=3, n_clusters=5, feature_size=8, queue_size=20)
        >>> optimiser = torch.optim.SGD([*network.parameters(), *loss.parameters()], lr=0.01)
        >>> def features(x):
        ...     return F.normalize(network(x), dim=1)
        >>> target = torch.randn(40, 10)
        >>> loss.queue.push(features(target[:20]).detach(), torch.arange(20))
        >>> for step in range(3):
        ...     source, labels = torch.randn(6, 10), torch.randint(3, (6,))
        ...     ids = torch.randint(40, (6,))
        ...     losses = loss(features(source), labels, features(target[ids]), ids, step=step)
        ...     optimiser.zero_grad()
        ...     losses.total.backward()
        ...     optimiser.step()
        ...     loss.renormalise()
        >>> bool(losses.total > 0)
        True
        >>> rule = loss.fit_rule(features(target))  # once, from the whole target
        >>> labels = rule.predict(features(target))  # class index, -1 for unknown
        >>> labels.shape
        torch.Size([40])
    """

    def __init__(
        self,
        n_classes: int,
        n_clusters: int = 50,
        feature_size: int = 256,
        queue_size: int = 2000,
        *,
        temperature: float = 0.1,
        adaptation_weight: float = 0.1,
        class_mass_momentum: float = 0.7,
        similarity_threshold: float = 0.7,
        epsilon: float = 0.01,
        marginal_penalty: float = 0.5,
        balanced_epsilon: float = 0.05,
        balanced_iterations: int = 3,
        detection_start: float = 100,
    ) -> None:
        """Build the loss with random prototypes and an empty queue; the defaults are the paper's for Office-31.

        Args:
            n_classes: number of source classes.
            n_clusters: K, number of cluster prototypes; the paper has 50 for 800 target samples, 500 for 50 000.
            feature_size: width d of a feature, the output of your network.
            queue_size: number of target features in the queue. It must be filled before the first step; a multiple of
                the batch size keeps whole batches. It may exceed the number of target samples, which are then stored
                more than once, as features of different steps. `uniot.UniOT` uses 2000 for a target of up to 10 000
                samples and 10 000 beyond, rounded down to whole batches.
            temperature: τ; cosines are divided by it.
            adaptation_weight: λ, weight of both target losses.
            class_mass_momentum: μ of the moving average of the class mass β.
            similarity_threshold: γ, threshold between positive and negative rows in adaptive filling.
            epsilon: ε, weight of the entropy in the unbalanced transport of L_CCD.
            marginal_penalty: κ, weight of the penalties on its marginals.
            balanced_epsilon: weight of the entropy in the balanced transport of L_PCD.
            balanced_iterations: scaling steps of the balanced transport.
            detection_start: L_CCD first takes part in step `detection_start` + 1, with steps counted from zero; before,
                the class prototypes are not informative. Lower it for a run of a few hundred steps or less: a run that
                ends earlier never trains L_CCD or β.
        """
        super().__init__()
        self.temperature, self.adaptation_weight = temperature, adaptation_weight
        self.detection_start = detection_start
        self.classes = Prototypes(n_classes, feature_size)
        self.clusters = Prototypes(n_clusters, feature_size)
        self.queue = FeatureQueue(queue_size, feature_size)
        self.common = CommonClassDetectionLoss(
            n_classes,
            temperature=temperature,
            class_mass_momentum=class_mass_momentum,
            epsilon=epsilon,
            marginal_penalty=marginal_penalty,
            similarity_threshold=similarity_threshold,
        )
        self.private = PrivateClassDiscoveryLoss(
            temperature=temperature, epsilon=balanced_epsilon, iterations=balanced_iterations
        )

    def forward(
        self,
        source: Tensor,
        source_labels: Tensor,
        target: Tensor,
        target_ids: Tensor,
        *,
        step: int,
        generator: torch.Generator | None = None,
        private: Tensor | None = None,
    ) -> UniOTLosses:
        """Return the losses of a batch; update the class mass and push the target features into the queue.

        Both are updated in evaluation mode, too.

        Args:
            source: unit features of a source batch, (b, d).
            source_labels: class index per source sample, (b,).
            target: unit features of a target batch, (b', d).
            target_ids: index of each sample in the target, (b',); a sample is never its own neighbour.
            step: number of the step, from zero; L_CCD begins after `detection_start`.
            generator: random generator on the CPU; None for torch's default one.
            private: a loss to use in place of L_PCD, a scalar.

        Raises:
            DataError: features have the wrong width, dtype or norm, labels or indices are not integers, one per
                feature, or the queue is not full.
        """
        _check_features(source, self.classes, "source")
        _check_features(target, self.classes, "target")
        _check_indices(source_labels, len(source), "source_labels", "class index")
        _check_indices(target_ids, len(target), "target_ids", "index in the target")
        classification = F.cross_entropy(self.classes(source) / self.temperature, source_labels)
        if private is None:
            private = self.private(target, target_ids, self.clusters, self.queue, generator)
        common, detected = target.new_zeros(()), None
        if step > self.detection_start:
            common, detected = self.common(target, self.classes, self.queue, generator)
        self.queue.push(target.detach(), target_ids)
        total = classification + self.adaptation_weight * (common + private)
        return UniOTLosses(total, classification, common, private, detected)

    def renormalise(self) -> None:
        """Scale all prototypes to unit norm; call it after every optimiser step."""
        self.classes.renormalise()
        self.clusters.renormalise()

    @torch.no_grad()
    def fit_rule(
        self, target: Tensor, generator: torch.Generator | None = None, *, shards: Shards | None = None
    ) -> UniOTRule:
        """Return the prediction rule, fitted to the whole target with the trained prototypes and β.

        One unbalanced transport over all target features, after adaptive filling. The rule needs the whole target
        once: "known" means at least the mean mass of a row, so a batch would give another rule. Afterwards
        `UniOTRule.predict` labels the target, parts of it, or new samples. Prototypes, β and queue stay as they are.

        Args:
            target: unit features of all target samples, of the trained network in eval mode, (n, feature_size).
            generator: random generator of adaptive filling, on the CPU; None for one with seed 0, so that the rule is
                the same in every call.
            shards: adds over processes that hold a part of the target each; None for a single process.

        Raises:
            DataError: the features have the wrong width, dtype or norm, or there are none.

        Paper: the testing phase.
        """
        _check_features(target, self.classes, "target")
        prototypes = self.classes.weight.detach().clone()
        potential = self.common.solve(
            target.double() @ prototypes.double().t(),
            self.classes,
            torch.Generator().manual_seed(0) if generator is None else generator,
            tolerance=_RULE_TOLERANCE,
            shards=shards,
        )
        return UniOTRule(prototypes, potential)


def _check_features(features: Tensor, prototypes: Prototypes | Tensor, name: str) -> None:
    """Raise a DataError unless the features are unit rows of the prototypes' width and dtype.

    Args:
        features: (n, d).
        prototypes: (c, d).
        name: what the message calls the features.
    """
    weight = prototypes if isinstance(prototypes, Tensor) else prototypes.weight
    width = weight.shape[1]
    if not isinstance(features, Tensor):
        raise DataError(
            f"{name}: expected a tensor of features, got {type(features).__name__}. Give torch.as_tensor(…)."
        )
    if features.ndim != 2 or features.shape[1] != width:
        raise DataError(
            f"{name}: expected features of shape (n, feature_size) = (n, {width}), got {tuple(features.shape)}. Give "
            "UniOTLoss the width of your network's output as feature_size."
        )
    autocast = torch.is_autocast_enabled(features.device.type)
    if features.dtype != weight.dtype and not autocast:
        raise DataError(
            f"{name}: expected features of {weight.dtype}, the dtype of the prototypes, got {features.dtype}. Give "
            f"F.normalize(features.to({weight.dtype}), dim=1)."
        )
    # NaN passes: a training that diverges is reported by its loss.
    distance = (torch.linalg.vector_norm(features.detach().float(), dim=1) - 1).abs()
    if bool((distance > (_AUTOCAST_NORM_TOLERANCE if autocast else _NORM_TOLERANCE)).any()):
        row = int(distance.nan_to_num(0).argmax())
        raise DataError(
            f"{name}: expected features of unit norm, got norm {float(features[row].detach().float().norm()):.4g} in "
            f"row {row}. Give F.normalize(features, dim=1)."
        )


def _check_indices(indices: object, count: int, name: str, what: str) -> None:
    """Raise a DataError unless there is one integer per feature.

    Args:
        indices: (count,), int64.
        count: number of features of the batch.
        name: what the message calls the indices.
        what: what an index is.
    """
    if not isinstance(indices, Tensor) or indices.dtype != torch.long or indices.shape != (count,):
        given = f"{tuple(indices.shape)} of {indices.dtype}" if isinstance(indices, Tensor) else type(indices).__name__
        raise DataError(
            f"{name}: expected one {what} per feature, a tensor of shape ({count},) of torch.int64, got {given}. Give "
            "torch.as_tensor(indices, dtype=torch.long)."
        )
