"""What looks alike is told by cosines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from uniot.annotations.places import DISCARDED, class_place
from uniot.labelling.gallery import GalleryOrder
from uniot.labelling.state import AnnotationState, move


def test_the_most_typical_come_first_and_the_same_ones_last(target):
    order = GalleryOrder(target, AnnotationState.initial(target.start))
    rows = order.ordered(0, "typical")
    members = target.features[30:40]
    centre = members.mean(axis=0)
    assert rows.tolist() == (30 + np.argsort(-(members @ centre), kind="stable")).tolist()
    assert order.ordered(0, "doubtful").tolist() == rows[::-1].tolist()
    assert order.exemplar(0) == rows[0]


def test_the_others_keep_their_order_when_some_leave(target):
    labels = AnnotationState.initial(target.start)
    order = GalleryOrder(target, labels)
    before = order.ordered(0, "typical")
    change = move(labels, before[:4], DISCARDED)
    labels.apply(change)
    order.forget(change.categories())
    assert order.ordered(0, "typical").tolist() == before[4:].tolist()
    assert order.ordered(DISCARDED, "typical").tolist() == sorted(before[:4].tolist())


def test_a_class_is_ordered_by_its_prototype(target):
    order = GalleryOrder(target, AnnotationState.initial(target.start))
    nearness = target.features[order.ordered(class_place(1), "typical")] @ target.prototypes[1]
    assert (np.diff(nearness) <= 0).all()


def test_the_group_of_a_known_class_is_recognised_as_such(target):
    features = target.features.copy()
    features[40:50] = features[10:20]  # group 1 are pens
    order = GalleryOrder(replace(target, features=features), AnnotationState.initial(target.start))
    places = order.similar(1)
    assert places[0][0] == class_place(1)
    assert places[0][1] > 0.95
    assert {place for place, _ in places} == {0, 2, *map(class_place, range(3))}
    assert [cosine for _, cosine in places] == sorted((cosine for _, cosine in places), reverse=True)


def test_two_kinds_in_one_group_fall_apart_and_a_large_group_does_so_too(new_target, tmp_path):
    for each in (10, 900):
        target = new_target(each=each, n_groups=2)
        start = np.where(target.start == 1, 0, target.start)
        half = GalleryOrder(target, AnnotationState.initial(start)).smaller_half(0)
        rows = np.arange(3 * each, 5 * each)
        assert half.tolist() in (rows[:each].tolist(), rows[each:].tolist())


def test_samples_that_are_all_the_same_can_be_split_nevertheless(target):
    same = replace(target, features=np.tile(target.features[:1], (60, 1)))
    half = GalleryOrder(same, AnnotationState.initial(same.start)).smaller_half(0)
    assert 1 <= len(half) <= 5


def test_samples_that_cancel_out_have_a_centre_all_the_same(target):
    features = target.features.copy()
    features[30:35], features[35:40] = features[0], -features[0]
    order = GalleryOrder(replace(target, features=features), AnnotationState.initial(target.start))
    assert all(np.isfinite(cosine) for _, cosine in order.similar(0))
    assert 30 <= order.exemplar(0) < 40
