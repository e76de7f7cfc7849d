"""Labelling: what each action does, who may overwrite whom, and what is exported."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from uniot.annotations.places import DISCARDED, class_place
from uniot.errors import DataError, RunFolderError
from uniot.labelling import read_names
from uniot.labelling.actions import MergeGroup, MoveSamples, NameGroup, PutBackSamples, Redo, SplitGroup, Undo
from uniot.labelling.desk import Stale


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


def do(desk, *actions):
    return [desk.act(action, desk.revision).message for action in actions]


def undo(desk):
    return desk.act(Undo(kind="undo", of=desk.to_undo.id), desk.revision).message


def redo(desk):
    return desk.act(Redo(kind="redo", of=desk.to_redo.id), desk.revision).message


def exported(desk, tmp_path):
    desk.export()
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        return {row["path"]: (row["label"], row["decision"], row["group"]) for row in csv.DictReader(file)}


def test_an_action_says_what_it_did(desk):
    assert do(
        desk,
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


def test_what_is_so_already_is_not_written_down(desk):
    do(desk, name(0, "kettle"))
    assert do(desk, name(0, "kettle")) == ["Nothing to change: it is so already."]
    assert desk.revision == 1


def test_undo_goes_back_to_the_start_and_redo_to_the_end(desk):
    actions = name(0, "kettle"), split(0), merge(1, "group-2"), move([30, 55], "discarded"), merge(2, "class-1")
    states = [desk.labels.place.tolist()]
    for action in actions:
        do(desk, action)
        states.append(desk.labels.place.tolist())
    for state in reversed(states[:-1]):
        assert undo(desk).startswith("Undone: ")
        assert desk.labels.place.tolist() == state
    assert desk.to_undo is None
    assert desk.labels.names == {}
    for state in states[1:]:
        assert redo(desk).startswith("Done again: ")
        assert desk.labels.place.tolist() == state
    assert desk.to_redo is None
    assert desk.labels.names == {0: "kettle"}


def test_a_new_action_forgets_what_was_undone(desk):
    do(desk, name(0, "kettle"))
    undo(desk)
    do(desk, name(0, "lamp"))
    assert desk.to_redo is None
    undo(desk)
    assert desk.labels.names == {}


def test_undo_and_redo_outlive_the_process(desk, open_desk):
    do(desk, name(0, "kettle"), move([30], "discarded"))
    undo(desk)
    again = open_desk(desk.target)
    assert (again.to_undo.text, again.to_redo.text) == ("group 0 named “kettle”", "1 image discarded")
    redo(again)
    undo(again)
    undo(again)
    assert again.labels.names == {}
    assert again.labels.place.tolist() == desk.target.start.tolist()


def test_a_number_is_not_given_to_a_second_group_after_a_restart(desk, open_desk):
    do(desk, move([30], "new"))
    undo(desk)
    again = open_desk(desk.target)
    assert do(again, move([31], "new")) == ["1 image moved to new group 4."]


def test_a_group_changed_elsewhere_is_not_overwritten(desk):
    seen = desk.revision
    do(desk, name(0, "kettle"))
    with pytest.raises(Stale, match="Group 0 “kettle” has been changed in another tab"):
        desk.act(name(0, "lamp"), seen)
    assert desk.labels.names == {0: "kettle"}


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
def test_whatever_touches_a_group_that_has_changed_is_stale(desk, late):
    seen = desk.revision
    do(desk, move([41], "class-0"))
    with pytest.raises(Stale):
        desk.act(late, seen)
    assert desk.revision == 1


def test_images_that_left_their_group_are_not_moved_on_by_a_page_that_did_not_see_it(desk):
    seen = desk.revision
    do(desk, move([30], "class-1"))
    with pytest.raises(Stale, match="Class “pen” has been changed"):
        desk.act(move([30], "discarded"), seen)


def test_a_group_that_vanished_elsewhere_is_stale_rather_than_missing(desk):
    seen = desk.revision
    do(desk, merge(0, "group-1"))
    with pytest.raises(Stale):
        desk.act(name(0, "kettle"), seen)


def test_two_tabs_may_work_on_two_groups(desk):
    seen = desk.revision
    do(desk, name(0, "kettle"), move([30], "discarded"))
    desk.act(name(1, "lamp"), seen)
    desk.act(move([50], "discarded"), seen)
    desk.act(move([0], "class-1"), seen)
    assert desk.labels.names == {0: "kettle", 1: "lamp"}
    assert desk.labels.members(DISCARDED).tolist() == [30, 50]


def test_an_undo_takes_back_what_its_page_saw_or_nothing(desk):
    do(desk, name(0, "kettle"))
    seen = desk.to_undo.id
    do(desk, name(1, "lamp"))
    with pytest.raises(Stale):
        desk.act(Undo(kind="undo", of=seen), desk.revision)
    with pytest.raises(Stale):
        desk.act(Redo(kind="redo", of=seen), desk.revision)
    assert desk.labels.names == {0: "kettle", 1: "lamp"}


@pytest.mark.parametrize("seen", [1, 3])
def test_a_page_of_another_time_is_stale(desk, open_desk, seen):
    do(desk, name(0, "kettle"), name(1, "lamp"))
    again = open_desk(desk.target)
    with pytest.raises(Stale, match="The run has been changed"):
        again.act(name(2, "chair"), seen)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (name(7, "kettle"), "there is no group 7"),
        (name(0, "unknown"), "“unknown” is what this run calls images of no class at all"),
        (name(0, "a\nb"), "control characters"),
        (split(7), "there is no group 7"),
        (merge(0, "group-0"), "cannot be merged into itself"),
        (merge(0, "class-3"), "there is no class-3: the source has 3 classes"),
        (merge(0, "new"), "'new' is no place"),
        (move([60], "discarded"), "the target has 60 images, and number 60 was asked for"),
        (move([0], "group-9"), "there is no group 9"),
        (move([0], "../../etc"), "is no place"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(desk, action, words):
    with pytest.raises(DataError, match=words):
        desk.act(action, desk.revision)
    assert desk.revision == 0


def test_a_single_image_cannot_be_split(desk):
    do(desk, move([30], "new"))
    with pytest.raises(DataError, match="group 3 has a single image"):
        desk.act(split(3), desk.revision)


def test_the_names_of_groups_tell_whom_they_join(desk):
    assert do(desk, name(0, "kettle"), name(1, "kettle"), name(2, "mug")) == [
        "Group 0 named “kettle”.",
        "Group 1 named “kettle”, like group 0: both are one class.",
        "Group 2 named “mug”, which is a known class: its images count as that class.",
    ]


def test_the_export_holds_what_was_decided_and_nothing_else(desk, tmp_path):
    do(
        desk,
        name(0, "kettle"),
        name(1, "mug"),
        move([0], "group-0"),
        move([1, 30], "class-2"),
        move([2, 50], "discarded"),
        move([3], "class-0"),
        move([51], "new"),
    )
    names = desk.target.names
    expected = {names[row]: ("kettle", "named", "0") for row in (0, *range(31, 40))}
    expected |= {names[row]: ("mug", "class", "1") for row in range(40, 50)}
    expected |= {names[row]: ("stapler", "class", "") for row in (1, 30)}
    expected |= {names[row]: ("", "discarded", "") for row in (2, 50)}
    expected |= {names[3]: ("mug", "class", "")}
    assert exported(desk, tmp_path) == expected
    found = read_names(tmp_path / "labels.csv")
    assert found.new_classes == ["kettle"]
    assert found.names == [sample for sample in names if sample in expected]  # in the order of predictions.csv
    sentence = desk.export().sentence()
    assert sentence.endswith("labels.csv is written: 10 in new classes, 13 in known classes, 2 discarded.")


def test_an_export_of_nothing_says_so(desk, tmp_path):
    assert "nothing is named yet" in desk.export().sentence()
    assert read_names(tmp_path / "labels.csv").names == []


def test_a_class_is_meant_however_its_letters_are_composed(new_target, open_desk, tmp_path):
    desk = open_desk(new_target(tmp_path, classes=["cafe\u0301", "pen"], n_groups=1, each=2))
    do(desk, name(0, "caf\u00e9"))
    assert set(exported(desk, tmp_path).values()) == {("cafe\u0301", "class", "0")}


def test_a_run_that_was_made_again_gets_no_labels_of_the_old_one(new_target, open_desk, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"first")
    stat = (tmp_path / "model.safetensors").stat()
    stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    desk = open_desk(replace(new_target(tmp_path), stamp=stamp))
    do(desk, name(0, "kettle"))
    (tmp_path / "model.safetensors").write_bytes(b"made again")
    for refused in (lambda: do(desk, name(1, "lamp")), desk.export):
        with pytest.raises(RunFolderError, match=r"was made again or moved while this page was open"):
            refused()
    assert desk.labels.names == {0: "kettle"}
    assert not (tmp_path / "labels.csv").exists()


def test_a_split_keeps_the_larger_half_and_its_name(desk):
    do(desk, name(0, "kettle"), merge(1, "group-0"), move([40, 41], "discarded"), split(0))
    assert desk.labels.members(0).tolist() == list(range(30, 40))
    assert desk.labels.members(3).tolist() == list(range(42, 50))
    assert desk.labels.names == {0: "kettle"}


def test_a_sample_of_a_known_class_can_be_moved_to_a_group(desk):
    do(desk, move([5], "group-2"))
    assert desk.labels.place[5] == 2
    assert (desk.labels.place[:10] == class_place(0)).sum() == 9


@pytest.mark.parametrize("unknown", ["no\tne", "u" * 300, "-1"])
def test_whatever_the_run_calls_unknown_other_names_are_free(target, open_desk, unknown):
    desk = open_desk(replace(target, unknown=unknown))
    do(desk, name(0, "kettle"))
    assert desk.labels.names == {0: "kettle"}
    with pytest.raises(DataError):
        do(desk, name(0, unknown))
