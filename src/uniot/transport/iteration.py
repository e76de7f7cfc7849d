"""Newton's method for the class potential, guarded by the convex objective.

With few classes the whole Jacobian is at hand. With many, its diagonal stands in for it, the common scale is fixed in
closed form, and Anderson mixing makes up for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.transport.kernel import Kernel

_MEMORY = 5
# The diagonal costs as much as the rest of a pass and hardly changes once the iteration has settled.
_PASSES_WITH_DIAGONAL = 3
# The objective is a sum of float32 products: a rise below this share of its value is rounding.
_OBJECTIVE_ROUNDING = 1e-5
# What is left after a step is judged from the last two steps as in a geometric series, with care.
# Newton's own steps shrink ever faster.
_SLOWEST_RATE, _LEAST_REMAINDER, _LEAST_REMAINDER_OF_NEWTON = 0.9, 1.0, 0.01
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Solved:
    """Where the iteration ended."""

    potential: np.ndarray
    error: float
    converged: bool
    passes: int


def iterate(
    kernel: Kernel,
    potential: np.ndarray,
    class_mass: np.ndarray,
    epsilon: float,
    marginal_penalty: float,
    tolerance: float,
    max_passes: int,
) -> Solved:
    """Solves l = T(l) until no ε l_j is further than `tolerance` from the solution, judged by the last steps.

    Args:
        kernel: evaluates T, the column masses and the Jacobian or its diagonal.
        potential: where to start, (c,).
        class_mass: β, (c,), positive.
        epsilon: weight of the entropy.
        marginal_penalty: κ.
        tolerance: on |ε Δl|.
        max_passes: when to give up.
    """
    f = marginal_penalty / (marginal_penalty + epsilon)
    best, safe = np.inf, potential
    mixing = None if kernel.has_full_jacobian else AndersonMixing(len(potential))
    least_remainder = _LEAST_REMAINDER if mixing else _LEAST_REMAINDER_OF_NEWTON
    with_diagonal_until = _PASSES_WITH_DIAGONAL
    length, reach = 0.0, np.inf
    jacobian = np.zeros_like(potential)
    moved = error = np.inf
    while kernel.passes < max_passes:
        # A potential that overflows here is refused below like any other that raises the objective.
        with np.errstate(over="ignore", invalid="ignore"):
            sweep = kernel.sweep(potential, with_jacobian=mixing is None or kernel.passes < with_diagonal_until)
        jacobian = jacobian if sweep.jacobian is None else sweep.jacobian
        transported = sweep.class_mass.sum()
        dual = class_mass @ np.exp(np.minimum(-epsilon / marginal_penalty * potential, 700))
        objective = (marginal_penalty + epsilon) * transported + marginal_penalty * dual
        if not objective <= best * (1 + _OBJECTIVE_ROUNDING):
            potential = safe
            mixing = mixing and AndersonMixing(len(potential))
            with_diagonal_until = kernel.passes + _PASSES_WITH_DIAGONAL
            reach = length / 4
            continue
        residual = sweep.update - potential
        step = newton_step(residual, jacobian, sweep.class_mass / transported, f)
        previous, moved = moved, epsilon * float(np.abs(step).max())
        rate = min(moved / previous, _SLOWEST_RATE)
        error = moved * max(rate / (1 - rate), least_remainder)
        if error <= tolerance:
            return Solved(potential + step, error, True, kernel.passes)
        # A common shift has its best size in closed form, and T never raises the objective: this point is safe.
        shift = np.log(dual / transported) / (1 - f + epsilon / marginal_penalty)
        best, safe = min(best, objective), sweep.update + f * f * shift
        move = mixing.next(potential + step, step) - potential if mixing else step
        # Far from the solution Newton's step is too long; how far it can be trusted shows in what was refused.
        whole = epsilon * float(np.abs(move).max())
        length = min(whole, reach)
        potential = potential + move * (length / max(whole, _TINY))
        reach *= 2
    return Solved(safe, error, False, kernel.passes)


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
