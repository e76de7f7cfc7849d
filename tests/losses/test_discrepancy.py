"""The maximum mean discrepancy by hand and against sums over pairs, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.losses import fused_distances, maximum_mean_discrepancy

SCALES = (0.25, 0.5, 1, 2, 4)


def rows(n: int, d: int, seed: int = 0, offset: float = 0.0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + offset


def naive_discrepancy(x: np.ndarray, n_source: int) -> float:
    n = len(x)
    distance = [[float(((a - b) ** 2).sum()) for b in x] for a in x]
    width = sum(map(sum, distance)) / (n * n - n)

    def mean_kernel(first: range, second: range) -> float:
        return np.mean([sum(math.exp(-distance[i][j] / (width * s)) for s in SCALES) for i in first for j in second])

    source, target = range(n_source), range(n_source, n)
    return mean_kernel(source, source) + mean_kernel(target, target) - 2 * mean_kernel(source, target)


def test_two_points_worked_by_hand():
    # One point a domain: their distance is the bandwidth, so the kernels are exp(-1/s) for s = 1/4 … 4.
    between = math.exp(-4) + math.exp(-2) + math.exp(-1) + math.exp(-1 / 2) + math.exp(-1 / 4)
    distances = fused_distances(torch.tensor([[0.0, 1.0], [3.0, 5.0]]))
    assert distances.tolist() == [[0, 25], [25, 0]]
    assert float(maximum_mean_discrepancy(distances, 1)) == pytest.approx(5 + 5 - 2 * between)


def test_single_kernel_has_the_mean_distance_as_its_bandwidth():
    distances = fused_distances(torch.tensor([[0.0], [2.0]]))
    assert float(maximum_mean_discrepancy(distances, 1, n_kernels=1)) == pytest.approx(2 - 2 / math.e)


def test_discrepancy_is_the_sum_over_pairs():
    x = torch.cat([rows(4, 3), rows(6, 3, seed=1, offset=1.0)])
    assert float(maximum_mean_discrepancy(fused_distances(x), 4)) == pytest.approx(naive_discrepancy(x.numpy(), 4))


def test_fused_distances_are_those_of_the_outer_products():
    features, logits = rows(5, 4), rows(5, 3, seed=1)
    outer = np.stack([np.outer(f, c).ravel() for f, c in zip(features.numpy(), logits.numpy(), strict=True)])
    expected = ((outer[:, None] - outer) ** 2).sum(axis=2)
    assert fused_distances(features, logits).numpy() == pytest.approx(expected, abs=1e-9)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 1000))
def test_discrepancy_is_never_negative_and_does_not_care_which_domain_is_which(n, m, seed):
    x, y = rows(n, 3, seed), rows(m, 3, seed + 1, offset=0.5)
    one = float(maximum_mean_discrepancy(fused_distances(torch.cat([x, y])), n))
    other = float(maximum_mean_discrepancy(fused_distances(torch.cat([y, x])), m))
    assert one >= -1e-9
    assert one == pytest.approx(other, abs=1e-9)


def test_same_sample_twice_has_no_discrepancy():
    x = rows(6, 3)
    assert float(maximum_mean_discrepancy(fused_distances(torch.cat([x, x])), 6)) == pytest.approx(0, abs=1e-9)


def test_farther_domains_have_a_larger_discrepancy_whatever_the_unit():
    x = rows(20, 3)
    near, far = (torch.cat([x, rows(20, 3, seed=1, offset=offset)]) for offset in (0.5, 2.0))
    assert float(maximum_mean_discrepancy(fused_distances(far), 20)) > 2 * float(
        maximum_mean_discrepancy(fused_distances(near), 20)
    )
    assert float(maximum_mean_discrepancy(fused_distances(1000 * far), 20)) == pytest.approx(
        float(maximum_mean_discrepancy(fused_distances(far), 20))
    )


def test_bandwidth_is_a_constant_for_the_gradient():
    # With the bandwidth in the gradient, two points would not move: their kernels depend on the quotient alone.
    x = torch.tensor([[0.0], [2.0]], requires_grad=True)
    maximum_mean_discrepancy(fused_distances(x), 1, n_kernels=1).backward()
    # d/dx -2 exp(-(x - y)²/4) at 0 and 2: -2 · e⁻¹ · -2 (x - y)/4
    assert x.grad.flatten().tolist() == pytest.approx([-2 / math.e, 2 / math.e])


def test_batches_of_a_single_point_give_zero_and_a_finite_gradient():
    x = torch.ones(6, 3, requires_grad=True)
    loss = maximum_mean_discrepancy(fused_distances(x), 3)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.isfinite(x.grad).all()
