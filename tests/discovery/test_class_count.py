"""Counting private classes: right where classes are clear, none where there are none, honest where nothing is known."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from uniot.discovery.class_count import (
    NumberOfClasses,
    SeenTarget,
    _by_known_classes,
    _by_prototypes,
    _by_silhouette,
    _cosine_distance,
    _Draw,
    _numbers,
    number_of_private_classes,
)


def target(n_known: int, n_private: int, per_class: int = 20, things: int = 1, seed: int = 0) -> SeenTarget:
    """Clear classes in a space of 40 dimensions; each consists of a few things, of which there are several pictures."""
    rng = np.random.default_rng(seed)
    n_classes = n_known + n_private
    classes = np.repeat(np.arange(n_classes), per_class)
    thing = classes * things + rng.integers(0, things, len(classes))
    centres = rng.normal(size=(n_classes, 40))
    of_things = centres[np.arange(n_classes * things) // things] + 0.7 * rng.normal(size=(n_classes * things, 40))
    points = of_things[thing] + 0.2 * rng.normal(size=(len(classes), 40))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    known = classes < n_known
    return SeenTarget(points, thing, known, np.where(known, classes, 0))


@pytest.mark.parametrize("n_private", [1, 4, 9])
def test_clear_classes_are_counted(n_private):
    found = number_of_private_classes(target(5, n_private))
    assert found.estimate == n_private
    assert found.interval[0] <= n_private <= found.interval[1]


def test_known_classes_say_how_large_a_class_is():
    """Every class consists of four things; the silhouette counts them, the known classes tell that they are parts."""
    seen = target(6, 5, per_class=40, things=4)
    found = number_of_private_classes(seen)
    by_name = {evidence.name: evidence for evidence in found.evidence}
    assert by_name["silhouette"].estimate >= 15
    assert not by_name["silhouette"].counts
    assert abs(found.estimate - 5) <= 1


def test_unknown_samples_that_lie_in_known_classes_are_no_class():
    seen = target(6, 0, per_class=30)
    some = np.random.default_rng(0).random(len(seen)) < 0.2
    assert number_of_private_classes(replace(seen, known=~some)).estimate == 0


def test_small_groups_are_stray_samples_where_classes_tell_how_large_one_is():
    seen = target(6, 2, per_class=30)
    few = np.concatenate([np.flatnonzero(seen.known), [180, 181, 182, 183, *range(210, 240)]])
    seen = SeenTarget(seen.embeddings[few], None, seen.known[few], seen.nearest[few])
    assert number_of_private_classes(seen).estimate == 2
    assert number_of_private_classes(replace(seen, min_relative_size=0.5)).estimate == 1


def test_nothing_unknown_is_no_class():
    assert number_of_private_classes(target(5, 0)) == NumberOfClasses(0, (0, 0))


def test_draws_without_any_known_sample_count_as_well():
    """Of eleven samples two are known, and some of the draws of eight miss both."""
    seen = target(2, 3, per_class=3)
    only_two = np.isin(np.arange(len(seen)), (0, 3))
    some = only_two | ~seen.known
    few = SeenTarget(seen.embeddings[some], seen.prototypes[some], seen.known[some], seen.nearest[some])
    found = number_of_private_classes(few)
    assert found.interval[0] <= found.estimate <= found.interval[1] <= (~few.known).sum()


def test_without_known_samples_the_silhouette_decides_and_says_so():
    found = number_of_private_classes(target(0, 6))
    assert [evidence.name for evidence in found.evidence] == ["silhouette"]
    assert found.evidence[0].counts
    assert "nothing to compare it with" in found.evidence[0].sentence
    assert found.estimate == 6


def test_a_seed_gives_one_answer():
    seen = target(5, 4, things=3)
    assert number_of_private_classes(seen, seed=1) == number_of_private_classes(seen, seed=1)


@pytest.mark.parametrize("n_unknown", [1, 2, 3, 4, 7])
def test_a_handful_of_unknown_samples_is_counted_without_an_error(n_unknown):
    seen = target(4, 1)
    rows = np.concatenate([np.flatnonzero(seen.known), np.flatnonzero(~seen.known)[:n_unknown]])
    few = SeenTarget(seen.embeddings[rows], seen.prototypes[rows], seen.known[rows], seen.nearest[rows])
    assert number_of_private_classes(few).estimate <= 1


def test_two_samples_of_all_are_enough_to_be_asked_about():
    seen = target(1, 1, per_class=3)
    assert number_of_private_classes(seen).estimate <= 1


def draw_of(known: list[bool], min_relative_size: float = 0.0) -> _Draw:
    rows = np.eye(len(known))
    seen = SeenTarget(rows, None, np.array(known), np.zeros(len(known), dtype=np.int64), min_relative_size)
    return _Draw(seen, _cosine_distance(rows), np.arange(len(known)))


def test_three_samples_are_a_private_group_and_two_are_not():
    assert draw_of([False] * 5).n_private(np.array([0, 0, 0, 1, 1])) == 1


def test_group_with_as_many_known_samples_as_unknown_ones_is_not_private():
    groups = np.array([0] * 4 + [1] * 5)
    assert draw_of([True, True, False, False, True, True, False, False, False]).n_private(groups) == 1


def test_private_group_is_compared_with_the_median_of_the_known_ones():
    # Known groups of 4, 6 and 40 samples, and one of 2, which does not count: at least 0.75 · 6 = 4.5 samples of the
    # private ones of 3, 4 and 5. The median of all would be 4, that of all known ones 5.
    sizes, known = (4, 6, 40, 2, 3, 4, 5), (True, True, True, True, False, False, False)
    draw = draw_of(np.repeat(known, sizes).tolist(), min_relative_size=0.75)
    assert draw.n_private(np.repeat(np.arange(7), sizes)) == 1


def test_small_prototypes_are_merged_before_large_ones_that_are_nearer():
    def turned(axis: int, other: int, distance: float) -> np.ndarray:
        cosine = 1 - distance**2 / 2
        return cosine * np.eye(5)[axis] + np.sqrt(1 - cosine**2) * np.eye(5)[other]

    # A known class with three samples at a distance of 1.0, another known class, and two private classes 0.9 apart. By
    # Ward's cost, with the factor n m / (n + m), the three are merged first, and then the known classes are as they
    # should be; by distance alone the private ones would be one class by then.
    sizes = (30, 3, 30, 20, 20)
    places = np.stack([np.eye(5)[0], turned(0, 1, 1.0), np.eye(5)[2], np.eye(5)[3], turned(3, 4, 0.9)])
    rows, prototypes = np.repeat(places, sizes, axis=0), np.repeat(np.arange(5), sizes)
    nearest, known = np.repeat([0, 0, 1, 0, 0], sizes), np.repeat([True, True, True, False, False], sizes)
    draw = _Draw(SeenTarget(rows, prototypes, known, nearest), _cosine_distance(rows), np.arange(len(rows)))
    assert _by_prototypes(draw) == 2


def test_every_draw_has_four_fifths_of_the_samples_and_none_twice(monkeypatch):
    drawn = []

    def recorded(seen, distance, rows):
        drawn.append(rows)
        return _Draw(seen, distance, rows)

    monkeypatch.setattr("uniot.discovery.class_count._Draw", recorded)
    number_of_private_classes(target(3, 2))
    assert len(drawn) == 20
    assert all(len(set(rows.tolist())) == len(rows) == 80 for rows in drawn)
    assert len({tuple(rows) for rows in drawn}) == 20


def test_the_silhouette_decides_between_cuts_that_agree_equally_well_and_only_between_them():
    class Tree:
        order = np.arange(6)
        better = 0.0

        def agreement(self, nearest, known):
            return np.array([0.0, 0.8, 0.8 + self.better, 0.0, 0.0, 0.0])

        def starts(self, n_groups):
            return np.array([0, 3] if n_groups == 2 else [0, 2, 4])

        def groups(self, n_groups):
            return np.repeat(np.arange(n_groups), 6 // n_groups)

    rows = np.eye(6)[[0, 0, 0, 1, 1, 1]]  # two groups, by every silhouette
    seen = SeenTarget(rows, None, np.ones(6, dtype=bool), np.zeros(6, dtype=np.int64))
    draw, tree, numbers = _Draw(seen, _cosine_distance(rows), np.arange(6)), Tree(), np.array([2, 3])
    assert draw.best(tree, numbers).max() + 1 == 2
    tree.better = 1e-6
    assert draw.best(tree, numbers).max() + 1 == 3


def test_counting_survives_a_file():
    found = number_of_private_classes(target(5, 4))
    assert NumberOfClasses.of(json.loads(json.dumps(asdict(found)))) == found


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_scipy_and_scikit_learn_cut_by_cut(seed):
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform
    from sklearn.metrics import silhouette_score, v_measure_score

    def cuts(distance):
        return cut_tree(linkage(squareform(np.sqrt(2 * distance), checks=False), "ward"), _numbers(len(distance)))

    def silhouette(distance, groups):
        return silhouette_score(distance, groups, metric="precomputed")

    seen, rng = target(7, 5, per_class=15, things=3, seed=seed), np.random.default_rng(seed)
    seen = replace(seen, known=seen.known ^ (rng.random(len(seen)) < 0.1))
    draw = _Draw(seen, _cosine_distance(seen.embeddings), np.arange(len(seen)))
    every = cuts(draw.cosine_distance).T
    agreement = [v_measure_score(draw.nearest[draw.known], groups[draw.known]) for groups in every]
    equal = every[np.array(agreement) > max(agreement) - 1e-9]
    best = max(equal, key=lambda groups: silhouette(draw.cosine_distance, groups))
    assert _by_known_classes(draw) == draw.n_private(best)
    unknown = draw.cosine_distance[np.ix_(~draw.known, ~draw.known)]
    assert _by_silhouette(draw) == max(cuts(unknown).T, key=lambda groups: silhouette(unknown, groups)).max() + 1
