"""Align a part of several batches by partial optimal transport, in two stages (TS-POT).

References:
    Nguyen et al., Improving Mini-batch Optimal Transport via Partial Transportation, ICML 2022, arXiv:2108.09645.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from uniot.methods.base import MethodInfo
from uniot.methods.deepjdot import JoinedBatches, JoinedBatchesOptions, exact_plan, pot
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


class TSPOTOptions(JoinedBatchesOptions):
    """Hyper-parameters of TS-POT."""

    mass: float = Field(0.5, gt=0, le=1, description="s, fraction of the mass of a batch that is transported.")
    n_batches: int = Field(
        2, ge=1, le=100, description="k, number of batches of each domain that one transport plan joins."
    )


class TSPOT(JoinedBatches):
    """Adapt by partial transport between several batches of each domain.

    The first stage solves one problem for the batch of the step together with the k - 1 batches before it, without
    gradients; the second computes the loss of the pairs that the plan has chosen.

    Paper: Nguyen et al., ICML 2022, section 3; two stages as in the authors' code.
    """

    options: TSPOTOptions

    def plan(self, cost: Tensor, source_labels: Tensor) -> Tensor:
        """Return the partial plan, (b, b')."""
        return exact_partial_plan(cost, self.options.mass)


INFO = MethodInfo(
    name="ts-pot",
    title="TS-POT",
    source="Nguyen et al., Improving Mini-batch Optimal Transport via Partial Transportation, ICML 2022",
    rule="unknown if the entropy of the prediction exceeds half of log C; TS-POT itself has no rule",
    build=TSPOT,
    options=TSPOTOptions,
)
