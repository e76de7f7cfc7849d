"""Cuts, their agreement with classes and their silhouettes: all from one clustering, and equal to the textbook's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import pdist, squareform

from uniot.discovery.dendrogram import Dendrogram, mean_silhouettes


def points(n: int, seed: int, n_centres: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_centres, 8))[rng.integers(0, n_centres, n)] + 0.5 * rng.normal(size=(n, 8))


def by_first_member(groups: np.ndarray) -> np.ndarray:
    """Groups numbered by their first members, as SciPy numbers them."""
    _, first, index = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[index]


@settings(max_examples=40)
@given(n=st.integers(2, 60), seed=st.integers(0, 10_000), method=st.sampled_from(["ward", "average"]))
def test_every_cut_is_that_of_scipy(n, seed, method):
    distance = pdist(points(n, seed))
    tree = Dendrogram.fit(distance, method)
    expected = cut_tree(linkage(distance, method))  # the first column has n groups, the last one
    for n_groups in range(1, n + 1):
        np.testing.assert_array_equal(by_first_member(tree.groups(n_groups)), expected[:, n - n_groups])


def test_groups_of_a_cut_are_contiguous_in_the_order():
    tree = Dendrogram.fit(pdist(points(40, 0)), "ward")
    for n_groups in (1, 3, 17, 40):
        ordered = tree.groups(n_groups)[tree.order]
        assert len(tree.starts(n_groups)) == n_groups
        np.testing.assert_array_equal(np.flatnonzero(np.diff(ordered, prepend=-1)), tree.starts(n_groups))


def test_samples_of_one_leaf_are_never_separated():
    rng = np.random.default_rng(0)
    distance, leaf = pdist(points(9, 1)), rng.permutation(np.arange(50) % 9)
    tree = Dendrogram.fit(distance, "average", leaf)
    expected = cut_tree(linkage(distance, "average"))
    for n_groups in range(1, 10):
        groups = by_first_member(tree.groups(n_groups))
        np.testing.assert_array_equal(groups, by_first_member(expected[leaf, 9 - n_groups]))


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_the_v_measure_of_every_cut(seed):
    from sklearn.metrics import v_measure_score

    rng = np.random.default_rng(seed)
    tree = Dendrogram.fit(pdist(points(50, seed)), "ward")
    classes, known = rng.integers(3, 8, 50), rng.random(50) < 0.6
    agreement = tree.agreement(classes, known)
    assert len(agreement) == 50
    for n_groups in range(1, 51):
        expected = v_measure_score(classes[known], tree.groups(n_groups)[known])
        assert agreement[n_groups - 1] == pytest.approx(expected, abs=1e-12)


def test_agreement_counts_every_sample_of_a_leaf():
    from sklearn.metrics import v_measure_score

    rng = np.random.default_rng(0)
    leaf, classes = np.append(np.arange(8), rng.integers(0, 8, 60)), rng.integers(0, 4, 68)
    tree = Dendrogram.fit(pdist(points(8, 2)), "average", leaf)
    agreement = tree.agreement(classes, np.ones(68, dtype=bool))
    for n_groups in range(1, 9):
        assert agreement[n_groups - 1] == pytest.approx(v_measure_score(classes, tree.groups(n_groups)), abs=1e-12)


def test_without_a_known_sample_every_cut_agrees():
    tree = Dendrogram.fit(pdist(points(12, 0)), "ward")
    assert (tree.agreement(np.zeros(12, int), np.zeros(12, bool)) == 1).all()


def test_one_class_in_one_group_agrees_entirely():
    tree = Dendrogram.fit(pdist(points(12, 0)), "ward")
    agreement = tree.agreement(np.full(12, 3), np.ones(12, bool))
    assert agreement[0] == 1
    assert np.abs(agreement[1:]).max() < 1e-12


def test_silhouettes_of_all_cuts_are_those_of_scikit_learn():
    from sklearn.metrics import silhouette_score

    distance = squareform(pdist(points(60, 3), "cosine"))
    tree = Dendrogram.fit(squareform(distance), "ward")
    numbers = range(2, 60)
    scores = mean_silhouettes(distance, tree.order, map(tree.starts, numbers))
    expected = [silhouette_score(distance, tree.groups(number), metric="precomputed") for number in numbers]
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_silhouette_of_one_group_and_of_singletons_is_zero():
    distance = squareform(pdist(points(10, 0)))
    assert mean_silhouettes(distance, np.arange(10), [np.array([0]), np.arange(10)]).tolist() == [0, 0]


def test_silhouette_of_equal_samples_is_zero():
    assert mean_silhouettes(np.zeros((6, 6)), np.arange(6), [np.array([0, 3])]).tolist() == [0]
