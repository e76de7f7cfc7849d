"""Neighbourhoods: against all pairs, and the same whatever else is asked."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from uniot.errors import DataError
from uniot.neighbours import Neighbours


def unit_rows(n: int, p: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(n, p, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("n_queries", [1, 127, 128, 129, 300])
def test_nearest_rows_are_those_of_all_pairs(n_queries):
    rows, queries = unit_rows(200, 7), unit_rows(n_queries, 7, seed=1)
    expected = (queries.double() @ rows.double().t()).argsort(dim=1, descending=True)[:, :5]
    assert torch.equal(Neighbours(rows, 4).of(queries), expected)


def test_neighbourhood_of_a_stored_row_begins_with_itself():
    rows = unit_rows(300, 9)
    assert torch.equal(Neighbours(rows, 6).of_stored[:, 0], torch.arange(300))


def test_neighbours_do_not_depend_on_what_else_is_asked():
    rows, queries = unit_rows(500, 33), unit_rows(290, 33, seed=1)
    neighbours = Neighbours(rows, 8)
    together = neighbours.of(queries)
    assert torch.equal(torch.cat([neighbours.of(query[None]) for query in queries]), together)
    assert torch.equal(neighbours.of(queries.flip(0)).flip(0), together)


def test_rows_are_averaged_over_their_neighbourhood():
    # On a quarter of a circle, at 0, 10, 50 and 60 degrees, two and two are near each other.
    angles = torch.deg2rad(torch.tensor([0.0, 10.0, 50.0, 60.0]))
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    neighbours = Neighbours(rows, 1)
    left, right = (rows[0] + rows[1]) / 2, (rows[2] + rows[3]) / 2
    assert torch.allclose(neighbours.smoothed, torch.stack([left, left, right, right]))
    assert torch.allclose(neighbours.transform(rows[3:]), right[None] / right.norm())


def test_there_are_no_more_neighbours_than_rows():
    assert Neighbours(unit_rows(3, 4), 20).of_stored.shape == (3, 3)


def test_neighbourhoods_that_are_known_are_not_searched_for_again():
    given = torch.zeros(3, 2, dtype=torch.long)
    assert Neighbours(unit_rows(3, 4), 1, given).of_stored is given


@pytest.fixture
def few_are_many(monkeypatch):
    """The search for many rows, with few."""
    monkeypatch.setattr("uniot.neighbours.MOST_COMPARED_WITH_ALL", 1000)


def in_clusters(n: int, p: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(40, p, generator=generator)
    return F.normalize(centres[torch.arange(n) % 40] + 0.5 * torch.randn(n, p, generator=generator), dim=1)


def test_many_rows_are_searched_in_lists_which_find_nearly_all(few_are_many):
    rows = in_clusters(3000)
    found, expected = Neighbours(rows, 8).of_stored, (rows @ rows.t()).topk(9, dim=1).indices
    shared = [len(set(one.tolist()) & set(other.tolist())) / 9 for one, other in zip(found, expected, strict=True)]
    assert sum(shared) / len(shared) > 0.95
    assert torch.equal(found[:, 0], torch.arange(3000))


def test_many_rows_are_searched_the_same_whatever_else_is_asked(few_are_many):
    neighbours = Neighbours(in_clusters(2000), 8)
    queries = unit_rows(300, 32, seed=1)
    together = neighbours.of(queries)
    assert torch.equal(torch.cat([neighbours.of(query[None]) for query in queries[::7]]), together[::7])
    assert torch.equal(Neighbours(neighbours.rows, 8).of(queries), together)


def test_neighbours_that_the_lists_do_not_hold_are_the_nearest_again(few_are_many):
    neighbours = Neighbours(in_clusters(1100), 400)
    found = neighbours.of(unit_rows(20, 32, seed=1))
    again = found[:, 1:] == found[:, :1]
    assert again[:, -1].all()
    for row, missing in zip(found, again, strict=True):
        held = row[: len(row) - int(missing.sum())].tolist()
        assert len(set(held)) == len(held)
        assert row[len(held) :].eq(row[0]).all()
        assert 0 <= min(held) <= max(held) < 1100


def test_lists_are_placed_by_rows_from_the_first_to_the_last(few_are_many, monkeypatch):
    trained = []

    class Index:
        def __init__(self, _places, _width, n_lists, *_options):
            self.n_lists = n_lists

        def train(self, rows):
            # The package itself wants 39 rows for each list.
            assert len(rows) >= 39 * self.n_lists
            trained.extend(rows[:, 0].astype(int).tolist())

        def add(self, rows):
            assert len(rows) == 160_000

    faiss = SimpleNamespace(
        IndexIVFScalarQuantizer=Index,
        IndexFlatIP=lambda width: None,
        ScalarQuantizer=SimpleNamespace(QT_fp16=0),
        METRIC_INNER_PRODUCT=0,
    )
    monkeypatch.setitem(sys.modules, "faiss", faiss)
    assert Neighbours(torch.arange(160_000.0)[:, None], 8)._lists is not None
    assert trained == list(range(0, 160_000, 2))


def test_many_rows_without_the_package_for_them_are_an_error_that_names_it(few_are_many, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(DataError, match=r"neighbours of 2000 samples needs faiss.*pip install 'uniot\[large\]'"):
        Neighbours(in_clusters(2000), 8).of_stored  # noqa: B018


def test_stored_rows_are_near_and_most_new_rows_of_the_same_kind_too():
    generator = torch.Generator().manual_seed(0)
    centres = F.normalize(torch.randn(6, 32, generator=generator), dim=1)

    def drawn(each: int) -> torch.Tensor:
        rows = centres.repeat_interleave(each, 0)
        return F.normalize(rows + 0.1 * torch.randn(len(rows), 32, generator=generator), dim=1)

    neighbours = Neighbours(drawn(30).half().float(), 6)
    assert not neighbours.is_far(neighbours.rows).any()
    assert 0.05 < float(neighbours.is_far(drawn(40)).float().mean()) < 0.3
    strange = F.normalize(torch.randn(200, 32, generator=generator), dim=1)
    assert float(neighbours.is_far(strange).float().mean()) > 0.95
    assert Neighbours(neighbours.rows[:2], 1).is_far(strange).shape == (200,)
