"""Align features and labels of two batches by unbalanced optimal transport, which may leave samples out (JUMBOT).

References:
    Fatras et al., Unbalanced minibatch Optimal Transport; applications to Domain Adaptation, ICML 2021,
    arXiv:2103.03606.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from uniot.methods.base import MethodInfo
from uniot.methods.deepjdot import JointTransport, JointTransportOptions
from uniot.transport import unbalanced_plan
from uniot.transport.rows import check_finite


def soft_plan(cost: Tensor, epsilon: float = 0.01, marginal_penalty: float = 0.5) -> Tensor:
    """Solve entropic unbalanced transport between two batches, each with uniform masses.

    Minimise ⟨π, M⟩ - ε H(π) + τ KL(π 1 ‖ 1/b) + τ KL(πᵀ 1 ‖ 1/b'). A sample that is far from all others of the other
    domain is moved only in part, so the plan has no fixed total.

    Args:
        cost: M, (b, b'); used without gradient.
        epsilon: ε, weight of the entropy.
        marginal_penalty: τ, weight of the Kullback-Leibler penalties on both marginals.

    Returns:
        The plan π, of the type of `cost`, (b, b').

    Raises:
        DataError: the cost is not finite.

    Paper: Fatras et al., ICML 2021, section 4.
    """
    check_finite(cost, "cost")
    solved = unbalanced_plan(-cost.detach().double().cpu(), epsilon=epsilon, marginal_penalty=marginal_penalty)
    return solved.matrix.to(cost)


class JUMBOTOptions(JointTransportOptions):
    """Hyper-parameters of JUMBOT, with the published values for Office-Home as defaults."""

    epsilon: float = Field(0.01, ge=1e-3, le=10, description="ε, weight of the entropy of the transport plan.")
    marginal_penalty: float = Field(
        0.5, ge=0.05, le=1e3, description="τ, weight of the Kullback-Leibler penalties on both marginals of the plan."
    )


class JUMBOT(JointTransport):
    """Adapt by unbalanced transport: samples without a counterpart in the other batch have little mass.

    Paper: Fatras et al., ICML 2021, sections 4 and 5.
    """

    options: JUMBOTOptions

    def plan(self, cost: Tensor, source_labels: Tensor) -> Tensor:
        """Return the unbalanced plan, (b, b')."""
        return soft_plan(cost, self.options.epsilon, self.options.marginal_penalty)


INFO = MethodInfo(
    name="jumbot",
    title="JUMBOT",
    source="Fatras et al., Unbalanced minibatch Optimal Transport; applications to Domain Adaptation, ICML 2021",
    rule="unknown if the entropy of the prediction exceeds half of log C; JUMBOT itself has no rule",
    build=JUMBOT,
    options=JUMBOTOptions,
)
