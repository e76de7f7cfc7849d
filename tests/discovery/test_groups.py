"""Private groups: a number, a group for every unknown sample, and nothing where nothing is unknown."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from uniot.discovery.class_count import NumberOfClasses
from uniot.discovery.groups import PrivateGroups, private_groups
from uniot.discovery.kmeans import SphericalClusters


def clusters(k: int, per_cluster: int = 25, d: int = 16, spread: float = 0.15, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    rows = np.repeat(random.normal(size=(k, d)), per_cluster, axis=0) + spread * random.normal(
        size=(k * per_cluster, d)
    )
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("k", [2, 4, 9])
def test_clear_clusters_are_found(k: int) -> None:
    found = private_groups(clusters(k), NumberOfClasses(k, (k - 1, k + 1)))
    assert found.n_groups == k
    assert found.number.interval == (k - 1, k + 1)
    assert np.bincount(found.group).tolist() == [25] * k


def test_no_unknown_sample_means_no_group() -> None:
    found = private_groups(np.zeros((0, 8), np.float32), 3)
    assert found.n_groups == 0
    assert len(found.group) == 0


def test_there_are_no_more_groups_than_samples() -> None:
    assert private_groups(clusters(1, per_cluster=3), 7).n_groups == 3


def test_no_private_class_means_no_group() -> None:
    found = private_groups(clusters(2), 0)
    assert found.n_groups == 0
    assert (found.group == -1).all()
    assert (found.confidence(clusters(2), found.group) == 0).all()


def test_confidence_is_one_at_the_centre_and_zero_on_the_border() -> None:
    found = PrivateGroups(np.array([0, 1]), np.eye(2, 3, dtype=np.float32), NumberOfClasses(2, (2, 2)))
    half = np.float32(np.sqrt(0.5))
    features = np.array([[1, 0, 0], [half, half, 0], [0, 1, 0], [1, 0, 0]], dtype=np.float32)
    np.testing.assert_allclose(found.confidence(features, np.array([0, 0, 1, -1])), [1, 0, 1, 0], atol=1e-6)
    # Worked by hand: the distances are 1 - 0.8 and 1 - 0.6.
    between = np.array([[0.8, 0.6, 0]], dtype=np.float32)
    np.testing.assert_allclose(found.confidence(between, np.array([0])), [1 - 0.2 / 0.4], atol=1e-6)


def test_confidence_in_a_single_group_is_the_cosine() -> None:
    found = PrivateGroups(np.array([0]), np.eye(1, 3, dtype=np.float32), NumberOfClasses(1, (1, 1)))
    np.testing.assert_allclose(found.confidence(np.array([[0.6, 0.8, 0]], np.float32), np.array([0])), [0.6], atol=1e-6)


def test_the_largest_group_is_the_first() -> None:
    features = np.concatenate([clusters(1, 5, seed=1), clusters(1, 30, seed=2), clusters(1, 12, seed=3)])
    found = private_groups(features, 3)
    assert np.bincount(found.group).tolist() == [30, 12, 5]


def test_nearest_gives_fitted_samples_their_group() -> None:
    features = clusters(5)
    found = private_groups(features, 5)
    np.testing.assert_array_equal(found.nearest(features), found.group)


@pytest.mark.parametrize("sizes", [*permutations((5, 12, 30))])
def test_groups_of_any_size_have_the_number_of_their_centre(sizes: tuple[int, ...]) -> None:
    features = np.concatenate([clusters(1, size, seed=seed) for seed, size in enumerate(sizes)])
    found = private_groups(features, 3)
    np.testing.assert_array_equal(found.nearest(features), found.group)
    truth = np.repeat(np.argsort(np.argsort(-np.array(sizes))), sizes)
    np.testing.assert_array_equal(found.group, truth)


@pytest.mark.parametrize("sizes", [*permutations((5, 12, 30))])
def test_groups_keep_their_centre_however_k_means_numbered_them(sizes, monkeypatch) -> None:
    clusters = SphericalClusters(np.eye(3, dtype=np.float32), np.repeat(np.arange(3), sizes), np.ones(47, np.float32))
    monkeypatch.setattr("uniot.discovery.groups.spherical_kmeans", lambda *_, **__: clusters)
    found = private_groups(np.eye(3, dtype=np.float32)[clusters.groups], 3)
    assert np.bincount(found.group).tolist() == [30, 12, 5]
    np.testing.assert_array_equal(found.centres[found.group], clusters.centres[clusters.groups])
