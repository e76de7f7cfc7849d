"""What holds for the plan of every problem: potentials, marginals and value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from uniot.transport import TransportPlan, balanced_plan, partial_plan, unbalanced_plan

N, C, EPSILON, KAPPA, MASS = 24, 5, 0.05, 0.5, 0.6
ALPHA = torch.full((N,), 1 / N, dtype=torch.float64)
BETA = torch.tensor([0.1, 0.2, 0.2, 0.2, 0.3], dtype=torch.float64)
EVEN = torch.full((C,), 1 / C, dtype=torch.float64)
CAPACITY = torch.tensor([0.1, 0.1, 0.2, 0.3, 0.3], dtype=torch.float64)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q).log() - p + q).sum()


def entropic(plan: Tensor, similarity: Tensor) -> Tensor:
    return (plan * similarity).sum() - EPSILON * (plan * (plan.log() - 1)).sum()


@dataclass(frozen=True)
class Case:
    """A problem: its solver, its objective, and a plan that is allowed but not the best."""

    solve: Callable[[Tensor], TransportPlan]
    objective: Callable[[Tensor, Tensor], Tensor]
    another: Tensor


CASES = {
    "balanced": Case(lambda s: balanced_plan(s, EPSILON, 2000, tolerance=1e-9), entropic, torch.outer(ALPHA, EVEN)),
    "unbalanced": Case(
        lambda s: unbalanced_plan(s, BETA, EPSILON, KAPPA, tolerance=1e-12),
        lambda q, s: entropic(q, s) - KAPPA * (divergence(q.sum(1), ALPHA) + divergence(q.sum(0), BETA)),
        torch.outer(ALPHA, BETA),
    ),
    "partial": Case(
        lambda s: partial_plan(s, ALPHA, CAPACITY, MASS, EPSILON, tolerance=1e-11, max_passes=20_000),
        entropic,
        MASS * torch.outer(ALPHA, CAPACITY),
    ),
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture
def similarity(make_problem) -> Tensor:
    return make_problem(N, C).similarity


def test_potentials_and_similarity_give_the_plan(case, similarity):
    plan = case.solve(similarity)
    assert plan.converged
    rebuilt = (plan.sample_potential[:, None] + similarity / EPSILON + plan.class_potential).exp()
    assert rebuilt.numpy() == pytest.approx(plan.matrix.numpy(), rel=1e-9, abs=1e-14)


def test_value_is_the_objective_of_the_plan_and_no_other_plan_reaches_it(case, similarity):
    plan = case.solve(similarity)
    assert float(plan.value) == pytest.approx(float(case.objective(plan.matrix, similarity)), abs=1e-9)
    assert float(case.objective(case.another, similarity)) < float(plan.value)


def test_marginals_are_the_sums_of_the_plan_and_mass_sums_to_one(case, similarity):
    plan = case.solve(similarity)
    assert float(plan.mass.sum()) == pytest.approx(1, abs=1e-9)
    assert plan.matrix.numpy() == pytest.approx((plan.mass * plan.total_mass).numpy(), rel=1e-12)
    assert plan.sample_marginal.numpy() == pytest.approx(plan.matrix.sum(dim=1).numpy(), rel=1e-12)
    assert plan.class_marginal.numpy() == pytest.approx(plan.matrix.sum(dim=0).numpy(), rel=1e-12)
    assert plan.sample_confidence.numpy() == pytest.approx(plan.mass.amax(dim=1).numpy())
    assert plan.class_confidence.numpy() == pytest.approx(plan.mass.sum(dim=0).numpy())


def test_float32_gives_the_potentials_and_the_value_of_float64(case, similarity):
    exact, rough = case.solve(similarity), case.solve(similarity.float())
    assert rough.mass.dtype == torch.float32
    assert rough.sample_potential.numpy() == pytest.approx(exact.sample_potential.numpy(), abs=1e-3)
    assert rough.class_potential.numpy() == pytest.approx(exact.class_potential.numpy(), abs=1e-3)
    assert float(rough.value) == pytest.approx(float(exact.value), abs=1e-5)


def test_value_is_an_upper_bound_before_the_solver_has_converged(similarity):
    exact = CASES["balanced"].solve(similarity)
    values = [float(balanced_plan(similarity, EPSILON, count).value) for count in (1, 2, 5, 20)]
    assert values == sorted(values, reverse=True)
    assert values[0] > float(exact.value) - 1e-12


@pytest.mark.parametrize("marginal_penalty", [0.05, 0.5])
def test_total_that_no_float_holds_still_has_a_plan(marginal_penalty):
    # Costs of a thousand leave a total of about e^(-1000/κ).
    similarity = torch.tensor([[-1000.0, -1000.1], [-1000.1, -1000.0]], dtype=torch.float64)
    plan = unbalanced_plan(similarity, epsilon=0.1, marginal_penalty=marginal_penalty)
    assert float(plan.mass.sum()) == pytest.approx(1)
    assert np.array_equal(plan.matrix.numpy(), np.zeros((2, 2)))
