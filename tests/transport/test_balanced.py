from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from uniot.errors import DataError, SettingsError
from uniot.transport.balanced import balanced_plan


def swav_codes(similarity: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The recurrence of SwAV: clusters are rows; each round evens out the clusters, then the samples."""
    q = torch.exp(similarity / epsilon).t()
    clusters, samples = q.shape
    q = q / q.sum()
    for _ in range(iterations):
        q = q / q.sum(dim=1, keepdim=True) / clusters
        q = q / q.sum(dim=0, keepdim=True) / samples
    return (q * samples).t()


@pytest.fixture
def similarity(make_problem):
    return make_problem(30, 6).similarity


def test_every_sample_gives_the_same_mass_after_any_number_of_iterations(similarity):
    for iterations in (1, 2, 3, 50):
        rows = balanced_plan(similarity, iterations=iterations).mass.sum(dim=1)
        assert rows.numpy() == pytest.approx(np.full(30, 1 / 30), rel=1e-12)


def test_every_cluster_receives_the_same_mass_in_the_limit(similarity):
    columns = balanced_plan(similarity, iterations=2000).mass.sum(dim=0)
    assert columns.numpy() == pytest.approx(np.full(6, 1 / 6), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_many_iterations_give_the_plan_of_pot(similarity, epsilon):
    import ot

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sinkhorn did not converge", UserWarning)
        expected = ot.sinkhorn(
            np.full(30, 1 / 30), np.full(6, 1 / 6), -similarity.numpy(), epsilon, numItermax=3000, stopThr=0
        )
    plan = balanced_plan(similarity, epsilon, iterations=3000).mass
    assert plan.numpy() == pytest.approx(expected, rel=1e-8, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_three_iterations_are_the_codes_of_swav(similarity, dtype):
    codes = balanced_plan(similarity.to(dtype), epsilon=0.05, iterations=3).mass * 30
    assert codes.dtype == dtype
    within = 1e-10 if dtype == torch.float64 else 1e-4
    assert codes.numpy() == pytest.approx(swav_codes(similarity, 0.05, 3).numpy(), rel=within, abs=1e-7)


def test_reference_values_are_the_defaults(similarity):
    assert torch.equal(balanced_plan(similarity).mass, balanced_plan(similarity, epsilon=0.05, iterations=3).mass)


def test_two_by_two_worked_by_hand():
    # exp(S/ε) = [[4, 1], [1, 1]]. For masses of 1/2, the plan [[a, ½−a], [½−a, a]] keeps the kernel's cross
    # ratio: a² / (½−a)² = 4·1 / (1·1) = 4, so a = 2 (½−a), a = 1/3.
    similarity = torch.tensor([[math.log(4), 0], [0, 0]], dtype=torch.float64)
    plan = balanced_plan(similarity, epsilon=1, iterations=200).mass
    assert plan.tolist() == [pytest.approx([1 / 3, 1 / 6]), pytest.approx([1 / 6, 1 / 3])]


def test_sure_samples_of_a_crowded_cluster_are_moved_to_the_empty_one():
    # All four prefer cluster 0; equal shares force the two that prefer it least into cluster 1.
    similarity = torch.tensor([[0.9, 0.1], [0.8, 0.1], [0.5, 0.4], [0.5, 0.45]])
    assert balanced_plan(similarity, iterations=200).mass.argmax(dim=1).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("epsilon", [0.05, 0.01, 0.001])
def test_cluster_that_is_far_from_every_sample_receives_its_part(epsilon):
    # e^(-2/ε) is nothing in float32 where ε is small.
    similarity = torch.tensor([[1.0, -1.0]]).expand(6, 2)
    torch.testing.assert_close(balanced_plan(similarity, epsilon).mass, torch.full((6, 2), 1 / 12))


def test_shift_of_a_row_or_a_column_changes_nothing_in_the_limit(similarity):
    shifted = similarity + torch.linspace(-1, 1, 30, dtype=torch.float64)[:, None] + torch.linspace(0, 0.5, 6)
    plan = balanced_plan(similarity, iterations=3000).mass
    assert balanced_plan(shifted, iterations=3000).mass.numpy() == pytest.approx(plan.numpy(), rel=1e-7, abs=1e-15)


@pytest.mark.parametrize("iterations", [1, 3, 20])
def test_logarithms_give_what_the_plain_scalings_give(similarity, iterations, monkeypatch):
    plain = balanced_plan(similarity, iterations=iterations).mass
    monkeypatch.setattr("uniot.transport.balanced._SAFE_SPREAD", 0.0)
    assert balanced_plan(similarity, iterations=iterations).mass.numpy() == pytest.approx(plain.numpy(), rel=1e-10)


def test_order_of_samples_does_not_matter(similarity):
    order = torch.randperm(30)
    plan = balanced_plan(similarity).mass[order]
    assert balanced_plan(similarity[order]).mass.numpy() == pytest.approx(plan.numpy(), rel=1e-10)


@settings(max_examples=50)
@given(
    similarity=st.tuples(st.integers(1, 10), st.integers(1, 6)).flatmap(
        lambda shape: arrays(np.float32, shape, elements=st.floats(-1, 1, width=32, allow_subnormal=False))
    ),
    log10_epsilon=st.floats(-3, 1),
    iterations=st.sampled_from([1, 3, 40]),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_any_cosines_give_a_finite_plan_whose_rows_are_even(similarity, log10_epsilon, iterations, dtype):
    plan = balanced_plan(torch.from_numpy(similarity).to(dtype), 10**log10_epsilon, iterations).mass
    assert torch.isfinite(plan).all()
    assert plan.sum(dim=1).numpy() == pytest.approx(np.full(len(plan), 1 / len(plan)), rel=1e-4)


def test_plan_of_a_similarity_that_is_being_trained_carries_no_gradient():
    plan = balanced_plan(torch.rand(6, 3, requires_grad=True))
    assert not plan.mass.requires_grad
    assert not plan.value.requires_grad
    assert float(plan.mass.sum()) == pytest.approx(1, abs=1e-6)


def test_plan_has_converged_once_every_column_has_its_mass(similarity):
    assert not balanced_plan(similarity, iterations=3).converged
    assert balanced_plan(similarity, iterations=2000).converged
    off = float((balanced_plan(similarity, iterations=3).class_marginal * 6 - 1).abs().max())
    assert not balanced_plan(similarity, iterations=3, tolerance=off / 2).converged
    assert balanced_plan(similarity, iterations=3, tolerance=off * 2).converged


def test_wrong_number_is_named_with_its_row_and_column():
    similarity = torch.zeros(4, 3)
    similarity[2, 1] = math.nan
    with pytest.raises(DataError, match="similarity holds nan in row 2, column 1"):
        balanced_plan(similarity)


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0), (2, 2, 2)])
def test_similarity_must_be_a_matrix_that_is_not_empty(shape):
    with pytest.raises(DataError, match="one row per sample and one column per cluster"):
        balanced_plan(torch.zeros(shape))


@pytest.mark.parametrize(("epsilon", "iterations"), [(1e-4, 3), (0.05, 0), (math.nan, 3)])
def test_settings_outside_their_range_are_named_with_their_values(epsilon, iterations):
    with pytest.raises(SettingsError, match=f"epsilon is {epsilon}, iterations {iterations}"):
        balanced_plan(torch.zeros(3, 2), epsilon, iterations)
