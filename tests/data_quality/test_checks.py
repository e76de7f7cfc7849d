"""What a run folder and the last lines of a run say of the collections."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from uniot.data_quality.checks import (
    LabelledSamples,
    check_collections,
    read_near_duplicates,
    read_suspect_labels,
)
from uniot.errors import RunFolderError

SUSPECT_LABELS, NEAR_DUPLICATES = "suspect_labels.csv", "near_duplicates.csv"


def samples(seed: int, **changes) -> LabelledSamples:
    rng = np.random.default_rng(seed)
    classes = np.arange(60) % 3
    values = {
        "embeddings": 3 * np.eye(3, 40)[classes] + 0.5 * rng.normal(size=(60, 40)),
        "names": [f"{seed}/é {row}.jpg" for row in range(60)],
        "labels": np.array(["ant", "bee", "cow"], dtype="U9")[classes],
    }
    return LabelledSamples(**(values | changes))


@pytest.fixture
def checked():
    source, target = samples(1), samples(2)
    source.labels[4] = "cow"
    source.embeddings[6] = source.embeddings[3]
    target.embeddings[9] = source.embeddings[30]
    target.embeddings[11] = source.embeddings[31]
    target.labels[11] = "unknown"
    return check_collections(source, target)


def test_tables_are_written_sorted_and_read_back(checked, tmp_path):
    checked.write(tmp_path / SUSPECT_LABELS, tmp_path / NEAR_DUPLICATES)
    with (tmp_path / SUSPECT_LABELS).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["sample"] for line in lines] == ["1/é 4.jpg"]
    assert {name: lines[0][name] for name in ("row", "label", "suggested", "clear")} == {
        "row": "4",
        "label": "cow",
        "suggested": "bee",
        "clear": "true",
    }
    assert [one.row for one in read_suspect_labels(tmp_path / SUSPECT_LABELS)] == [4]
    pairs = {(one.where, one.first_row, one.second_row, one.second_label) for one in checked.pairs}
    assert pairs == {("source", 3, 6, "ant"), ("both", 30, 9, "ant"), ("both", 31, 11, "unknown")}
    assert [one.second for one in read_near_duplicates(tmp_path / NEAR_DUPLICATES)] == [
        one.second for one in checked.pairs
    ]


def test_lines_count_what_is_clear_and_how_copies_were_answered(checked, tmp_path):
    labels, copies = checked.lines(tmp_path / SUSPECT_LABELS, tmp_path / NEAR_DUPLICATES)
    assert labels == f"1 source label looks wrong, marked clear in {tmp_path / SUSPECT_LABELS}"
    assert copies == (
        "3 pairs of samples are nearly the same (1 in the source; 2 between the two, 1 of which got the label of the "
        f"source sample): see {tmp_path / NEAR_DUPLICATES}"
    )


def test_collections_without_fault_leave_no_file_and_no_line(checked, tmp_path):
    checked.write(tmp_path / SUSPECT_LABELS, tmp_path / NEAR_DUPLICATES)
    clean = check_collections(samples(1), samples(2))
    clean.write(tmp_path / SUSPECT_LABELS, tmp_path / NEAR_DUPLICATES)
    assert not list(tmp_path.iterdir())
    assert not clean.lines(tmp_path / SUSPECT_LABELS, tmp_path / NEAR_DUPLICATES)


def test_target_sample_that_somebody_labelled_is_no_duplicate_of_itself():
    target = samples(2)
    source = samples(1)
    named = LabelledSamples(
        np.concatenate([source.embeddings, target.embeddings[5:6]]),
        [*source.names, target.names[5]],
        np.append(source.labels, target.labels[5]),
        np.arange(61) == 60,
    )
    assert not check_collections(named, target).pairs


def test_check_that_fails_does_not_fail_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("uniot.neighbours.MOST_COMPARED_WITH_ALL", 10)
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    (line,) = check_collections(samples(1), samples(2)).lines(tmp_path / SUSPECT_LABELS, tmp_path / NEAR_DUPLICATES)
    assert line.startswith("Labels and duplicates were not checked: ")
    assert "uniot[large]" in line


@pytest.mark.parametrize("text", ["sample,row\nx,1\n", "a,b,c,d,e,f\nx,one,a,b,0.5,true\n", "a\n\0\n"])
def test_damaged_table_is_named(tmp_path, text):
    (tmp_path / SUSPECT_LABELS).write_text(text)
    with pytest.raises(RunFolderError, match="suspect_labels.csv cannot be read"):
        read_suspect_labels(tmp_path / SUSPECT_LABELS)
