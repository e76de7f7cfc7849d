"""Gradients of a transport plan and of its value, from the solution alone: no iteration of the solver is recorded.

With S the similarity and l the class potential, a plan is the solution of l = T(l; S, β), and its value is a dual
objective D(l; S, β) that is smallest at the solution.

- Envelope theorem: since ∂D/∂l = 0, the gradient of the value is that of D with l held fixed. With respect to S it is
  the plan itself.
- Implicit function theorem: dl = (I − ∂T/∂l)⁻¹ dT, where dT is taken with l held fixed.

References:
    Eisenberger et al.: A unified framework for implicit Sinkhorn differentiation. CVPR 2022, arXiv:2205.06688.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from uniot.transport.plan import TransportPlan

# Keeps the potential of an absent class finite.
CLASS_MASS_FLOOR = 1e-10


def with_gradient(
    plan: TransportPlan, similarity: Tensor, class_mass: Tensor, epsilon: float, marginal_penalty: float = math.inf
) -> TransportPlan:
    """Return a solved plan with gradients; derivatives of higher order are not supported.

    Args:
        plan: the solution.
        similarity: (n_samples, n_classes), as given to the solver.
        class_mass: β, positive, (n_classes,).
        epsilon: weight of the entropy.
        marginal_penalty: κ; infinite for the balanced problem.

    Returns:
        The plan; its tensors carry gradients with respect to `similarity` and `class_mass`.
    """
    f = 1.0 if math.isinf(marginal_penalty) else marginal_penalty / (marginal_penalty + epsilon)
    solution = plan.class_potential.detach().to(similarity.device)
    with torch.enable_grad():
        logits = similarity.double() / epsilon
        # A class without mass has the same floor as in the solver, and no gradient.
        beta = class_mass.to(solution).clamp_min(CLASS_MASS_FLOOR)
        fixed = logits + solution + _log_rows(logits + solution, f)[:, None]
        update = f * (beta.log() - fixed.logsumexp(dim=0) + solution)
        # Q / row sums and Q / column sums are softmaxes, which neither overflow nor divide zero by zero.
        system = -f * f * fixed.detach().softmax(dim=0).t() @ fixed.detach().softmax(dim=1)
        system.diagonal().add_(1)
        if f == 1:
            # Adding a constant to l does not change a balanced plan. Here the weighted mean of l is held fixed.
            system += fixed.detach().logsumexp(dim=0).softmax(dim=0)
        potential = solution + torch.linalg.solve(system, update - solution)
        log_rows = _log_rows(logits + potential, f)
        log_plan = logits + potential + log_rows[:, None]
        log_total = log_plan.logsumexp(dim=(0, 1))
        return replace(
            plan,
            mass=(log_plan - log_total).exp().to(plan.mass.dtype),
            total_mass=log_total.exp(),
            sample_potential=log_rows,
            class_potential=potential,
            value=_dual(fixed, _log_rows(logits + solution, f), solution, beta, epsilon, marginal_penalty),
        )


def _log_rows(logits: Tensor, f: float) -> Tensor:
    """Return log u, the row scalings that follow from S/ε + l, for samples of mass 1 / n_samples, (n_samples,)."""
    return -f * (math.log(len(logits)) + logits.logsumexp(dim=1))


def _dual(
    log_plan: Tensor, log_rows: Tensor, potential: Tensor, beta: Tensor, epsilon: float, marginal_penalty: float
) -> Tensor:
    if math.isinf(marginal_penalty):
        return epsilon * (1 - log_rows.mean() - beta @ potential)
    allowed = beta @ torch.exp(-epsilon / marginal_penalty * potential)
    total = log_plan.logsumexp(dim=(0, 1)).exp()
    return (marginal_penalty + epsilon) * total + marginal_penalty * (allowed - 1 - beta.sum())
