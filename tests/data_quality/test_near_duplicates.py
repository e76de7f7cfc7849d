"""Near-duplicates: within each collection and between them, by what is usual in the collections."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import uniot
from uniot.errors import DataError


@pytest.fixture(scope="module")
def collections() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(120, 300)), rng.normal(size=(90, 300))


def pairs(found) -> set[tuple[str, int, int]]:
    return set(zip(found.where.tolist(), found.first.tolist(), found.second.tolist(), strict=True))


def test_slightly_changed_copies_are_found_wherever_they_are(collections):
    source, target = (one.copy() for one in collections)
    rng = np.random.default_rng(1)
    source[7] = source[3] + 0.1 * rng.normal(size=300)
    target[9] = 5 * target[4]  # another scale, the same direction
    target[11] = source[20] + 0.1 * rng.normal(size=300)
    found = uniot.near_duplicates(source, target)
    assert pairs(found) == {("source", 3, 7), ("target", 124, 129), ("both", 20, 131)}
    assert found.similarity[0] == pytest.approx(1, abs=1e-6)
    assert (np.diff(found.similarity) <= 0).all()
    assert ((found.similarity > 0.98) & (found.similarity <= 1.0001)).all()


def test_samples_that_are_merely_alike_are_no_duplicates(collections):
    source, target = collections
    # A quarter of the usual distance, which is near but not nearly the same.
    alike = source[:5] + 0.7 * np.random.default_rng(2).normal(size=(5, 300))
    assert not len(uniot.near_duplicates(np.concatenate([source, alike]), target))


def test_dense_collection_is_measured_by_its_own_distances():
    rng = np.random.default_rng(3)
    # All target samples lie as near to each other as near-duplicates of the source do.
    target = 1 + 0.02 * rng.normal(size=(80, 50))
    assert not len(uniot.near_duplicates(rng.normal(size=(80, 50)), target))


def test_collection_in_which_every_sample_is_twice():
    rng = np.random.default_rng(4)
    source = np.repeat(rng.normal(size=(60, 40)), 2, axis=0)
    found = uniot.near_duplicates(source, rng.normal(size=(60, 40)))
    assert pairs(found) == {("source", row, row + 1) for row in range(0, 120, 2)}


def test_large_collections_are_searched_by_the_index(collections):
    pytest.importorskip("faiss")
    source, target = (one.copy() for one in collections)
    target[11] = source[20]
    with patch("uniot.neighbours.MOST_COMPARED_WITH_ALL", 100):
        assert pairs(uniot.near_duplicates(source, target)) == {("both", 20, 131)}


def test_embeddings_of_two_widths_are_refused():
    with pytest.raises(DataError, match="X_source has 3 columns and X_target 4"):
        uniot.near_duplicates(np.eye(3), np.eye(4))


def test_few_samples_are_no_error():
    assert not len(uniot.near_duplicates(np.eye(3)[:1], np.eye(3)[1:2]))


def test_target_is_checked_without_a_source():
    rows = np.random.default_rng(0).normal(size=(50, 8))
    rows[3] = rows[7]
    found = uniot.near_duplicates(None, rows)
    assert pairs(found) == {("target", 3, 7)}


@pytest.mark.parametrize("offset", [1e4, 1e6, -1e9])
def test_common_offset_neither_adds_nor_hides_a_pair(collections, offset):
    source, target = (one.copy() for one in collections)
    source[7] = source[3]
    target[11] = source[20]
    expected = {("source", 3, 7), ("both", 20, 131)}
    assert pairs(uniot.near_duplicates(source, target)) == expected
    assert pairs(uniot.near_duplicates(source + offset, target + offset)) == expected


def test_classes_of_equal_direction_from_the_centre_are_no_duplicates():
    rng = np.random.default_rng(5)
    # Two classes on one line through the centre, one of them twice as far out.
    line = np.repeat([1.0, 2.0], 40)[:, None] * np.eye(1, 30) + 0.2 * rng.normal(size=(80, 30))
    assert not len(uniot.near_duplicates(line + 100, -line + 100))
