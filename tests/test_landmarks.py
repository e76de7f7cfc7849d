"""Landmarks: means of several samples, never of one, that reproduce the transform they were fitted to."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from uniot.neighbours import LEAST_SAMPLES, Neighbours, fit_landmarks, similar_groups


def clusters(n: int, width: int = 16, n_clusters: int = 8, seed: int = 0, spread: float = 0.3) -> torch.Tensor:
    centres = torch.randn(n_clusters, width, generator=torch.Generator().manual_seed(100))
    noise = torch.randn(n, width, generator=torch.Generator().manual_seed(seed))
    return F.normalize(centres[torch.arange(n) % n_clusters] + spread * noise, dim=1)


def fit(rows: torch.Tensor, transformed: torch.Tensor, seed: int = 0):
    return fit_landmarks(rows, transformed, torch.Generator().manual_seed(seed))


@given(n=st.integers(5, 300), seed=st.integers(0, 1000))
def test_every_group_has_five_to_nine_samples(n, seed):
    sizes = torch.bincount(similar_groups(clusters(n, seed=seed)))
    assert sizes.sum() == n
    assert sizes.min() >= LEAST_SAMPLES == 5
    assert sizes.max() < 2 * LEAST_SAMPLES


def test_groups_are_within_clusters():
    rows = clusters(400, spread=0.05)
    groups = similar_groups(rows)
    n_clusters = [len((torch.arange(400)[groups == group] % 8).unique()) for group in groups.unique()]
    assert n_clusters.count(1) > 0.8 * len(n_clusters)


def test_landmarks_are_the_means_of_groups():
    rows = clusters(200)
    transformed = Neighbours(rows, 6).transform(rows)
    landmarks, groups = fit(rows, transformed), similar_groups(transformed)
    for group, (key, value) in enumerate(zip(landmarks.keys, landmarks.values, strict=True)):
        members = groups == group
        assert members.sum() >= LEAST_SAMPLES
        torch.testing.assert_close(key.float(), F.normalize(rows[members].mean(dim=0), dim=0), atol=1e-3, rtol=0)
        torch.testing.assert_close(value.float(), transformed[members].mean(dim=0), atol=1e-3, rtol=0)


def test_no_landmark_is_a_sample():
    rows = clusters(200, spread=1.0)
    landmarks = fit(rows, Neighbours(rows, 6).transform(rows))
    for means in (landmarks.keys, landmarks.values):
        assert torch.cdist(means.float(), rows).min() > 0.1


@pytest.mark.parametrize("seed", [0, 7])
def test_fitted_and_new_rows_become_what_the_neighbourhoods_make_of_them(seed):
    rows = clusters(600, spread=0.5)
    neighbours = Neighbours(rows, 6)
    landmarks = fit(rows, neighbours.transform(rows))
    queries = clusters(300, seed=seed, spread=0.5)
    found, expected = landmarks.transform(queries), neighbours.transform(queries)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(300))
    assert (found * expected).sum(dim=1).mean() > 0.97
    assert (queries * expected).sum(dim=1).mean() < 0.95


def test_linear_map_takes_what_landmarks_leave_unexplained():
    rows = F.normalize(torch.randn(400, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    landmarks = fit(rows, rows)
    alone = F.normalize(landmarks.weighted_values(rows), dim=1)
    assert (landmarks.transform(rows) * rows).sum(dim=1).mean() > (alone * rows).sum(dim=1).mean() + 0.05


@pytest.mark.parametrize("n", [1, 4])
def test_mean_of_too_few_samples_is_not_kept(n):
    assert fit(clusters(n), clusters(n)) is None


@pytest.mark.parametrize("n", [5, 9, 12, 19])
def test_small_target_has_landmarks_and_no_linear_map(n):
    landmarks = fit(clusters(n), clusters(n))
    assert len(landmarks.keys) == n // 5 if n < 10 else len(landmarks.keys) >= 2
    assert not landmarks.linear.any()
    assert landmarks.transform(clusters(3)).isfinite().all()


def test_equal_rows_are_no_obstacle():
    rows = clusters(1).repeat(5000, 1)
    landmarks = fit(rows, rows)
    torch.testing.assert_close(landmarks.transform(rows[:2]), rows[:2], atol=1e-3, rtol=0)


def test_large_target_is_sampled_as_the_generator_says(monkeypatch):
    monkeypatch.setattr("uniot.neighbours._MOST_ROWS", 100)
    rows = clusters(1000)
    first, again, other = (fit(rows, rows, seed) for seed in (0, 0, 1))
    assert len(first.keys) <= 100 // LEAST_SAMPLES
    assert torch.equal(first.keys, again.keys)
    assert torch.equal(first.linear, again.linear)
    assert not torch.equal(first.keys[:5], other.keys[:5])
