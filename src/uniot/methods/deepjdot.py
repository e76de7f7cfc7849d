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
from torch import Tensor

from uniot.errors import import_optional
from uniot.losses import joint_cost
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.transport.rows import check_finite


def pot() -> ModuleType:
    """Return the module of POT, which solves the exact and the partial problem.

    Raises:
        MissingPackageError: POT is not installed; the message has the command that installs it.
    """
    return import_optional("ot", "transport", "training with POT (Python Optimal Transport)")


def exact_plan(cost: Tensor) -> Tensor:
    """Solve optimal transport between two batches, each with uniform masses.

    Minimise ⟨γ, M⟩ such that γ 1 = 1/b and γᵀ 1 = 1/b'.

    Args:
        cost: M, (b, b'); used without gradient.

    Returns:
        The plan γ, of the type of `cost`, (b, b').

    Raises:
        DataError: the cost is not finite.

    Paper: Damodaran et al., ECCV 2018, section 3.
    """
    check_finite(cost, "cost")
    # In float32 the marginals would not add up to the accuracy that the solver checks.
    rows, columns = (np.full(size, 1 / size) for size in cost.shape)
    plan = pot().emd(rows, columns, cost.detach().double().cpu().numpy())
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

    def plan(self, cost: Tensor) -> Tensor:
        """Return the transport plan of a cost matrix, without gradient, both (b, b')."""
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
        transport = (self.plan(cost.detach()) * cost).sum()
        return Losses(classification + transport, {"source": classification, "transport": transport})


class DeepJDOTOptions(JointTransportOptions):
    """Hyper-parameters of DeepJDOT."""


class DeepJDOT(JointTransport):
    """Adapt by exact transport: every target sample receives labels, also those of private classes.

    Paper: Damodaran et al., ECCV 2018, section 3.
    """

    def plan(self, cost: Tensor) -> Tensor:
        """Return the exact plan, (b, b')."""
        return exact_plan(cost)

    def train(self, mode: bool = True) -> DeepJDOT:
        """Return this method after setting its mode; without POT, training fails here instead of at the first step."""
        if mode:
            pot()
        super().train(mode)
        return self


INFO = MethodInfo(
    name="deepjdot",
    title="DeepJDOT",
    source="Damodaran et al., DeepJDOT: Deep Joint Distribution Optimal Transport for Unsupervised Domain Adaptation, "
    "ECCV 2018",
    rule="unknown if the entropy of the prediction exceeds half of log C; DeepJDOT itself has no rule",
    build=DeepJDOT,
    options=DeepJDOTOptions,
)
