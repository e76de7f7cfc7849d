"""Align features and labels of two batches by exact optimal transport (DeepJDOT).

References:
    Damodaran et al., DeepJDOT: Deep Joint Distribution Optimal Transport for Unsupervised Domain Adaptation, ECCV 2018,
    arXiv:1803.10081.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import import_optional
from uniot.losses import FeatureQueue, joint_cost
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.transport.rows import check_finite


def pot() -> ModuleType:
    """Return the module of POT, which solves the exact and the partial problem.

    Raises:
        MissingPackageError: POT is not installed; the message has the command that installs it.
    """
    return import_optional("ot", "transport", "training with POT (Python Optimal Transport)")


def class_masses(labels: Tensor) -> Tensor:
    """Return masses with which every class of a batch weighs the same, (b,), of sum 1; labels: (b,).

    So does every class of a stratified batch, which has the same number of samples of each.
    """
    weights = 1 / torch.bincount(labels)[labels].double()
    return weights / weights.sum()


def exact_plan(cost: Tensor, rows: Tensor | None = None) -> Tensor:
    """Solve optimal transport between two batches.

    Minimise ⟨γ, M⟩ such that γ 1 = a and γᵀ 1 = 1/b'.

    Args:
        cost: M, (b, b'); used without gradient.
        rows: a, (b,); uniform if None.

    Returns:
        The plan γ, of the type of `cost`, (b, b').

    Raises:
        DataError: the cost is not finite.

    Paper: Damodaran et al., ECCV 2018, section 3.
    """
    check_finite(cost, "cost")
    # In float32 the marginals would not add up to the accuracy that the solver checks.
    uniform, columns = (np.full(size, 1 / size) for size in cost.shape)
    masses = uniform if rows is None else rows.detach().double().cpu().numpy()
    plan = pot().emd(masses, columns, cost.detach().double().cpu().numpy())
    return torch.from_numpy(plan).to(cost)


class JointTransportOptions(MethodOptions):
    """Weights of the two parts of the transport cost."""

    feature_weight: float = Field(
        0.01, ge=0, le=1e3, description="α, weight of the squared distance of features in the transport cost."
    )
    label_weight: float = Field(
        0.5, ge=0, le=1e3, description="λ, weight of the cross-entropy of labels in the transport cost."
    )


class JointTransport(HeadMethod):
    """Train on the cost of a transport plan between labelled and unlabelled samples; a subclass has the `plan`."""

    options: JointTransportOptions

    def plan(self, cost: Tensor, source_labels: Tensor) -> Tensor:
        """Return the transport plan of a cost matrix, without gradient, both (b, b'); source_labels: (b,)."""
        raise NotImplementedError

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step."""
        return self.transport_losses(*self.batch_features(batch), batch.source_labels)

    def transport_losses(self, source: Tensor, target: Tensor, source_labels: Tensor) -> Losses:
        """Return L = CE(y, C(f_s)) + ⟨γ, M⟩: the plan is fixed, gradients flow through the cost M.

        Args:
            source: features, (b, d).
            target: features, (b', d).
            source_labels: class index per source sample, (b,).
        """
        classification = F.cross_entropy(self.classifier(source), source_labels)
        weights = self.options.feature_weight, self.options.label_weight
        cost = joint_cost(source, target, source_labels, self.classifier(target), *weights)
        transport = (self.plan(cost.detach(), source_labels) * cost).sum()
        return Losses(classification + transport, {"source": classification, "transport": transport})


class JoinedBatchesOptions(JointTransportOptions):
    """Weights of the cost, and the number of batches."""

    n_batches: int = Field(
        4, ge=1, le=100, description="k, number of batches of each domain that one transport plan joins."
    )


class JoinedBatches(JointTransport):
    """Joint transport between several batches of each domain: that of the step and the k - 1 before it.

    The backbone's outputs for earlier batches are in a memory: the bottleneck is applied to them again, the backbone is
    not.

    Attributes:
        source_memory: embeddings of the last k - 1 source batches with their labels; None if k is 1.
        target_memory: embeddings of the last k - 1 target batches; None if k is 1.
    """

    options: JoinedBatchesOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: JoinedBatchesOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        size = (options.n_batches - 1) * settings.batch_size
        self.source_memory = FeatureQueue(size, in_features) if size else None
        self.target_memory = FeatureQueue(size, in_features) if size else None

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, C(f_s)) + ⟨π, M⟩ over the batch of this step and the k - 1 batches before it.
        """
        own = self.backbone(torch.cat([batch.source, batch.target])).float()
        source, target = (batch.gather(rows) for rows in own.split([len(batch.source), len(batch.target)]))
        source, labels = _with_memory(source, batch.source_labels, self.source_memory)
        target, _ = _with_memory(target, batch.target_ids, self.target_memory)
        features = self.bottleneck(torch.cat([source, target])).float()
        return self.transport_losses(features[: len(source)], features[len(source) :], labels)

    def finalize(self, final: FinalFeatures) -> None:
        """Clear the memories: only the training uses them."""
        self.forget_samples()

    def forget_samples(self) -> None:
        """Clear the memories."""
        for memory in (self.source_memory, self.target_memory):
            if memory is not None:
                memory.clear()

    def train(self, mode: bool = True) -> JoinedBatches:
        """Return this method after setting its mode; without POT, training fails here instead of at the first step."""
        if mode:
            pot()
        super().train(mode)
        return self


def _with_memory(rows: Tensor, labels: Tensor, memory: FeatureQueue | None) -> tuple[Tensor, Tensor]:
    """Return the rows (n, d) and labels (n,) of a batch followed by those in a memory, and store the batch there."""
    if memory is None:
        return rows, labels
    filled = memory.ids >= 0
    joined = torch.cat([rows, memory.features[filled]]), torch.cat([labels, memory.ids[filled]])
    memory.push(rows.detach(), labels)
    return joined


class DeepJDOTOptions(JoinedBatchesOptions):
    """Hyper-parameters of DeepJDOT."""


class DeepJDOT(JoinedBatches):
    """Adapt by exact transport: every target sample receives labels, also those of private classes.

    Paper: Damodaran et al., ECCV 2018, section 3.
    """

    options: DeepJDOTOptions

    def plan(self, cost: Tensor, source_labels: Tensor) -> Tensor:
        """Return the exact plan, (b, b'), with the same mass for every class of the source."""
        return exact_plan(cost, class_masses(source_labels))


INFO = MethodInfo(
    name="deepjdot",
    title="DeepJDOT",
    source="Damodaran et al., DeepJDOT: Deep Joint Distribution Optimal Transport for Unsupervised Domain Adaptation, "
    "ECCV 2018",
    rule="unknown if the entropy of the prediction exceeds half of log C; DeepJDOT itself has no rule",
    build=DeepJDOT,
    options=DeepJDOTOptions,
)
