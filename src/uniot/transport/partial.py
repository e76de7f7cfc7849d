"""Entropic partial optimal transport: move a given mass between two measures, neither of which is used up.

Maximise ⟨Q, S⟩ + ε H(Q) subject to Q 1 ≤ a, Qᵀ 1 ≤ b and Σ Q = m, with H(Q) = −Σ Q (log Q − 1). The solution is
Q = exp(S/ε + f + g + λ) with f ≤ 0 and g ≤ 0: a row or a column whose capacity is not used up has potential 0. Each
pass minimises the dual over f, then g, then λ. In exact arithmetic these are the iterative Bregman projections with
Dykstra's correction; in the log domain a small ε neither overflows nor divides zero by zero.

References:
    Benamou et al., Iterative Bregman projections for regularized transportation problems, SIAM Journal on Scientific
    Computing 2015, arXiv:1412.5154.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from uniot.errors import DataError, SettingsError
from uniot.transport.plan import TransportPlan
from uniot.transport.rows import Array, as_tensor
from uniot.transport.threads import one_thread_if_small

# Comparing potentials waits for the result, so it is not done in every pass.
_CHECK_EVERY = 10
# Rounding may give a mass that exceeds a sum of capacities by a little.
_ROUNDING = 1e-6


@torch.no_grad()
def partial_plan(
    similarity: Array,
    sample_mass: Array,
    class_mass: Array,
    mass: float,
    epsilon: float = 0.01,
    *,
    tolerance: float = 1e-6,
    max_passes: int = 1000,
) -> TransportPlan:
    """Solve the partial transport problem in float64 on the CPU.

    Args:
        similarity: S, (n_samples, n_classes); minus the cost if there is a cost.
        sample_mass: a, the most that each sample may send, positive, (n_samples,).
        class_mass: b, the most that each class may receive, positive, (n_classes,).
        mass: m, the mass that is moved, positive, at most the sum of either capacity.
        epsilon: ε, weight of the entropy, in the unit of the similarity.
        tolerance: largest change of a potential in one pass, relative to ε, at which the solver stops.
        max_passes: the solver stops after this number of passes in any case.

    Returns:
        The plan, of the type and on the device of `similarity`; its total mass is `mass`. The class potential includes
        λ.

    Raises:
        DataError: shapes do not fit, a number is not finite, or there is less capacity than mass.
        SettingsError: epsilon, tolerance or max_passes is not positive.
    """
    if not (epsilon > 0 and tolerance > 0 and max_passes > 0):
        raise SettingsError(
            f"epsilon is {epsilon}, tolerance {tolerance} and max_passes {max_passes}; give positive numbers."
        )
    given = as_tensor(similarity, "similarity").detach()
    rows, columns = (
        as_tensor(capacity, name).detach().cpu().double()
        for capacity, name in ((sample_mass, "sample_mass"), (class_mass, "class_mass"))
    )
    with one_thread_if_small(given.numel()):
        scaled = given.cpu().double() / epsilon
        _check(scaled, rows, columns, mass)
        log_rows, log_columns, log_mass = rows.log()[:, None], columns.log(), math.log(mass)
        f, g = torch.zeros_like(log_rows), torch.zeros_like(log_columns)
        multiplier = log_mass - scaled.logsumexp(dim=(0, 1))
        scaled += multiplier
        passes, converged = 0, False
        while passes < max_passes and not converged:
            passes += 1
            new_f = (log_rows - (scaled + g).logsumexp(dim=1, keepdim=True)).clamp_max_(0)
            partly = scaled + new_f
            new_g = (log_columns - partly.logsumexp(dim=0)).clamp_max_(0)
            shift = log_mass - (partly + new_g).logsumexp(dim=(0, 1))
            scaled += shift
            multiplier += shift
            if passes % _CHECK_EVERY == 0 or passes == max_passes:
                moved = torch.stack([(new_f - f).abs().max(), (new_g - g).abs().max(), shift.abs()])
                converged = float(moved.max()) <= tolerance
            f, g = new_f, new_g
        fraction = (scaled + f + g).exp_().div_(mass)
    return TransportPlan(
        mass=fraction.to(given),
        total_mass=torch.tensor(mass, dtype=torch.float64, device=given.device),
        sample_potential=f[:, 0].to(given.device),
        class_potential=(g + multiplier).to(given.device),
        value=epsilon * (mass * (1 - multiplier) - rows @ f[:, 0] - columns @ g).to(given.device),
        converged=converged,
        passes=passes,
    )


def _check(scaled: Tensor, rows: Tensor, columns: Tensor, mass: float) -> None:
    if scaled.shape != (len(rows), len(columns)):
        raise DataError(
            f"similarity has shape {tuple(scaled.shape)} for {len(rows)} rows and {len(columns)} columns. Give one "
            "capacity per row and per column."
        )
    if not all(bool(torch.isfinite(values).all()) for values in (scaled, rows, columns)):
        raise DataError("similarity or a capacity holds NaN or infinite numbers. Give finite numbers.")
    if min(float(rows.min()), float(columns.min())) <= 0:
        raise DataError(
            "a capacity is zero or negative. Give positive capacities, and leave out empty rows or columns."
        )
    if not 0 < mass <= min(float(rows.sum()), float(columns.sum())) * (1 + _ROUNDING):
        raise DataError(
            f"the mass is {mass}; the rows hold {float(rows.sum()):g} and the columns {float(columns.sum()):g}. Give a "
            "positive mass that both can hold."
        )
