"""Find the class potential by Newton's method, safeguarded by the convex objective.

With few classes the full Jacobian is used. With many, its diagonal is used, the common scale has a closed form, and
Anderson mixing accelerates the rest. If neither converges, the problem is approached from problems with more
entropy, with the full Jacobian.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from uniot.transport.kernel import Kernel, Problem

_MEMORY = 5
# The diagonal costs as much as the rest of a pass and hardly changes after the first passes.
_PASSES_WITH_DIAGONAL = 3
# The objective is a sum of float32 products: a relative increase below this is rounding.
_OBJECTIVE_ROUNDING = 1e-5
# A mixed step need not reduce the residual; it may grow by this factor.
_MIXING_MAY_GROW = 4.0
# The error after a step is estimated from the last two steps as in a geometric series, with a bound on its rate.
# Short Newton steps converge quadratically.
_SLOWEST_RATE, _LEAST_REMAINDER_OF_NEWTON = 0.9, 0.01
# Hard problems (small ε, classes without rows) are approached from smoother ones; ε l changes little with ε.
_PASSES_AT_ONCE, _SMOOTHING, _SMOOTH_TOLERANCE = 30, 3.0, 1e-3
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Solved:
    """Result of the iteration.

    Attributes:
        kernel: kernel of the problem.
        potential: class potential, (n_classes,).
        error: estimated error of ε times the potential.
        converged: whether the error is within the tolerance.
        passes: number of passes over the rows.
    """

    kernel: Kernel
    potential: np.ndarray
    error: float
    converged: bool
    passes: int


def solve(problem: Problem, potential: np.ndarray, tolerance: float, max_passes: int) -> Solved:
    """Solve for the class potential, directly or, if that fails, through smoother problems.

    Args:
        problem: the problem.
        potential: initial potential, (n_classes,).
        tolerance: largest |ε Δl|.
        max_passes: maximum number of passes over the rows, including those of smoother problems.

    Returns:
        The potential, converged or not.
    """
    kernel = Kernel(problem, full_jacobian=problem.prefers_full_jacobian)
    solved = iterate(kernel, potential, tolerance, min(max_passes, _PASSES_AT_ONCE))
    if solved.converged or max_passes <= _PASSES_AT_ONCE:
        return solved
    smooth = _solve_smoother(problem, _SMOOTHING * problem.epsilon, max_passes - solved.passes)
    kernel = Kernel(problem, full_jacobian=True)
    passes = solved.passes + smooth.passes
    exact = iterate(kernel, _SMOOTHING * smooth.potential, tolerance, max_passes - passes)
    return replace(exact, passes=passes + exact.passes)


def _solve_smoother(problem: Problem, epsilon: float, max_passes: int) -> Solved:
    """Solve coarsely with a larger ε, for which Newton's method converges from farther away; recursively larger."""
    smoother = Kernel(replace(problem, epsilon=epsilon), full_jacobian=True)
    most = min(max_passes, _PASSES_AT_ONCE)
    solved = iterate(smoother, np.zeros(len(problem.class_mass)), _SMOOTH_TOLERANCE, most)
    if solved.converged or max_passes <= _PASSES_AT_ONCE:
        return solved
    before = _solve_smoother(problem, _SMOOTHING * epsilon, max_passes - solved.passes)
    passes = solved.passes + before.passes
    most = min(max_passes - passes, _PASSES_AT_ONCE)
    again = iterate(smoother, _SMOOTHING * before.potential, _SMOOTH_TOLERANCE, smoother.passes + most)
    return replace(again, passes=passes + again.passes - solved.passes)


