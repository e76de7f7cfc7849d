from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from uniot.report.categories import Categories
from uniot.report.map import SampleMap, distinct_colours, make_map


def map_of(model, **limits) -> SampleMap:
    return make_map(model, Categories.of(model), **limits)


@pytest.fixture(scope="module")
def drawn(made_model):
    return map_of(made_model())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_run_has_the_same_map_whatever_the_number_of_threads(drawn, made_model, threads):
    with threadpool_limits(threads):
        assert np.array_equal(drawn.position, map_of(made_model()).position)


def test_points_of_a_category_lie_together(drawn):
    target = np.flatnonzero(drawn.of_target)
    apart = np.linalg.norm(drawn.position[target, None] - drawn.position[None, target], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (drawn.category[target] == drawn.category[target[apart.argmin(axis=1)]]).mean() > 0.9


def test_each_point_is_of_one_kind(drawn):
    kinds = drawn.kinds()
    assert {kind: len(points) for kind, points in kinds.items()} == {
        "source-absent": 4,
        "source": 8,
        "known": 14,
        "unknown": 11,
    }
    assert np.abs(drawn.position).max() == pytest.approx(1)


def test_names_tell_classes_that_were_not_found(drawn):
    places = {place.name: place for place in drawn.places(["ant", "bee", "cow"], most=40)}
    assert set(places) == {"ant", "bee", "Group 0", "Group 1", "cow"}
    assert [name for name, place in places.items() if place.absent] == ["cow"]
    assert len(drawn.places(["ant", "bee", "cow"], most=2)) == 2


def test_a_large_run_is_thinned_evenly(made_model):
    model = made_model(found=(300, 90, 0), groups=(60, 30))
    drawn = map_of(model, most=100)
    assert len(drawn.rows) == 100
    assert drawn.n_samples == 480 + 12
    assert (~drawn.of_target).sum() == 12  # what one collection leaves free is the other's
    shares = np.bincount(drawn.category[drawn.of_target], minlength=4) / np.array([300, 90, 60, 30])
    assert np.ptp(shares) < 0.03


@pytest.mark.parametrize("found", [(1, 1, 0), (2, 3, 0)])
def test_a_handful_of_samples_has_a_map_too(made_model, found):
    model = made_model(found=found, groups=())
    model = replace(model, source=model.source.none())
    assert np.isfinite(map_of(model).position).all()


def test_samples_that_are_all_the_same_have_a_map_too(made_model):
    model = made_model()
    same = np.ones_like(model.target_features) / 4
    source = replace(model.source, features=np.ones_like(model.source.features) / 4)
    assert np.isfinite(map_of(replace(model, target_features=same, source=source)).position).all()


def test_colours_of_categories_differ():
    colours = distinct_colours(60)
    assert len(set(colours)) == 60
    assert all(len(colour) == 7 and colour[0] == "#" for colour in colours)
