"""Newton's method for the class potential, guarded by the convex objective.

With few classes the whole Jacobian is at hand. With many, its diagonal stands in for it, the common scale is fixed in
closed form, and Anderson mixing makes up for the rest. What does not yield to either is approached from problems
with more entropy, with the whole Jacobian.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from uniot.transport.kernel import Kernel, Problem

_MEMORY = 5
# The diagonal costs as much as the rest of a pass and hardly changes once the iteration has settled.
_PASSES_WITH_DIAGONAL = 3
# The objective is a sum of float32 products: a rise below this share of its value is rounding.
_OBJECTIVE_ROUNDING = 1e-5
# Mixed steps do not shrink the residual each time.
_MIXING_MAY_GROW = 4.0
# What is left after a step is judged from the last two steps as in a geometric series, with care.
# Newton's own steps shrink with their square, once they are short.
_SLOWEST_RATE, _LEAST_REMAINDER_OF_NEWTON = 0.9, 0.01
# Hard problems (small ε, classes without rows) are approached from smoother ones; ε l hardly changes on the way.
_PASSES_AT_ONCE, _SMOOTHING, _SMOOTH_TOLERANCE = 30, 3.0, 1e-3
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Solved:
    """Where the iteration ended, and the kernel that it used."""

    kernel: Kernel
    potential: np.ndarray
    error: float
    converged: bool
    passes: int


def solve(problem: Problem, potential: np.ndarray, tolerance: float, max_passes: int) -> Solved:
    """Finds the class potential, at once as a rule, or by way of smoother problems.

    Args:
        problem: what to solve.
        potential: where to start, (c,).
        tolerance: on |ε Δl|.
        max_passes: when to give up, everything counted.
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
    """Solves roughly with a larger ε, where Newton's method goes further, and with a still larger one if it must."""
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
    """Solves l = T(l) until no ε l_j is further than `tolerance` from the solution, judged by the last steps.

    Args:
        kernel: evaluates T, the column masses and the Jacobian or its diagonal.
        potential: where to start, (c,).
        tolerance: on |ε Δl|.
        max_passes: when to give up.
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
        # A potential that overflows here is refused below like any other that raises the objective.
        with np.errstate(over="ignore", invalid="ignore"):
            sweep = kernel.sweep(potential, with_jacobian=mixing is None or kernel.passes < with_diagonal_until)
        jacobian = jacobian if sweep.jacobian is None else sweep.jacobian
        transported = sweep.class_mass.sum()
        dual = problem.class_mass @ np.exp(np.minimum(-epsilon / kappa * potential, 700))
        objective = (kappa + epsilon) * transported + kappa * dual
        residual = sweep.update - potential
        largest = float(np.abs(residual).max())
        # Where rounding hides the objective's change, the residual tells whether the step led nearer.
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
        # A common shift has its best size in closed form, and T never raises the objective: this point is safe.
        shift = np.log(dual / transported) / (1 - f + epsilon / kappa)
        safe = sweep.update + f * f * shift
        move = mixing.next(potential + step, step) - potential if mixing else step
        # Far from the solution Newton's step is too long; how far it can be trusted shows in what was refused.
        whole = epsilon * float(np.abs(move).max())
        length = min(whole, reach)
        potential = potential + move * (length / max(whole, _TINY))
        reach *= 2
    return Solved(kernel, reached, error, False, kernel.passes)


def newton_step(residual: np.ndarray, jacobian: np.ndarray, share: np.ndarray, f: float) -> np.ndarray:
    """Solves (I − f² P) d = T(l) − l, with P whole (c, c), or with its diagonal (c,) and the exact common scale.

    Args:
        residual: T(l) − l, (c,).
        jacobian: P or its diagonal; the rows of P sum to one.
        share: each class's share of the transported mass, (c,).
        f: κ / (κ + ε).
    """
    if jacobian.ndim == 2:
        system = -f * f * jacobian
        system.flat[:: len(residual) + 1] += 1
        return np.linalg.solve(system, residual)
    step = residual / (1 - f * f * jacobian)
    step += (share @ residual) / (1 - f * f) - share @ step
    return step


class AndersonMixing:
    """Combines the last few steps so that their next one would be smallest."""

    def __init__(self, size: int, memory: int = _MEMORY) -> None:
        self._step_changes = np.zeros((memory, size))
        self._point_changes = np.zeros((memory, size))
        self._seen = 0
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def next(self, point: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The mixed next iterate, given where the last step led and the step itself."""
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
        # Nearly parallel steps must not blow the weights up.
        gram.flat[:: used + 1] += 1e-10 * gram.trace() + _TINY
        weights = np.linalg.solve(gram, changes @ step)
        mixed: np.ndarray = point - weights @ self._point_changes[:used]
        return mixed
