"""What actions change, and that every one of them can be taken back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.annotations.places import DISCARDED, as_text, class_index, class_place, from_text, is_class, is_group
from uniot.errors import DataError
from uniot.labelling.state import AnnotationState, Change, merge, move, rename, restore, split

START = np.array([class_place(0), class_place(1), 0, 0, 0, 1, 1, 2])


def labels() -> AnnotationState:
    return AnnotationState.initial(START)


def made(state: AnnotationState, *changes: Change) -> AnnotationState:
    for change in changes:
        state.apply(change)
    return state


def snapshot(state: AnnotationState) -> tuple[object, ...]:
    return state.category.tolist(), state.by_hand.tolist(), dict(state.names)


def random_change(draw, state: AnnotationState) -> Change:
    """Any action that the page offers, as far as the present groups allow it."""
    groups = [place for place in state.sizes() if is_group(place)]
    places = [*groups, class_place(0), class_place(1), DISCARDED]
    rows = draw(st.lists(st.integers(0, len(START) - 1), min_size=1, unique=True))
    kind = draw(st.sampled_from(["move", "new", "back", *(["name", "merge", "split"] if groups else [])]))
    if kind == "move":
        return move(state, rows, draw(st.sampled_from(places)))
    if kind == "new":
        return move(state, rows, state.next_group)
    if kind == "back":
        return restore(state, rows, START)
    group = draw(st.sampled_from(groups))
    if kind == "name":
        return rename(state, group, draw(st.sampled_from(["", "kettle", "lamp"])))
    if kind == "merge":
        return merge(state, group, draw(st.sampled_from([place for place in places if place != group])))
    return split(state, state.members(group)[1:])


@given(st.data())
def test_every_change_can_be_taken_back_in_order(data):
    state, history = labels(), []
    for _ in range(data.draw(st.integers(1, 8))):
        change = random_change(data.draw, state)
        history.append((snapshot(state), change))
        state.apply(change)
    for before, change in reversed(history):
        state.apply(change.inverse())
        assert snapshot(state) == before


@given(st.data())
def test_no_group_without_samples_keeps_a_name_and_no_number_is_given_twice(data):
    state, seen = labels(), {0, 1, 2}
    for _ in range(data.draw(st.integers(1, 8))):
        number = state.next_group
        change = random_change(data.draw, state)
        assert number not in seen
        state.apply(change if data.draw(st.booleans()) else Change())
        groups = {place for place in state.sizes() if is_group(place)}
        assert set(state.names) <= groups
        assert groups - seen <= {number}
        seen |= groups


@given(st.data())
def test_a_change_survives_being_written_down(data):
    state = made(labels(), rename(labels(), 1, "kettle “é”"))
    change = random_change(data.draw, state)
    again = Change.from_json(change.to_json())
    assert again.to_json() == change.to_json()
    assert snapshot(made(labels(), again)) == snapshot(made(labels(), change))


def test_what_changes_nothing_is_no_change():
    state = made(labels(), rename(labels(), 0, "kettle"), move(labels(), [0], class_place(0)))
    assert not rename(state, 0, "kettle")
    assert not move(state, [0], class_place(0))
    assert not restore(state, [1, 2], START)


def test_to_confirm_a_class_is_a_decision_of_a_person():
    change = move(labels(), [0], class_place(0))
    assert change
    assert made(labels(), change).by_hand.tolist() == [True] + 7 * [False]


def test_a_merged_group_lends_its_name_to_one_that_has_none():
    state = made(labels(), rename(labels(), 0, "kettle"))
    state.apply(merge(state, 0, 1))
    assert state.names == {1: "kettle"}
    assert state.members(1).tolist() == [2, 3, 4, 5, 6]
    assert not state.by_hand.any()


def test_a_merged_group_does_not_rename_the_other():
    state = made(labels(), rename(labels(), 0, "kettle"), rename(labels(), 1, "lamp"))
    state.apply(merge(state, 0, 1))
    assert state.names == {1: "lamp"}


def test_a_group_that_is_a_class_was_put_there_by_hand():
    state = made(labels(), merge(labels(), 1, class_place(1)))
    assert state.members(class_place(1)).tolist() == [1, 5, 6]
    assert np.flatnonzero(state.by_hand).tolist() == [5, 6]


def test_a_group_loses_its_name_with_its_last_sample():
    state = made(labels(), rename(labels(), 1, "lamp"))
    state.apply(move(state, [5], 0))
    assert state.names == {1: "lamp"}
    state.apply(move(state, [6], DISCARDED))
    assert state.names == {}


def test_samples_that_are_put_back_bring_their_group_back():
    state = made(labels(), merge(labels(), 2, 0))
    state.apply(restore(state, [7], START))
    assert state.members(2).tolist() == [7]
    assert not state.by_hand.any()


@given(st.integers(-500, 500))
def test_a_place_is_read_as_it_was_written(place):
    assert from_text(as_text(place)) == place
    assert is_group(place) + is_class(place) + (place == DISCARDED) == 1
    assert not is_class(place) or class_place(class_index(place)) == place


@pytest.mark.parametrize(
    "text", ["", "group", "group-", "group--1", "group-01", "group-1 ", "class-x", "group-٣", "../etc"]
)
def test_other_text_is_no_place(text):
    with pytest.raises(DataError, match="is not a place"):
        from_text(text)
