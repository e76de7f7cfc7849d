from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from uniot.report.categories import Categories
from uniot.report.galleries import Galleries, make_galleries, nearest_classes


@settings(max_examples=25)
@given(found=st.lists(st.integers(0, 6), min_size=2, max_size=5), groups=st.lists(st.integers(1, 6), max_size=4))
def test_every_sample_is_in_exactly_one_category(made_model, found, groups):
    assume(sum(found) + sum(groups))
    model = made_model([f"class {i}" for i in range(len(found))], found, groups)
    categories = Categories.of(model).found
    members = np.concatenate([category.members for category in categories])
    assert sorted(members.tolist()) == list(range(len(model.target)))
    assert [category.known for category in categories] == sorted(
        (category.known for category in categories), reverse=True
    )
    assert len({category.key for category in categories}) == len(categories)


def test_categories_come_by_size_and_groups_keep_the_numbers_of_the_answers(made_model):
    model = made_model(found=(2, 5, 0), groups=(3, 4))
    found = Categories.of(model).found
    assert [category.name for category in found] == ["bee", "ant", "Group 1", "Group 0"]
    assert [category.key for category in found] == ["class-001", "class-000", "group-001", "group-000"]


def test_unknown_samples_without_a_group_are_a_category_of_their_own(made_model):
    model = made_model()
    ungrouped = replace(model.target, group=np.full(len(model.target), -1))
    model = replace(model, target=ungrouped)
    assert [category.key for category in Categories.of(model).found] == ["class-000", "class-001", "ungrouped"]
    assert len(Categories.of(model).found[-1].members) == 11


def galleries_of(model, *, known: bool) -> Galleries:
    return make_galleries(model, Categories.of(model), known=known)


def with_confidence(model, confidence):
    return replace(model, target=replace(model.target, confidence=confidence, group_confidence=confidence))


def test_typical_samples_are_the_nearest_to_the_prototype_and_doubtful_ones_the_least_sure(made_model):
    model = made_model(found=(80, 1, 0))
    confidence = np.random.default_rng(0).random(len(model.target))
    model = with_confidence(model, confidence)
    gallery = galleries_of(model, known=True).shown[0]
    members = gallery.category.members.tolist()
    unsure = [row for row in members if confidence[row].round(2) < 0.75]
    sure = [row for row in members if row not in unsure]
    nearness = model.target_features @ model.method.loss.classes.weight.detach().numpy()[0]
    assert gallery.typical.tolist() == sorted(sure, key=lambda row: -nearness[row])[:16]
    assert gallery.doubtful.tolist() == sorted(unsure, key=lambda row: confidence[row])[:8]
    assert (gallery.n_doubtful, gallery.doubtful_below) == (len(unsure), 0.75)
    assert gallery.source_row == model.source.nearest_rows(model.class_centres)[0]


def test_sample_of_confidence_one_is_never_doubtful(made_model):
    model = made_model(found=(40, 1, 0), groups=(30,))
    model = with_confidence(model, np.ones(len(model.target)))
    shown = [*galleries_of(model, known=True).shown, *galleries_of(model, known=False).shown]
    assert [gallery.doubtful.tolist() for gallery in shown] == [[], [], []]


def test_member_of_a_group_is_doubtful_if_another_group_is_not_even_twice_as_far(made_model):
    model = made_model(groups=(4,))
    confidence = np.ones(len(model.target))
    rows = np.flatnonzero(~model.target.known)
    confidence[rows] = 0.49, 0.5, 0.6, 0.9
    (gallery,) = galleries_of(with_confidence(model, confidence), known=False).shown
    assert gallery.doubtful.tolist() == [rows[0]]


def test_unknown_samples_without_a_group_have_the_confidence_of_their_prediction(made_model):
    model = made_model()
    answers = replace(model.target, group=np.full(len(model.target), -1), group_confidence=np.zeros(len(model.target)))
    model = replace(model, target=answers)
    (gallery,) = galleries_of(model, known=False).shown
    category = gallery.category
    assert category.confidence_word == "confidence"
    assert category.confidence.tolist() == answers.confidence[category.members].tolist()


def test_a_group_has_no_labelled_example(made_model):
    assert all(gallery.source_row is None for gallery in galleries_of(made_model(), known=False).shown)


def test_of_hundreds_of_groups_the_largest_are_shown_and_the_others_are_told(made_model):
    sizes = [3] * 99 + [9]
    galleries = galleries_of(made_model(groups=sizes), known=False)
    assert galleries.shown[0].category.name == "Group 99"
    assert len(galleries.shown) == 30
    assert len(galleries.left_out) == 70


def test_a_group_is_like_the_classes_that_its_members_are_most_similar_to_on_average():
    centres = np.eye(4)
    features = np.array([[0.6, 0.8, 0.0, 0.0], [0.6, 0.0, 0.8, 0.0]])
    (first, similarity), (second, _), (third, _) = nearest_classes(features, centres)
    assert (first, second, third) == (0, 1, 2)
    assert similarity == 0.6


def test_groups_say_what_they_are_like_and_classes_do_not(made_model):
    model = made_model()
    (group, *_) = galleries_of(model, known=False).shown
    best = model.target_features[group.category.members].mean(axis=0) @ model.class_centres.T
    assert group.nearest_classes[0][0] == best.argmax()
    assert all(gallery.nearest_classes == () for gallery in galleries_of(model, known=True).shown)
