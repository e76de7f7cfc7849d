from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from uniot.discovery.kmeans import _fill_empty_groups, spherical_kmeans
from uniot.errors import DataError, SettingsError


def blobs(n_groups: int, n_each: int, d: int = 16, spread: float = 0.1, seed: int = 0):
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(d, n_groups)))[0].T
    classes = np.repeat(np.arange(n_groups), n_each)
    return centres[classes] + spread * rng.normal(size=(n_groups * n_each, d)) / np.sqrt(d), classes


def same_partition(a, b) -> bool:
    pairs = set(zip(np.asarray(a).tolist(), np.asarray(b).tolist(), strict=True))
    return len(pairs) == len(set(np.asarray(a).tolist())) == len(set(np.asarray(b).tolist()))


def test_separate_directions_are_found_exactly():
    features, classes = blobs(8, 20)
    assert same_partition(spherical_kmeans(features, 8).groups, classes)


@pytest.mark.parametrize("seed", range(10))
def test_one_start_is_enough_for_separate_directions(seed):
    features, classes = blobs(4, 12)
    assert same_partition(spherical_kmeans(features, 4, seed=seed, restarts=1).groups, classes)


def test_length_of_a_row_does_not_matter():
    features, _ = blobs(4, 15)
    scale = np.random.default_rng(1).uniform(0.01, 100, size=(60, 1))
    assert same_partition(spherical_kmeans(features, 4).groups, spherical_kmeans(features * scale, 4).groups)


def test_two_directions_worked_by_hand():
    found = spherical_kmeans([[2.0, 0.0], [0.0, 3.0], [5.0, 0.0], [0.0, 0.5]], 2)
    assert same_partition(found.groups, [0, 1, 0, 1])
    assert found.objective == pytest.approx(1.0)
    assert sorted(found.centres.round(6).tolist()) == [[0.0, 1.0], [1.0, 0.0]]


def test_one_group_has_the_mean_direction_as_centre():
    found = spherical_kmeans([[1.0, 0.0], [0.0, 1.0]], 1)
    assert found.centres[0] == pytest.approx([0.5**0.5, 0.5**0.5])
    assert found.cosine == pytest.approx([0.5**0.5, 0.5**0.5])


def test_centres_are_unit_groups_nearest_and_cosine_their_similarity():
    features = np.random.default_rng(0).normal(size=(300, 12))
    found = spherical_kmeans(features, 10)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    similarity = unit @ found.centres.T
    assert np.linalg.norm(found.centres, axis=1) == pytest.approx(np.ones(10), abs=1e-6)
    assert found.cosine == pytest.approx(similarity.max(axis=1), abs=1e-5)
    assert found.cosine == pytest.approx(similarity[np.arange(300), found.groups], abs=1e-5)
    assert found.objective == pytest.approx(found.cosine.mean(), abs=1e-6)
    assert found.n_groups == 10
    assert (found.centres.dtype, found.groups.dtype, found.cosine.dtype) == (np.float32, np.int64, np.float32)


def test_more_restarts_never_lower_the_objective():
    features = np.random.default_rng(3).normal(size=(200, 5))
    objectives = [spherical_kmeans(features, 12, restarts=restarts).objective for restarts in (1, 2, 5)]
    assert objectives == sorted(objectives)


def test_more_iterations_never_lower_the_objective():
    features = np.random.default_rng(4).normal(size=(200, 5))
    objectives = [spherical_kmeans(features, 6, restarts=1, iterations=i).objective for i in (1, 3, 20)]
    assert objectives == pytest.approx(sorted(objectives), abs=1e-6)


# Objectives of the project's own spherical k-means, which scikit-learn's replaced, recorded at commit e5a5af0 with
# spherical_kmeans(default_rng(seed).normal(size=(n, d)), n_groups, seed=seed) for the seeds 0 to 3.
RECORDED_OBJECTIVES = {
    (200, 5, 12): (0.7995813737809658, 0.8069583067297935, 0.8121908167004586, 0.8124911804497242),
    (400, 8, 10): (0.6427162238955497, 0.6445277531445026, 0.6360231756418944, 0.637596091479063),
    (1000, 32, 20): (0.41721644262969493, 0.41947409822046755, 0.4201818623095751, 0.42070308139920237),
    (300, 128, 11): (0.2764674098789692, 0.2762899304181337, 0.27730044091741246, 0.27642025666932263),
}


@pytest.mark.parametrize(("shape", "recorded"), RECORDED_OBJECTIVES.items())
def test_objective_on_random_rows_is_that_of_the_recorded_implementation(shape, recorded):
    n, d, n_groups = shape
    found = [
        spherical_kmeans(np.random.default_rng(seed).normal(size=(n, d)), n_groups, seed=seed).objective
        for seed in range(4)
    ]
    assert np.mean(found) > np.mean(recorded) - 0.005


