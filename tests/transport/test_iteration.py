from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from uniot.transport.rows import SimilarityRows
from uniot.transport.unbalanced import Kernel, Problem, Sweep, iterate, newton_step, solve, unbalanced_potential


@dataclass(frozen=True)
class Hard:
    """A problem with classes that hardly any row belongs to, little entropy, and maybe a bad place to start."""

    similarity: torch.Tensor
    class_mass: torch.Tensor
    epsilon: float
    start: torch.Tensor | None


def hard_problem(seed: int, most_classes: int = 60) -> Hard:
    rng = np.random.default_rng([7, seed])
    c, n, d = rng.integers(2, most_classes), rng.integers(3, 600), rng.choice([3, 8, 64])
    centres = rng.normal(size=(c + 5, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = centres[rng.integers(0, c + 5, size=n)] + rng.choice([0.05, 0.3, 1.0]) * rng.normal(size=(n, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    start = rng.choice([0, 5, 60]) * rng.normal(size=c)
    return Hard(
        torch.from_numpy(features @ centres[:c].T).float(),
        torch.from_numpy(rng.dirichlet(np.full(c, rng.choice([0.02, 0.1, 1.0, 10.0])))),
        float(rng.choice([0.001, 0.01])),
        torch.from_numpy(start) if start.any() else None,
    )


def gradient(similarity: torch.Tensor, class_mass: torch.Tensor, epsilon: float, potential: torch.Tensor) -> np.ndarray:
    """Column sums of the plan less what they must be at the solution, in float64 and without the solver's code."""
    f = 0.5 / (0.5 + epsilon)
    logits = similarity.double() / epsilon + potential
    rows = torch.logsumexp(logits, dim=1, keepdim=True)
    columns = torch.exp(logits - f * rows - f * np.log(len(similarity))).sum(dim=0)
    wanted = class_mass.clamp(min=1e-10) * torch.exp(-epsilon / 0.5 * potential)
    return ((columns - wanted) / wanted.sum()).numpy()


@pytest.mark.parametrize("seed", range(60))
def test_hard_problems_are_solved(seed):
    hard = hard_problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = unbalanced_potential(hard.similarity, hard.class_mass, hard.epsilon, start=hard.start)
    assert answer.converged
    error = gradient(hard.similarity, hard.class_mass, hard.epsilon, answer.class_potential)
    assert np.abs(error).max() < 1e-4


@pytest.mark.parametrize("seed", range(6))
def test_hard_problems_of_many_classes_are_solved_though_their_diagonal_misleads(seed, monkeypatch):
    monkeypatch.setattr("uniot.transport.unbalanced._FULL_JACOBIAN_CLASSES", 0)
    monkeypatch.setattr("uniot.transport.unbalanced._FULL_JACOBIAN_PRODUCTS", 0)
    hard = hard_problem(seed, most_classes=200)
    answer = unbalanced_potential(hard.similarity, hard.class_mass, hard.epsilon, start=hard.start)
    assert answer.converged
    error = gradient(hard.similarity, hard.class_mass, hard.epsilon, answer.class_potential)
    assert np.abs(error).max() < 1e-4


def as_problem(hard: Hard) -> Problem:
    mass = np.maximum(hard.class_mass.numpy(), 1e-10)
    return Problem(SimilarityRows(hard.similarity), None, len(hard.similarity), mass, hard.epsilon, 0.5, None)


def test_smoother_problems_help_where_newton_alone_gives_up():
    problems = [as_problem(hard_problem(seed)) for seed in range(60)]
    starts = [np.zeros(len(problem.class_mass)) for problem in problems]
    kernels = [Kernel(problem, full_jacobian=True) for problem in problems]
    alone = [iterate(kernel, start, 1e-6, 30) for kernel, start in zip(kernels, starts, strict=True)]
    given_up = [i for i, solved in enumerate(alone) if not solved.converged]
    assert given_up
    for i in given_up:
        solved = solve(problems[i], starts[i], 1e-6, 500)
        assert solved.converged
        assert alone[i].passes < solved.passes <= 500


class Shrinking:
    """A map whose steps shrink by one factor, and a Jacobian that says nothing of it: T(l) = l times the factor."""

    has_full_jacobian = True

    def __init__(self, factor: float) -> None:
        self.problem = as_problem(Hard(torch.zeros(2, 2), torch.full((2,), 0.5), 0.01, None))
        self.factor, self.passes = factor, 0

    def sweep(self, potential, *, with_jacobian):
        self.passes += 1
        return Sweep(self.factor * potential, np.full(2, 0.5), np.zeros((2, 2)))


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("tolerance", [1e-5, 1e-8])
def test_error_is_what_is_left_of_a_geometric_series(factor, tolerance):
    # The objective falls on the way from -1 to the solution at 0.
    solved = iterate(Shrinking(factor), np.full(2, -1.0), tolerance, 500)
    assert solved.converged
    left = 0.01 * np.abs(solved.potential).max()
    assert left <= tolerance * (1 + 1e-9)
    assert solved.error == pytest.approx(left)


def test_step_by_the_diagonal_has_the_exact_common_scale():
    """Where all residuals are equal, the rows of P sum to one and (I − f² P) d = r has d = r / (1 − f²)."""
    rng = np.random.default_rng(0)
    share, diagonal, f = rng.dirichlet(np.ones(5)), rng.uniform(0, 1, 5), 0.9
    residual = rng.normal(size=5)
    step = newton_step(residual, diagonal, share, f)
    assert share @ step == pytest.approx(share @ residual / (1 - f * f))
    # Up to that scale, every class moves by itself.
    alone = residual / (1 - f * f * diagonal)
    np.testing.assert_allclose(step - step[0], alone - alone[0])


def test_start_from_which_no_mass_is_seen_leads_to_the_same_solution():
    similarity = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    answer = unbalanced_potential(similarity, start=torch.full((4,), -2e4, dtype=torch.float64))
    assert answer.converged
    expected = unbalanced_potential(similarity).class_potential
    torch.testing.assert_close(answer.class_potential, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("max_passes", [1, 29, 30, 31, 45, 60, 61, 100])
def test_no_more_passes_are_made_than_allowed(max_passes):
    problem = as_problem(hard_problem(0))
    # An error of 1e-15 is reached on some processors, a negative one on none.
    solved = solve(problem, np.full(len(problem.class_mass), 0.0), -1.0, max_passes)
    assert not solved.converged
    assert solved.passes == max_passes
    assert np.isfinite(solved.potential).all()
