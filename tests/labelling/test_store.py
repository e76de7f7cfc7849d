"""Labels on disk: nothing that was said to be saved is lost, and nothing else is there."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from uniot.annotations.places import DISCARDED, class_place
from uniot.errors import RunFolderError
from uniot.labelling.state import AnnotationState, Change, merge, move, rename, split
from uniot.labelling.store import FILE, LabelStore, label_lock
from uniot.runs.files import RunFiles

SCRIPT = Path(__file__).with_name("acts_until_killed.py")
START = np.array([class_place(0), 0, 0, 0, 1, 1])


def reopened(path: Path, start: np.ndarray = START) -> AnnotationState:
    labels = AnnotationState.initial(start)
    with closing(LabelStore(RunFiles(path.parent), "a run")) as store:
        store.load(labels)
    return labels


def replayed(path: Path, start: np.ndarray) -> AnnotationState:
    """The state that the log alone leads to."""
    labels = AnnotationState.initial(start)
    with closing(LabelStore(RunFiles(path.parent), "a run")) as store:
        for entry in store.entries():
            labels.apply(store.change_of(entry.id))
    return labels


def assert_equal(left: AnnotationState, right: AnnotationState) -> None:
    assert left.category.tolist() == right.category.tolist()
    assert left.by_hand.tolist() == right.by_hand.tolist()
    assert (left.names, left.next_group) == (right.names, right.next_group)


def test_what_was_saved_is_there_again(tmp_path):
    path, labels = tmp_path / FILE, AnnotationState.initial(START)
    with closing(LabelStore(RunFiles(path.parent), "a run")) as store:
        for number, make in enumerate(
            (
                lambda: rename(labels, 0, "kettle é"),
                lambda: split(labels, [1]),
                lambda: move(labels, [2, 4], DISCARDED),
                lambda: merge(labels, 1, class_place(0)),
            )
        ):
            change = make()
            assert store.append(number, "edit", f"step {number}", change) == number + 1
            labels.apply(change)
    assert_equal(reopened(path), labels)
    assert_equal(replayed(path, START), labels)
    assert reopened(path).next_group == 3  # group 2 came from the split


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing_that_it_had_saved(tmp_path):
    start = np.arange(1000) // 10
    moments = {n_lines: tmp_path / str(n_lines) / FILE for n_lines in (1, 40)}
    for path in moments.values():
        path.parent.mkdir()
    processes = [
        subprocess.Popen([sys.executable, SCRIPT, path], stdout=subprocess.PIPE, text=True) for path in moments.values()
    ]
    for process, (n_lines, path) in zip(processes, moments.items(), strict=True):
        said = [int(process.stdout.readline()) for _ in range(n_lines)]
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.communicate()[0].splitlines() if line]
        assert process.returncode == -signal.SIGKILL
        with closing(LabelStore(RunFiles(path.parent), "a run")) as store:
            saved = [entry.id for entry in store.entries()]
        # The last action may have been saved a moment before the process could say so.
        assert saved == list(range(1, len(saved) + 1))
        assert said[-1] <= len(saved) <= said[-1] + 1
        assert_equal(reopened(path, start), replayed(path, start))


def test_a_failed_write_leaves_neither_action_nor_state(tmp_path):
    path, labels = tmp_path / FILE, AnnotationState.initial(START)
    with closing(LabelStore(RunFiles(path.parent), "a run")) as store:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON groups BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
            other.commit()
        with pytest.raises(RunFolderError, match="disk is full"):
            store.append(
                0, "name", "a name", Change(move(labels, [1], DISCARDED).samples, rename(labels, 0, "x").names)
            )
        assert store.entries() == []
    assert_equal(reopened(path), AnnotationState.initial(START))


def test_a_locked_file_is_told_and_nothing_is_changed(tmp_path, monkeypatch):
    path, labels = tmp_path / FILE, AnnotationState.initial(START)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **options: connect(*given, **(options | {"timeout": 0.05})))
    with (
        closing(LabelStore(RunFiles(path.parent), "a run")) as store,
        closing(connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunFolderError, match=r"cannot be written \(database is locked\); nothing was changed"):
            store.append(0, "name", "a name", rename(labels, 0, "kettle"))
        other.execute("ROLLBACK")
        assert store.append(0, "name", "a name", rename(labels, 0, "kettle")) == 1


def test_the_log_can_only_grow(tmp_path):
    path = tmp_path / FILE
    with closing(LabelStore(RunFiles(path.parent), "a run")) as store:
        store.append(0, "name", "a name", rename(AnnotationState.initial(START), 0, "kettle"))
    with closing(sqlite3.connect(path)) as other:
        for statement in ("UPDATE actions SET text = ''", "DELETE FROM actions"):
            with pytest.raises(sqlite3.DatabaseError, match="actions are only appended"):
                other.execute(statement)


def test_two_processes_cannot_write_past_each_other(tmp_path):
    path, labels = tmp_path / FILE, AnnotationState.initial(START)
    with (
        closing(LabelStore(RunFiles(path.parent), "a run")) as one,
        closing(LabelStore(RunFiles(path.parent), "a run")) as two,
    ):
        one.append(0, "name", "a name", rename(labels, 0, "kettle"))
        with pytest.raises(RunFolderError, match=r"another process has written .* Nothing was saved"):
            two.append(0, "name", "a name", rename(labels, 0, "lamp"))
    assert reopened(path).names == {0: "kettle"}


def test_nobody_writes_between_looking_at_the_log_and_adding_to_it(tmp_path):
    path, labels, refused = tmp_path / FILE, AnnotationState.initial(START), []
    with (
        closing(LabelStore(RunFiles(path.parent), "a run")) as store,
        closing(sqlite3.connect(path, timeout=0)) as other,
    ):

        def write_meanwhile(statement: str) -> None:
            if statement.startswith("SELECT"):
                try:
                    other.execute("INSERT INTO actions (kind, text, change) VALUES ('name', '', '')")
                    other.commit()
                except sqlite3.OperationalError as error:
                    refused.append(str(error))

        store._connection.set_trace_callback(write_meanwhile)
        assert store.append(0, "name", "a name", rename(labels, 0, "kettle")) == 1
        store._connection.set_trace_callback(None)
        assert refused == ["database is locked"]
        assert [entry.text for entry in store.entries()] == ["a name"]


def test_labels_of_another_run_are_refused_with_what_to_do(tmp_path):
    LabelStore(RunFiles(tmp_path), "a run").close()
    with pytest.raises(RunFolderError, match=r"belongs to another run: .* was run again .* move labels.sqlite away"):
        LabelStore(RunFiles(tmp_path), "another run")


def test_labels_of_another_version_are_refused(tmp_path):
    LabelStore(RunFiles(tmp_path), "a run").close()
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("UPDATE about SET value = 'uniot-labels-9' WHERE key = 'format'")
        other.commit()
    with pytest.raises(RunFolderError, match="has format 'uniot-labels-9' and this version of uniot reads"):
        LabelStore(RunFiles(tmp_path), "a run")


def test_a_damaged_file_is_told_and_left_alone(tmp_path):
    (tmp_path / FILE).write_bytes(b"no database at all, " * 100)
    with pytest.raises(RunFolderError, match=r"is damaged \(file is not a database\). Move it away"):
        LabelStore(RunFiles(tmp_path), "a run")
    assert (tmp_path / FILE).read_bytes().startswith(b"no database at all")


def test_a_second_page_on_the_same_run_is_refused_until_the_first_has_ended(tmp_path):
    with (
        label_lock(tmp_path),
        pytest.raises(RunFolderError, match="another `uniot label` or `uniot ask` has .* open"),
        label_lock(tmp_path),
    ):
        pass
    with label_lock(tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    with (
        pytest.raises(RunFolderError, match=r"cannot be written .* Copy it to a folder"),
        label_lock(tmp_path / "x"),
    ):
        pass
