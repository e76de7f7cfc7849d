"""Labelling: what each action does, who may overwrite whom, and what is exported."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from uniot.annotations.places import DISCARDED, class_place
from uniot.errors import DataError, RunFolderError
from uniot.labelling.actions import MergeGroup, MoveSamples, NameGroup, PutBackSamples, Redo, SplitGroup, Undo
from uniot.labelling.names import read_names
from uniot.labelling.session import ConflictError


def name(group, text):
    return NameGroup(kind="name", group=group, name=text)


def merge(group, to):
    return MergeGroup(kind="merge", group=group, to=to)


def split(group):
    return SplitGroup(kind="split", group=group)


def move(rows, to):
    return MoveSamples(kind="move", rows=rows, to=to)


def put_back(rows):
    return PutBackSamples(kind="put-back", rows=rows)


def do(session, *actions):
    return [session.act(action, session.revision).message for action in actions]


def undo(session):
    return session.act(Undo(kind="undo", of=session.to_undo.id), session.revision).message


def redo(session):
    return session.act(Redo(kind="redo", of=session.to_redo.id), session.revision).message


def exported(session, tmp_path):
    session.export()
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        return {row["path"]: (row["label"], row["decision"], row["group"]) for row in csv.DictReader(file)}


def test_unknown_that_the_run_did_not_group_are_called_so_until_they_have_a_name(new_target, open_session, tmp_path):
    session = open_session(replace(new_target(n_groups=1), n_groups=0))
    (bag,) = session.overview()["groups"]
    assert bag["ungrouped"] == (
        "They fit none of your classes well; they are too few or too scattered to say whether they form a new class."
    )
    assert session.gallery("group-0", 0, "typical")["samples"][0]["start"] == "the unknown without a group"
    assert do(session, move([30], "new"), name(0, "kettle"), name(1, "pan")) == [
        "1 image moved to new group 1.",
        "The unknown without a group named “kettle”.",
        "Group 1 named “pan”.",
    ]
    assert [group["ungrouped"] for group in session.overview()["groups"]] == ["", ""]


def test_a_first_group_that_a_person_made_is_a_group(new_target, open_session, tmp_path):
    session = open_session(new_target(n_groups=0))
    do(session, move([3], "new"))
    (made,) = session.overview()["groups"]
    assert (made["number"], made["ungrouped"]) == (0, "")


def test_an_action_says_what_it_did(session):
    assert do(
        session,
        name(0, " kettle "),
        move([30, 31], "new"),
        move([32], "class-1"),
        move([33], "discarded"),
        put_back([33]),
        merge(1, "group-0"),
        merge(2, "class-0"),
        name(0, ""),
    ) == [
        "Group 0 named “kettle”.",
        "2 images moved to new group 3.",
        "1 image marked as class “pen”.",
        "1 image discarded.",
        "1 image put back where the run had it.",
        "Group 1 with its 10 images merged into group 0 “kettle”.",
        "Group 2 with its 10 images marked as class “mug”.",
        "The name of group 0 removed.",
    ]


def test_what_is_so_already_is_not_written_down(session):
    do(session, name(0, "kettle"))
    assert do(session, name(0, "kettle")) == ["Nothing to change: this is already so."]
    assert session.revision == 1


def test_undo_goes_back_to_the_start_and_redo_to_the_end(session):
    actions = name(0, "kettle"), split(0), merge(1, "group-2"), move([30, 55], "discarded"), merge(2, "class-1")
    states = [session.state.category.tolist()]
    for action in actions:
        do(session, action)
        states.append(session.state.category.tolist())
    for state in reversed(states[:-1]):
        assert undo(session).startswith("Undone: ")
        assert session.state.category.tolist() == state
    assert session.to_undo is None
    assert session.state.names == {}
    for state in states[1:]:
        assert redo(session).startswith("Redone: ")
        assert session.state.category.tolist() == state
    assert session.to_redo is None
    assert session.state.names == {0: "kettle"}


def test_a_new_action_forgets_what_was_undone(session):
    do(session, name(0, "kettle"))
    undo(session)
    do(session, name(0, "lamp"))
    assert session.to_redo is None
    undo(session)
    assert session.state.names == {}


def test_undo_and_redo_outlive_the_process(session, open_session):
    do(session, name(0, "kettle"), move([30], "discarded"))
    undo(session)
    again = open_session(session.target)
    assert (again.to_undo.text, again.to_redo.text) == ("group 0 named “kettle”", "1 image discarded")
    redo(again)
    undo(again)
    undo(again)
    assert again.state.names == {}
    assert again.state.category.tolist() == session.target.start.tolist()


def test_a_number_is_not_given_to_a_second_group_after_a_restart(session, open_session):
    do(session, move([30], "new"))
    undo(session)
    again = open_session(session.target)
    assert do(again, move([31], "new")) == ["1 image moved to new group 4."]


def test_a_group_changed_elsewhere_is_not_overwritten(session):
    seen = session.revision
    do(session, name(0, "kettle"))
    with pytest.raises(ConflictError, match="Group 0 “kettle” has been changed in another tab"):
        session.act(name(0, "lamp"), seen)
    assert session.state.names == {0: "kettle"}


@pytest.mark.parametrize(
    "late",
    [
        name(1, "lamp"),
        split(1),
        merge(1, "group-2"),
        merge(2, "group-1"),
        merge(1, "discarded"),
        move([45], "discarded"),
        move([50], "group-1"),
        put_back([40]),
    ],
)
def test_whatever_touches_a_group_that_has_changed_is_stale(session, late):
    seen = session.revision
    do(session, move([41], "class-0"))
    with pytest.raises(ConflictError):
        session.act(late, seen)
    assert session.revision == 1


def test_images_that_left_their_group_are_not_moved_on_by_a_page_that_did_not_see_it(session):
    seen = session.revision
    do(session, move([30], "class-1"))
    with pytest.raises(ConflictError, match="Class “pen” has been changed"):
        session.act(move([30], "discarded"), seen)


def test_a_group_that_vanished_elsewhere_is_stale_rather_than_missing(session):
    seen = session.revision
    do(session, merge(0, "group-1"))
    with pytest.raises(ConflictError):
        session.act(name(0, "kettle"), seen)


def test_two_tabs_may_work_on_two_groups(session):
    seen = session.revision
    do(session, name(0, "kettle"), move([30], "discarded"))
    session.act(name(1, "lamp"), seen)
    session.act(move([50], "discarded"), seen)
    session.act(move([0], "class-1"), seen)
    assert session.state.names == {0: "kettle", 1: "lamp"}
    assert session.state.members(DISCARDED).tolist() == [30, 50]


def test_an_undo_takes_back_what_its_page_saw_or_nothing(session):
    do(session, name(0, "kettle"))
    seen = session.to_undo.id
    do(session, name(1, "lamp"))
    with pytest.raises(ConflictError):
        session.act(Undo(kind="undo", of=seen), session.revision)
    with pytest.raises(ConflictError):
        session.act(Redo(kind="redo", of=seen), session.revision)
    assert session.state.names == {0: "kettle", 1: "lamp"}


@pytest.mark.parametrize("seen", [1, 3])
def test_a_page_of_another_time_is_stale(session, open_session, seen):
    do(session, name(0, "kettle"), name(1, "lamp"))
    again = open_session(session.target)
    with pytest.raises(ConflictError, match="The run has been changed"):
        again.act(name(2, "chair"), seen)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (name(7, "kettle"), "there is no group 7"),
        (name(0, "unknown"), "“unknown” is the word of this run for images of no known class"),
        (name(0, "a\nb"), "control characters"),
        (split(7), "there is no group 7"),
        (merge(0, "group-0"), "cannot be merged into itself"),
        (merge(0, "class-3"), "there is no class-3: this run has 3 known classes"),
        (merge(0, "new"), "'new' is not a place"),
        (move([60], "discarded"), "there is no image 60: this run has 60"),
        (move([0], "group-9"), "there is no group 9"),
        (move([0], "../../etc"), "is not a place"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(session, action, words):
    with pytest.raises(DataError, match=words):
        session.act(action, session.revision)
    assert session.revision == 0


def test_a_single_image_cannot_be_split(session):
    do(session, move([30], "new"))
    with pytest.raises(DataError, match="group 3 has a single image"):
        session.act(split(3), session.revision)


def test_the_names_of_groups_tell_whom_they_join(session):
    assert do(session, name(0, "kettle"), name(1, "kettle"), name(2, "mug")) == [
        "Group 0 named “kettle”.",
        "Group 1 named “kettle”, like group 0: both are one class.",
        "Group 2 named “mug”, which is a known class: its images count as that class.",
    ]


def test_the_export_holds_what_was_decided_and_nothing_else(session, tmp_path):
    do(
        session,
        name(0, "kettle"),
        name(1, "mug"),
        move([0], "group-0"),
        move([1, 30], "class-2"),
        move([2, 50], "discarded"),
        move([3], "class-0"),
        move([51], "new"),
    )
    names = session.target.names
    expected = {names[row]: ("kettle", "named", "0") for row in (0, *range(31, 40))}
    expected |= {names[row]: ("mug", "class", "1") for row in range(40, 50)}
    expected |= {names[row]: ("stapler", "class", "") for row in (1, 30)}
    expected |= {names[row]: ("", "discarded", "") for row in (2, 50)}
    expected |= {names[3]: ("mug", "class", "")}
    # A person placed it in a group without a name.
    expected |= {names[51]: ("", "unknown", "3")}
    assert exported(session, tmp_path) == expected
    found = read_names(tmp_path / "labels.csv")
    assert found.new_classes == ["kettle"]
    assert found.names == [sample for sample in names if sample in expected]  # in the order of predictions.csv
    sentence = session.export().sentence()
    assert sentence.endswith("labels.csv is written: 10 in new classes, 13 in known classes, 2 discarded, 1 unknown.")


def test_an_export_of_nothing_says_so(session, tmp_path):
    assert "nothing has a name yet" in session.export().sentence()
    assert read_names(tmp_path / "labels.csv").names == []


def test_a_class_is_meant_however_its_letters_are_composed(new_target, open_session, tmp_path):
    session = open_session(new_target(classes=["cafe\u0301", "pen"], n_groups=1, each=2))
    do(session, name(0, "caf\u00e9"))
    assert set(exported(session, tmp_path).values()) == {("cafe\u0301", "class", "0")}


def test_a_run_that_was_made_again_gets_no_labels_of_the_old_one(new_target, open_session, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"first")
    stat = (tmp_path / "model.safetensors").stat()
    stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    session = open_session(new_target(), stamp=stamp)
    do(session, name(0, "kettle"))
    (tmp_path / "model.safetensors").write_bytes(b"made again")
    for refused in (lambda: do(session, name(1, "lamp")), session.export):
        with pytest.raises(RunFolderError, match=r"was made again or moved while it was being labelled"):
            refused()
    assert session.state.names == {0: "kettle"}
    assert not (tmp_path / "labels.csv").exists()


def test_a_split_keeps_the_larger_half_and_its_name(session):
    do(session, name(0, "kettle"), merge(1, "group-0"), move([40, 41], "discarded"), split(0))
    assert session.state.members(0).tolist() == list(range(30, 40))
    assert session.state.members(3).tolist() == list(range(42, 50))
    assert session.state.names == {0: "kettle"}


def test_a_sample_of_a_known_class_can_be_moved_to_a_group(session):
    do(session, move([5], "group-2"))
    assert session.state.category[5] == 2
    assert (session.state.category[:10] == class_place(0)).sum() == 9


@pytest.mark.parametrize("unknown", ["no\tne", "u" * 300, "-1"])
def test_whatever_the_run_calls_unknown_other_names_are_free(target, open_session, unknown):
    session = open_session(replace(target, unknown=unknown))
    do(session, name(0, "kettle"))
    assert session.state.names == {0: "kettle"}
    with pytest.raises(DataError):
        do(session, name(0, unknown))
