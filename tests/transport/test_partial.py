"""Partial transport beside POT, by hand, and where plain kernels underflow."""

from __future__ import annotations

import math

import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uniot.errors import DataError, SettingsError
from uniot.transport.partial import partial_plan


def problem(seed: int, n: int = 8, k: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    similarity = -torch.rand(n, k, generator=generator, dtype=torch.float64)
    rows, columns = (torch.rand(size, generator=generator, dtype=torch.float64) + 0.2 for size in (n, k))
    return similarity / similarity.abs().max(), rows / rows.sum(), columns / columns.sum()


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
@pytest.mark.parametrize("mass", [0.1, 0.5, 0.8])
def test_plan_matches_pot(mass, epsilon):
    similarity, rows, columns = problem(0)
    found = partial_plan(similarity, rows, columns, mass, epsilon, tolerance=1e-12, max_passes=100_000)
    expected = ot.partial.entropic_partial_wasserstein(
        rows.numpy(), columns.numpy(), -similarity.numpy(), epsilon, m=mass, numItermax=100_000, stopThr=1e-14
    )
    assert found.converged
    assert abs(found.matrix.numpy() - expected).max() < 1e-8


def test_plan_worked_by_hand():
    # Both rows could send 1/2, the only column takes 1, and 1/2 is moved: nothing is used up, so the masses are as
    # e^0 to e^-ln 3, that is 3/8 and 1/8. If the first row can send 1/4 only, the second sends the other 1/4.
    similarity, column = torch.tensor([[0.0], [-math.log(3)]], dtype=torch.float64), torch.ones(1)
    free = partial_plan(similarity, torch.tensor([0.5, 0.5]), column, 0.5, epsilon=1.0)
    assert free.matrix.flatten().tolist() == pytest.approx([3 / 8, 1 / 8])
    full = partial_plan(similarity, torch.tensor([0.25, 0.5]), column, 0.5, epsilon=1.0)
    assert full.matrix.flatten().tolist() == pytest.approx([1 / 4, 1 / 4])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), mass=st.floats(0.01, 0.9))
def test_plan_moves_the_mass_within_the_capacities(seed, mass):
    similarity, rows, columns = problem(seed)
    plan = partial_plan(similarity, rows, columns, mass, 0.05, tolerance=1e-9, max_passes=20_000).matrix
    assert float(plan.sum()) == pytest.approx(mass, rel=1e-9)
    assert bool((plan.sum(dim=1) <= rows + 1e-7).all())
    assert bool((plan.sum(dim=0) <= columns + 1e-7).all())


def test_rows_that_are_not_used_up_have_the_kernel_of_the_similarity():
    # With little mass no capacity matters: the plan is the softmax of S/ε.
    similarity, rows, columns = problem(1)
    plan = partial_plan(similarity, rows, columns, 1e-3, 1.0).matrix
    assert torch.allclose(plan, 1e-3 * similarity.flatten().softmax(0).view_as(similarity))


def test_plan_is_finite_if_every_entry_of_the_kernel_underflows():
    similarity, rows, columns = problem(2)
    plan = partial_plan(similarity, rows, columns, 0.5, 0.05, tolerance=1e-9, max_passes=20_000).matrix
    # e^-100020 is zero; a constant in the similarity changes nothing.
    shifted = partial_plan(similarity - 5000, rows, columns, 0.5, 0.05, tolerance=1e-9, max_passes=20_000).matrix
    assert torch.allclose(plan, shifted, atol=1e-8)


def test_whole_mass_is_balanced_transport():
    similarity, rows, columns = problem(3)
    plan = partial_plan(similarity, rows, columns, 1.0, 0.1, tolerance=1e-10, max_passes=100_000).matrix
    expected = ot.sinkhorn(rows.numpy(), columns.numpy(), -similarity.numpy(), 0.1, stopThr=1e-13)
    assert abs(plan.numpy() - expected).max() < 1e-6


def test_plan_has_the_type_of_the_similarity_and_says_whether_it_converged():
    similarity, rows, columns = problem(4)
    early = partial_plan(similarity.float(), rows, columns, 0.5, max_passes=1)
    assert early.mass.dtype == torch.float32
    assert (early.converged, early.passes) == (False, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mass": 1.1}, "the mass is 1.1; the rows hold 1 and the columns 1"),
        ({"mass": 0.0}, "the mass is 0.0"),
        ({"rows": torch.ones(3)}, "for 3 rows and 12 columns"),
        ({"columns": torch.zeros(12)}, "a capacity is zero or negative"),
        ({"similarity": torch.full((8, 12), math.nan)}, "NaN or infinite"),
    ],
)
def test_problem_without_a_solution_is_named(change, words):
    similarity, rows, columns = problem(5)
    given = {"similarity": similarity, "rows": rows, "columns": columns, "mass": 0.5} | change
    with pytest.raises(DataError, match=words):
        partial_plan(given["similarity"], given["rows"], given["columns"], given["mass"])


def test_epsilon_of_zero_is_named():
    with pytest.raises(SettingsError, match="epsilon is 0"):
        partial_plan(*problem(6), 0.5, 0)
