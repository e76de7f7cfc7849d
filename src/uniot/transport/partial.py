"""Solve entropic partial optimal transport: move a given mass between two measures, neither of which is used up.

Minimise ⟨P, M⟩ + ε Σ P (log P − 1) subject to P 1 ≤ a, Pᵀ 1 ≤ b and Σ P = m. The solution is
P = exp(−M/ε + f + g + λ) with f ≤ 0 and g ≤ 0: a row or a column whose capacity is not used up has potential 0. Each
iteration maximises the dual over f, then g, then λ. In exact arithmetic these are the iterative Bregman projections
with Dykstra's correction; in the log domain a small ε neither overflows nor divides zero by zero.

References:
    Benamou et al., Iterative Bregman projections for regularized transportation problems, SIAM Journal on Scientific
    Computing 2015, arXiv:1412.5154.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.errors import DataError, SettingsError
from uniot.transport.rows import one_thread_if_small

# Comparing potentials waits for the result, so it is not done in every iteration.
_CHECK_EVERY = 10
# Rounding may give a mass that exceeds a sum of capacities by a little.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class PartialPlan:
    """Hold a partial transport plan.

    Attributes:
        mass: P, (n, k), of the cost's type and device.
        converged: whether the potentials moved by no more than the tolerance in the last iteration.
        iterations: number of iterations.
    """

    mass: Tensor
    converged: bool
    iterations: int


@one_thread_if_small
@torch.no_grad()
def partial_plan(
    cost: Tensor,
    row_capacity: Tensor,
    column_capacity: Tensor,
    mass: float,
    epsilon: float = 0.01,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> PartialPlan:
    """Solve the partial transport problem in float64 on the CPU.

    Args:
        cost: M, (n, k).
        row_capacity: a, positive, (n,).
        column_capacity: b, positive, (k,).
        mass: m, positive, at most the sum of either capacity.
        epsilon: ε, weight of the entropy, in the unit of the cost.
        tolerance: largest change of a potential per iteration, relative to ε, at which the solver stops.
        max_iterations: the solver stops after this number of iterations in any case.

    Returns:
        The plan, whose sum is the mass.

    Raises:
        DataError: shapes do not fit, a number is not finite, or there is less capacity than mass.
        SettingsError: epsilon or the tolerance is not positive.
    """
    if not (epsilon > 0 and tolerance > 0 and max_iterations > 0):
        raise SettingsError(
            f"epsilon is {epsilon}, tolerance {tolerance} and max_iterations {max_iterations}; give positive numbers."
        )
    scaled = cost.detach().cpu().double() / -epsilon
    rows, columns = (capacity.detach().cpu().double() for capacity in (row_capacity, column_capacity))
    _check(scaled, rows, columns, mass)
    log_rows, log_columns, log_mass = rows.log()[:, None], columns.log(), math.log(mass)
    f, g = torch.zeros_like(log_rows), torch.zeros_like(log_columns)
    scaled += log_mass - scaled.logsumexp(dim=(0, 1))
    iterations, converged = 0, False
    while iterations < max_iterations and not converged:
        iterations += 1
        new_f = (log_rows - (scaled + g).logsumexp(dim=1, keepdim=True)).clamp_max_(0)
        partly = scaled + new_f
        new_g = (log_columns - partly.logsumexp(dim=0)).clamp_max_(0)
        shift = log_mass - (partly + new_g).logsumexp(dim=(0, 1))
        scaled += shift
        if iterations % _CHECK_EVERY == 0 or iterations == max_iterations:
            moved = torch.stack([(new_f - f).abs().max(), (new_g - g).abs().max(), shift.abs()])
            converged = float(moved.max()) <= tolerance
        f, g = new_f, new_g
    return PartialPlan((scaled + f + g).exp_().to(cost), converged, iterations)


def _check(scaled: Tensor, rows: Tensor, columns: Tensor, mass: float) -> None:
    if scaled.shape != (len(rows), len(columns)):
        raise DataError(
            f"the cost has shape {tuple(scaled.shape)} for {len(rows)} rows and {len(columns)} columns. Give one "
            "capacity per row and per column."
        )
    if not all(bool(torch.isfinite(values).all()) for values in (scaled, rows, columns)):
        raise DataError("the cost or a capacity holds NaN or infinite numbers. Give finite numbers.")
    if min(float(rows.min()), float(columns.min())) <= 0:
        raise DataError(
            "a capacity is zero or negative. Give positive capacities, and leave out empty rows or columns."
        )
    if not 0 < mass <= min(float(rows.sum()), float(columns.sum())) * (1 + _ROUNDING):
        raise DataError(
            f"the mass is {mass}; the rows hold {float(rows.sum()):g} and the columns {float(columns.sum()):g}. Give a "
            "positive mass that both can hold."
        )
