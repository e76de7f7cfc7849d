from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from uniot.transport import unbalanced_potential
from uniot.transport.iteration import iterate, solve
from uniot.transport.kernel import Kernel, Problem
from uniot.transport.rows import SimilarityRows


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
    monkeypatch.setattr("uniot.transport.kernel._FULL_JACOBIAN_CLASSES", 0)
    monkeypatch.setattr("uniot.transport.kernel._FULL_JACOBIAN_PRODUCTS", 0)
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


@pytest.mark.parametrize("max_passes", [1, 29, 30, 31, 45, 60, 61, 100])
def test_no_more_passes_are_made_than_allowed(max_passes):
    problem = as_problem(hard_problem(0))
    solved = solve(problem, np.full(len(problem.class_mass), 0.0), 1e-15, max_passes)
    assert not solved.converged
    assert solved.passes == max_passes
    assert np.isfinite(solved.potential).all()
