"""Private groups: a number, a group for every unknown sample, and nothing where nothing is unknown."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from uniot.discovery import private_groups
from uniot.discovery.groups import mean_silhouette


def clusters(k: int, per_cluster: int = 25, d: int = 16, spread: float = 0.15, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    rows = np.repeat(random.normal(size=(k, d)), per_cluster, axis=0) + spread * random.normal(
        size=(k * per_cluster, d)
    )
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("k", [2, 4, 9])
def test_clear_clusters_are_counted(k: int) -> None:
    found = private_groups(clusters(k))
    assert found.n_groups == k
    assert np.bincount(found.group).tolist() == [25] * k


def test_mean_silhouette_equals_that_of_scikit_learn() -> None:
    features = clusters(4, spread=0.6)
    groups = np.random.default_rng(0).integers(0, 4, len(features))
    distance = 1 - features.astype(np.float64) @ features.T
    np.fill_diagonal(distance, 0)
    expected = silhouette_score(np.abs(distance), groups, metric="precomputed")
    assert mean_silhouette(distance, groups, 4) == pytest.approx(expected, abs=1e-6)


def test_no_unknown_sample_means_no_group() -> None:
    found = private_groups(np.zeros((0, 8), np.float32))
    assert found.n_groups == 0
    assert len(found.group) == 0


def test_a_few_samples_are_one_group() -> None:
    assert private_groups(clusters(1, per_cluster=3)).n_groups == 1


def test_the_largest_group_is_the_first() -> None:
    features = np.concatenate([clusters(1, 5, seed=1), clusters(1, 30, seed=2), clusters(1, 12, seed=3)])
    found = private_groups(features, 3)
    assert np.bincount(found.group).tolist() == [30, 12, 5]


def test_nearest_gives_fitted_samples_their_group() -> None:
    features = clusters(5)
    found = private_groups(features)
    np.testing.assert_array_equal(found.nearest(features), found.group)
