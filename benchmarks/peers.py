"""POT and OTT-JAX on the unbalanced problem of the paper, with our conventions at the border."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
from problems import Problem

EPSILON, MARGINAL_PENALTY = 0.01, 0.5
SHRINKAGE = MARGINAL_PENALTY / (MARGINAL_PENALTY + EPSILON)
# The rate of plain scaling is f² a round, for which over-relaxation by 2 / (1 + √(1 - f²)) is best.
BEST_MOMENTUM = 2 / (1 + math.sqrt(1 - SHRINKAGE**2))
# f² to this power is below 1e-20: nothing of the start is left.
TO_THE_END = 1200


class Pot:
    """POT in float64; the cost is prepared here, outside any timer."""

    def __init__(self, problem: Problem) -> None:
        similarity = problem.similarity
        self._cost = -similarity.double().numpy()
        self._sample_mass = np.full(len(similarity), 1 / len(similarity))
        self._class_mass = problem.class_mass.numpy()

    def plan(self, stop: float = 1e-6, iterations: int = 10_000) -> np.ndarray:
        """Not divided by its total."""
        return self._solve(stop, iterations, log=False)

    def class_potential(self, stop: float = 1e-6, iterations: int = 10_000) -> tuple[np.ndarray, int]:
        """log v, and the number of iterations made."""
        _, log = self._solve(stop, iterations, log=True)
        return log["logv"], len(log["err"])

    def _solve(self, stop: float, iterations: int, *, log: bool):
        import ot

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "If reg_type = entropy", UserWarning)
            return ot.unbalanced.sinkhorn_knopp_unbalanced(
                self._sample_mass,
                self._class_mass,
                self._cost,
                reg=EPSILON,
                reg_m=MARGINAL_PENALTY,
                reg_type="entropy",
                stopThr=stop,
                numItermax=iterations,
                log=log,
            )


class Ott:
    """OTT-JAX in float32 and logarithms; its kernel mode overflows or underflows float32 at this ε.

    Its scaling steps carry no product of the marginals, so g/ε is our log v as it stands, uniform masses or not.
    """

    def __init__(self, problem: Problem, momentum: float) -> None:
        import jax.numpy as jnp

        similarity = problem.similarity.numpy()
        n = len(similarity)
        self._arrays = (
            jnp.asarray(-similarity),
            jnp.full(n, 1 / n, dtype=jnp.float32),
            jnp.asarray(problem.class_mass.numpy(), dtype=jnp.float32),
        )
        self._momentum = momentum

    def class_potential(self, iterations: int) -> np.ndarray:
        """log v, (c,)."""
        potential = self.compiled(iterations, plan=False)()
        return np.asarray(potential, dtype=np.float64) / EPSILON

    def compiled(self, iterations: int, *, plan: bool) -> Callable[[], object]:
        """A call that waits for the answer: the plan, or the class potential g alone."""
        solve = _compiled(iterations, self._momentum, plan)
        return lambda: solve(*self._arrays).block_until_ready()


@cache
def _compiled(iterations: int, momentum: float, plan: bool):
    import jax
    from ott.geometry.geometry import Geometry
    from ott.problems.linear.linear_problem import LinearProblem
    from ott.solvers.linear.acceleration import Momentum
    from ott.solvers.linear.sinkhorn import Sinkhorn

    # The number of iterations is given, so that no time goes into watching the error.
    solver = Sinkhorn(
        min_iterations=iterations,
        max_iterations=iterations,
        inner_iterations=iterations,
        momentum=Momentum(value=momentum),
    )

    def solve(cost, sample_mass, class_mass):
        geometry = Geometry(cost_matrix=cost, epsilon=EPSILON)
        answer = solver(LinearProblem(geometry, sample_mass, class_mass, tau_a=SHRINKAGE, tau_b=SHRINKAGE))
        return answer.matrix if plan else answer.g

    return jax.jit(solve)


def fewest_iterations(error_at: Callable[[int], float], target: float, start: int, step: int = 5) -> int:
    """Fewest iterations, in steps, whose error is at most `target`, or after which it no longer falls."""
    error_at = cache(error_at)
    count = start
    while count > step and error_at(count) <= target:
        count -= step
    while error_at(count) > target and error_at(count + step) < 0.9 * error_at(count):
        count += step
    return count