def iterate(kernel: Kernel, potential: np.ndarray, tolerance: float, max_passes: int) -> Solved:
    """Solve l = T(l) until the estimated error of every ε l_j is at most `tolerance`.

    Args:
        kernel: evaluates T, the column masses and the Jacobian or its diagonal.
        potential: initial potential, (n_classes,).
        tolerance: largest |ε Δl|.
        max_passes: maximum number of passes.

    Returns:
        The potential, converged or not.
    """
    problem = kernel.problem
    epsilon, kappa, f = problem.epsilon, problem.marginal_penalty, problem.shrinkage
    mixing = None if kernel.has_full_jacobian else AndersonMixing(len(potential))
    with_diagonal_until = _PASSES_WITH_DIAGONAL
    best = allowed_residual = np.inf
    reached = safe = potential
    length, reach = 0.0, np.inf
    jacobian = np.zeros_like(potential)
    moved = error = np.inf
    while kernel.passes < max_passes:
        # A potential that overflows here is rejected below, like any other that increases the objective.
        with np.errstate(over="ignore", invalid="ignore"):
            sweep = kernel.sweep(potential, with_jacobian=mixing is None or kernel.passes < with_diagonal_until)
        jacobian = jacobian if sweep.jacobian is None else sweep.jacobian
        transported = sweep.class_mass.sum()
        dual = problem.class_mass @ np.exp(np.minimum(-epsilon / kappa * potential, 700))
        objective = (kappa + epsilon) * transported + kappa * dual
        residual = sweep.update - potential
        largest = float(np.abs(residual).max())
        # If the change of the objective is below rounding, the residual decides whether the step is accepted.
        is_lower = objective < best * (1 - _OBJECTIVE_ROUNDING)
        is_nearer = objective <= best * (1 + _OBJECTIVE_ROUNDING) and largest <= allowed_residual
        if potential is not safe and not (is_lower or is_nearer):
            potential = safe
            mixing = mixing and AndersonMixing(len(potential))
            with_diagonal_until = kernel.passes + _PASSES_WITH_DIAGONAL
            reach = length / 4
            continue
        reached, best, allowed_residual = potential, objective, largest * (_MIXING_MAY_GROW if mixing else 1)
        step = newton_step(residual, jacobian, sweep.class_mass / transported, f)
        previous, moved = moved, epsilon * float(np.abs(step).max())
        rate = min(moved / previous, _SLOWEST_RATE)
        least_remainder = 1.0 if mixing else min(max(moved / epsilon, _LEAST_REMAINDER_OF_NEWTON), 1.0)
        error = moved * max(rate / (1 - rate), least_remainder)
        if error <= tolerance:
            return Solved(kernel, potential + step, error, True, kernel.passes)
        # The best common shift has a closed form, and T never increases the objective: this point is always accepted.
        shift = np.log(dual / transported) / (1 - f + epsilon / kappa)
        safe = sweep.update + f * f * shift
        move = mixing.next(potential + step, step) - potential if mixing else step
        # Far from the solution Newton's step is too long; a rejected step shortens the trust radius.
        whole = epsilon * float(np.abs(move).max())
        length = min(whole, reach)
        potential = potential + move * (length / max(whole, _TINY))
        reach *= 2
    return Solved(kernel, reached, error, False, kernel.passes)


def newton_step(residual: np.ndarray, jacobian: np.ndarray, share: np.ndarray, f: float) -> np.ndarray:
    """Solve (I − f² P) d = T(l) − l for the step d.

    Args:
        residual: T(l) − l, (n_classes,).
        jacobian: P, (n_classes, n_classes), whose rows sum to one; or its diagonal, (n_classes,), in which case the
            common scale of the step is still exact.
        share: fraction of the transported mass per class, (n_classes,).
        f: κ / (κ + ε).

    Returns:
        The step d, (n_classes,).
    """
    if jacobian.ndim == 2:
        system = -f * f * jacobian
        system.flat[:: len(residual) + 1] += 1
        return np.linalg.solve(system, residual)
    step = residual / (1 - f * f * jacobian)
    step += (share @ residual) / (1 - f * f) - share @ step
    return step


class AndersonMixing:
    """Combines the last few steps to minimise the predicted next step (Anderson acceleration)."""

    def __init__(self, size: int, memory: int = _MEMORY) -> None:
        self._step_changes = np.zeros((memory, size))
        self._point_changes = np.zeros((memory, size))
        self._seen = 0
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def next(self, point: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Return the next iterate, (n_classes,), from the point that the last step reached and the step itself."""
        last, self._last = self._last, (point, step)
        if last is None:
            return point
        place = self._seen % len(self._step_changes)
        self._seen += 1
        self._point_changes[place] = point - last[0]
        self._step_changes[place] = step - last[1]
        used = min(self._seen, len(self._step_changes))
        changes = self._step_changes[:used]
        gram = changes @ changes.T
        # Regularised, because nearly parallel steps would give huge weights.
        gram.flat[:: used + 1] += 1e-10 * gram.trace() + _TINY
        weights = np.linalg.solve(gram, changes @ step)
        mixed: np.ndarray = point - weights @ self._point_changes[:used]
        return mixed
