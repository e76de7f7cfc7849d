"""Balanced optimal transport: every sample sends and every cluster receives the same mass.

Maximise ⟨Q, S⟩ + ε H(Q) subject to Q 1 = 1/n and Qᵀ 1 = 1/k, with H(Q) = −Σ Q (log Q − 1). The solution is
Q = diag(u) exp(S/ε) diag(v); Sinkhorn iterations scale columns and rows in turn.

References:
    Cuturi: Sinkhorn distances: lightspeed computation of optimal transport. NeurIPS 2013, arXiv:1306.0895.
    Chang et al.: Unified optimal transport framework for universal domain adaptation. NeurIPS 2022, arXiv:2210.17067.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from uniot.errors import DataError, NumericalWarning, SettingsError
from uniot.transport.gradient import with_gradient
from uniot.transport.plan import TransportPlan
from uniot.transport.rows import Array, as_tensor, check_finite
from uniot.transport.threads import one_thread_if_small

# Up to this range of exponents the scalings fit into float32; beyond it the iteration runs in the log domain.
_SAFE_SPREAD = 80.0


@torch.no_grad()
def balanced_plan(
    similarity: Array,
    epsilon: float = 0.05,
    iterations: int = 3,
    *,
    tolerance: float = 1e-4,
    gradient: bool = False,
) -> TransportPlan:
    """Solve the entropic transport problem with uniform marginals by Sinkhorn iterations.

    Args:
        similarity: (n_samples, n_clusters), not divided by the temperature; a tensor or an array.
        epsilon: weight of the entropy.
        iterations: number of scaling steps, columns then rows; three as in SwAV, more for an exact plan.
        tolerance: the plan is `converged` if no column sum is farther from 1 / n_clusters than by this fraction of it.
        gradient: whether the plan, its potentials and its value carry gradients with respect to `similarity`: of the
            value by the envelope theorem, of the rest by the implicit function theorem. Both hold for a converged plan
            only; give enough iterations.

    Returns:
        The plan. Each row sums to 1 / n_samples exactly, each column to 1 / n_clusters in the limit.

    Raises:
        DataError: `similarity` is not a finite matrix.
        SettingsError: `epsilon`, `iterations` or `tolerance` is out of range.

    Examples:
        The gradient of the value with respect to the similarity is the plan itself.

        >>> import torch
        >>> from uniot.transport import balanced_plan
        >>> similarity = torch.eye(3, dtype=torch.float64, requires_grad=True)
        >>> plan = balanced_plan(similarity, iterations=100, gradient=True)
        >>> plan.value.backward()
        >>> torch.allclose(similarity.grad, plan.mass)
        True

    Paper: Eq. (2), (10); ε and the number of iterations as in the authors' code.
    """
    similarity = as_tensor(similarity, "similarity")
    if similarity.ndim != 2 or 0 in similarity.shape:
        raise DataError(
            f"similarity has shape {tuple(similarity.shape)}. Give one row per sample and one column per cluster."
        )
    if not (1e-3 <= epsilon <= 10 and iterations >= 1 and tolerance > 0):
        raise SettingsError(
            f"epsilon is {epsilon}, iterations {iterations} and tolerance {tolerance}; give an epsilon from 0.001 to "
            "10, at least one iteration and a positive tolerance."
        )
    with one_thread_if_small(similarity.numel()):
        check_finite(similarity, "similarity")
        # The range of half precision is too small for the kernel.
        at_least_float32 = similarity.detach().to(torch.promote_types(similarity.dtype, torch.float32))
        plan = _sinkhorn(at_least_float32, epsilon, iterations, tolerance)
    if not gradient:
        return plan
    if not plan.converged:
        warnings.warn(
            f"the balanced plan has not converged after {iterations} iterations, so its gradient is not exact. Raise "
            f"iterations, tolerance (now {tolerance}) or epsilon (now {epsilon}).",
            NumericalWarning,
            stacklevel=3,
        )
    n_clusters = similarity.shape[1]
    class_mass = plan.class_potential.new_full((n_clusters,), 1 / n_clusters)
    return with_gradient(plan, similarity, class_mass, epsilon)


def _sinkhorn(similarity: Tensor, epsilon: float, iterations: int, tolerance: float) -> TransportPlan:
    n, k = similarity.shape
    largest = similarity.amax(dim=1)
    exponent = (similarity - largest[:, None]) / epsilon
    # A row scaling cancels the shift of its row; it must start from it, or few iterations would give another plan.
    log_u = (largest - largest.max()) / epsilon
    if float((exponent.amin(dim=1) + log_u).min()) < -_SAFE_SPREAD:
        exponent, log_u, log_v = exponent.double(), log_u.double(), log_u
        for _ in range(iterations):
            log_v = -math.log(k) - torch.logsumexp(exponent + log_u[:, None], dim=0)
            log_u = -math.log(n) - torch.logsumexp(exponent + log_v, dim=1)
        mass = (exponent + log_u[:, None] + log_v).exp().to(similarity.dtype)
    else:
        kernel = exponent.exp_()
        u = v = log_u.exp()
        for _ in range(iterations):
            v = 1 / (k * torch.mv(kernel.t(), u))
            u = 1 / (n * torch.mv(kernel, v))
        mass = kernel * u[:, None] * v
        log_u, log_v = u.double().log(), v.double().log()
    off = float((mass.sum(dim=0) * k - 1).abs().max())
    log_u = log_u - largest.double() / epsilon
    return TransportPlan(
        mass=mass,
        total_mass=torch.ones((), dtype=torch.float64, device=mass.device),
        sample_potential=log_u,
        class_potential=log_v,
        value=epsilon * (1 - log_u.mean() - log_v.mean()),
        converged=off <= tolerance,
        passes=iterations,
    )
