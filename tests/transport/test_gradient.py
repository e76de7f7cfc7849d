"""Gradients of plan and value beside finite differences."""

from __future__ import annotations

import doctest

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from uniot.errors import NumericalWarning
from uniot.transport import TransportPlan, balanced, balanced_plan, unbalanced, unbalanced_plan

N, C = 7, 4


@pytest.fixture
def similarity(make_problem) -> Tensor:
    return make_problem(N, C).similarity.requires_grad_()


@pytest.fixture
def class_mass() -> Tensor:
    return torch.tensor([0.1, 0.2, 0.3, 0.6], dtype=torch.float64, requires_grad=True)


def exact_balanced(similarity: Tensor, epsilon: float = 0.2) -> TransportPlan:
    return balanced_plan(similarity, epsilon, 150, tolerance=1e-6, gradient=True)


def exact_unbalanced(similarity: Tensor, class_mass: Tensor | None = None, epsilon: float = 0.05) -> TransportPlan:
    return unbalanced_plan(similarity, class_mass, epsilon, tolerance=1e-13, gradient=True)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_gradient_of_the_balanced_value_and_plan_is_that_of_finite_differences(similarity, epsilon):
    assert exact_balanced(similarity, epsilon).converged
    assert gradcheck(lambda s: exact_balanced(s, epsilon).value, similarity)
    assert gradcheck(lambda s: exact_balanced(s, epsilon).mass, similarity)


@pytest.mark.parametrize("epsilon", [0.02, 0.05, 1.0])
def test_gradient_of_the_unbalanced_value_and_plan_is_that_of_finite_differences(similarity, class_mass, epsilon):
    for name in ("value", "mass", "total_mass", "sample_potential", "class_potential"):
        assert gradcheck(lambda s, b, of=name: getattr(exact_unbalanced(s, b, epsilon), of), (similarity, class_mass))


@pytest.mark.parametrize("solve", [exact_balanced, exact_unbalanced])
def test_gradient_of_the_value_is_the_plan(solve, similarity):
    plan = solve(similarity)
    (found,) = torch.autograd.grad(plan.value, similarity)
    torch.testing.assert_close(found, plan.matrix.detach(), rtol=1e-8, atol=1e-12)


def test_a_class_wins_value_by_more_mass_as_far_as_it_receives_more_than_that(similarity, class_mass):
    # The only term with β is −κ KL(Qᵀ1 ‖ β), whose derivative is κ (received / β − 1).
    plan = exact_unbalanced(similarity, class_mass)
    (found,) = torch.autograd.grad(plan.value, class_mass)
    expected = 0.5 * (plan.class_marginal / class_mass - 1)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "solve",
    [
        lambda s, gradient: balanced_plan(s, 0.2, 300, gradient=gradient),
        lambda s, gradient: unbalanced_plan(s, tolerance=1e-12, gradient=gradient),
    ],
)
def test_plan_with_gradient_is_the_plan_without(solve, similarity):
    with_gradient, without = solve(similarity, gradient=True), solve(similarity, gradient=False)
    for name in ("mass", "total_mass", "sample_potential", "class_potential", "value"):
        assert getattr(with_gradient, name).requires_grad
        assert not getattr(without, name).requires_grad
    torch.testing.assert_close(with_gradient.mass.detach(), without.mass, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(with_gradient.value.detach(), without.value, rtol=1e-10, atol=0)


def test_gradient_of_float32_is_that_of_float64(similarity):
    single = similarity.detach().float().requires_grad_()
    weights = torch.linspace(-1, 1, N * C, dtype=torch.float64).view(N, C)
    (exact_unbalanced(similarity).mass * weights).sum().backward()
    plan = unbalanced_plan(single, epsilon=0.05, gradient=True)
    assert plan.mass.dtype == torch.float32
    (plan.mass * weights).sum().backward()
    assert single.grad.dtype == torch.float32
    torch.testing.assert_close(single.grad.double(), similarity.grad, rtol=1e-2, atol=1e-5)


def test_gradient_is_finite_at_extremes_of_float32():
    similarity = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]], requires_grad=True)
    plan = unbalanced_plan(similarity, torch.tensor([0.5, 0.5, 0.0]), epsilon=1e-3, gradient=True)
    (plan.mass.amax() + plan.value).backward()
    assert torch.isfinite(similarity.grad).all()
    assert float(similarity.grad.abs().max()) > 0


def test_gradient_of_a_plan_that_has_not_converged_is_warned_of(similarity):
    with pytest.warns(NumericalWarning, match="not converged after 3 iterations, so its gradient is not exact"):
        balanced_plan(similarity, gradient=True)


@pytest.mark.parametrize("module", [balanced, unbalanced])
def test_examples_of_the_docstrings_give_what_they_show(module):
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 3