def test_same_seed_same_groups_whatever_numpy_drew_before():
    features = np.random.default_rng(6).normal(size=(100, 4))
    first = spherical_kmeans(features, 7, seed=3)
    np.random.default_rng().normal(size=10)
    again = spherical_kmeans(features, 7, seed=3)
    assert np.array_equal(first.groups, again.groups)
    assert np.array_equal(first.centres, again.centres)


def test_as_many_groups_as_rows_gives_each_row_its_own():
    features = np.random.default_rng(7).normal(size=(9, 3))
    assert sorted(spherical_kmeans(features, 9).groups.tolist()) == list(range(9))


def test_no_group_is_empty_even_where_rows_coincide():
    features = np.repeat([[1.0, 0.0], [0.0, 1.0]], 5, axis=0)
    found = spherical_kmeans(features, 4)
    assert set(found.groups.tolist()) == {0, 1, 2, 3}
    assert found.cosine == pytest.approx(np.ones(10))


def test_an_empty_group_takes_the_worst_served_row_that_is_not_alone_in_its_group():
    rows, centres = np.eye(4, dtype=np.float32), np.zeros((3, 4), dtype=np.float32)
    groups, cosine = np.array([0, 1, 1, 1]), np.array([0.1, 0.9, 0.3, 0.8], dtype=np.float32)
    _fill_empty_groups(rows, centres, groups, cosine)
    assert groups.tolist() == [0, 1, 2, 1]
    assert centres[2].tolist() == rows[2].tolist()
    assert cosine[2] == 1.0


def test_opposite_rows_have_no_mean_direction_and_still_a_unit_centre():
    found = spherical_kmeans([[1.0, 0.0], [-1.0, 0.0]], 1)
    assert np.linalg.norm(found.centres[0]) == pytest.approx(1.0)
    assert found.objective == pytest.approx(0.0)


def test_huge_and_tiny_rows_do_not_overflow():
    found = spherical_kmeans([[1e300, 0.0], [1e-38, 0.0], [0.0, 1e300], [0.0, 1e-300]], 2)
    assert same_partition(found.groups, [0, 0, 1, 1])


def test_blocks_of_rows_give_the_answer_of_one_block(monkeypatch):
    features = np.random.default_rng(8).normal(size=(101, 4))
    whole = spherical_kmeans(features, 5)
    monkeypatch.setattr("uniot.discovery.kmeans._BLOCK_ENTRIES", 50)
    assert np.array_equal(spherical_kmeans(features, 5).groups, whole.groups)


def test_tensors_with_gradient_and_half_precision_are_read():
    features, classes = blobs(3, 10)
    tensor = torch.tensor(features, dtype=torch.bfloat16, requires_grad=True)
    assert same_partition(spherical_kmeans(tensor, 3).groups, classes)


@settings(max_examples=50)
@given(
    arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(-2, 2)),
    st.integers(1, 12),
    st.integers(0, 5),
)
def test_any_rows_are_grouped_or_refused_with_a_reason(rows, n_groups, seed):
    if n_groups > len(rows) or (rows == 0).all(axis=1).any():
        with pytest.raises(DataError):
            spherical_kmeans(rows, n_groups, seed=seed)
        return
    found = spherical_kmeans(rows, n_groups, seed=seed, restarts=2, iterations=5)
    assert set(found.groups.tolist()) == set(range(n_groups))
    assert np.isfinite(found.centres).all()
    assert np.linalg.norm(found.centres, axis=1) == pytest.approx(np.ones(n_groups), abs=1e-5)
    assert -1.0 <= found.objective <= 1.0


@pytest.mark.parametrize(
    ("features", "n_groups", "words"),
    [
        ([[1.0, 0.0]], 2, "2 groups need as many rows, but there are 1. Use fewer groups"),
        ([[1.0, 0.0], [0.0, 0.0]], 1, r"1 of 2 rows of features are all zero \(first: row 1\)"),
        ([[1.0, np.nan], [np.inf, 0.0]], 1, "features holds nan in row 0, column 1"),
        ([1.0, 2.0], 1, r"features has shape \(2,\)"),
        (np.zeros((0, 3)), 1, r"features has shape \(0, 3\)"),
        ([["a", "b"]], 1, "features has dtype"),
    ],
)
def test_refused_features_are_told_why(features, n_groups, words):
    with pytest.raises(DataError, match=words):
        spherical_kmeans(features, n_groups)


@pytest.mark.parametrize("name", ["n_groups", "restarts", "iterations"])
def test_counts_below_one_are_refused(name):
    settings_given = {"n_groups": 1, name: 0}
    with pytest.raises(SettingsError, match=f"{name} must be at least 1, but is 0"):
        spherical_kmeans([[1.0, 0.0]], **settings_given)
