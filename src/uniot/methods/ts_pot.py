"""Align a part of several batches by partial optimal transport, in two stages (TS-POT).

References:
    Nguyen et al., Improving Mini-batch Optimal Transport via Partial Transportation, ICML 2022, arXiv:2108.09645.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import FeatureQueue
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo
from uniot.methods.deepjdot import DeepJDOT, JointTransportOptions, exact_plan, pot
from uniot.transport.rows import check_finite

# As in the authors' code: more dummy points keep the solver stable on larger problems.
_ROWS_PER_DUMMY = 100


def exact_partial_plan(cost: Tensor, mass: float) -> Tensor:
    """Solve partial optimal transport between two batches, each with uniform masses, without entropy.

    Minimise ⟨π, M⟩ such that π 1 ≤ 1/b, πᵀ 1 ≤ 1/b' and the total of π is `mass`: the pairs that cost most are left
    out.

    Args:
        cost: M, (b, b'); used without gradient.
        mass: s, fraction of the mass that is moved, above 0 and at most 1.

    Returns:
        The plan π, of the type of `cost`, (b, b').

    Raises:
        DataError: the cost is not finite.

    Paper: Nguyen et al., ICML 2022, section 3.
    """
    # By rounding, the sum of the marginals may be below 1, which POT refuses.
    if mass == 1:
        return exact_plan(cost)
    check_finite(cost, "cost")
    rows, columns = (np.full(size, 1 / size) for size in cost.shape)
    n_dummies = math.ceil(max(cost.shape) / _ROWS_PER_DUMMY)
    solve = pot().partial.partial_wasserstein
    plan = solve(rows, columns, cost.detach().double().cpu().numpy(), m=mass, nb_dummies=n_dummies)
    return torch.from_numpy(plan).to(cost)


class TSPOTOptions(JointTransportOptions):
    """Hyper-parameters of TS-POT."""

    mass: float = Field(0.5, gt=0, le=1, description="s, fraction of the mass of a batch that is transported.")
    n_batches: int = Field(
        2, ge=1, le=100, description="k, number of batches of each domain that one transport plan joins."
    )


class TSPOT(DeepJDOT):
    """Adapt by partial transport between several batches of each domain.

    The first stage solves one problem for the batch of the step together with the k - 1 batches before it, without
    gradients; the second computes the loss of the pairs that the plan has chosen. The backbone's outputs for earlier
    batches are in a memory: the bottleneck is applied to them again, the backbone is not.

    Attributes:
        source_memory: embeddings of the last k - 1 source batches with their labels; None if k is 1.
        target_memory: embeddings of the last k - 1 target batches; None if k is 1.

    Paper: Nguyen et al., ICML 2022, section 3; two stages as in the authors' code.
    """

    options: TSPOTOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: TSPOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        size = (options.n_batches - 1) * settings.batch_size
        self.source_memory = FeatureQueue(size, in_features) if size else None
        self.target_memory = FeatureQueue(size, in_features) if size else None

    def plan(self, cost: Tensor) -> Tensor:
        """Return the partial plan, (b, b')."""
        return exact_partial_plan(cost, self.options.mass)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, C(f_s)) + ⟨π, M⟩ over the batch of this step and the k - 1 batches before it, π the plan of mass s.
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


def _with_memory(rows: Tensor, labels: Tensor, memory: FeatureQueue | None) -> tuple[Tensor, Tensor]:
    """Return the rows (n, d) and labels (n,) of a batch followed by those in a memory, and store the batch there."""
    if memory is None:
        return rows, labels
    filled = memory.ids >= 0
    joined = torch.cat([rows, memory.features[filled]]), torch.cat([labels, memory.ids[filled]])
    memory.push(rows.detach(), labels)
    return joined


INFO = MethodInfo(
    name="ts-pot",
    title="TS-POT",
    source="Nguyen et al., Improving Mini-batch Optimal Transport via Partial Transportation, ICML 2022",
    rule="unknown if the entropy of the prediction exceeds half of log C; TS-POT itself has no rule",
    build=TSPOT,
    options=TSPOTOptions,
)
