"""After naming a group, every command says the name: predict, report, predictions.csv, copies; on real images."""

from __future__ import annotations

import csv
import re
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from uniot.annotations.places import class_place
from uniot.labelling.actions import Edit, MergeGroup, MoveSamples, NameGroup, SplitGroup
from uniot.labelling.publishing import publish
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.runs import Run
from uniot.runs.loading import load_model


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Keeps embeddings, so that images are read once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def finished(uniot, shape_folders, store, tmp_path_factory) -> Path:
    source, target = shape_folders
    out = tmp_path_factory.mktemp("named") / "run"
    code, _, said = uniot(
        "adapt", source, target, "--out", out, "--private-classes", 1, "--store", store, "--workers", 0, "--parquet"
    )
    assert code == 0, said
    return out


@pytest.fixture
def run(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def act(run: Path, *actions: Edit) -> None:
    target = TargetSamples.of_run(Run.open(run))
    with closing(LabelStore.of_run(Run.open(run), target.digest)) as store:
        session = LabellingSession(target, store)
        for action in actions:
            session.act(action, session.revision)
        publish(session, load_model(run))


def rows(table: str | Path) -> dict[str, dict[str, str]]:
    lines = table.read_text(encoding="utf-8").splitlines() if isinstance(table, Path) else table.splitlines()
    return {line["path"]: line for line in csv.DictReader(lines)}


def moved_by_hand(run: Path) -> tuple[int, str, str]:
    """Name group 0 "house", and move one sample of it to the class circle."""
    model = load_model(run)
    row = int(np.flatnonzero(model.target.group == 0)[0])
    circle = class_place(model.classes.tolist().index("circle"))
    act(
        run,
        NameGroup(kind="name", group=0, name="house"),
        MoveSamples(kind="move", rows=[row], to=f"class-{-2 - circle}"),
    )
    names = TargetSamples.of_run(Run.open(run)).names
    other = int(np.flatnonzero(model.target.group == 0)[1])
    return row, names[row], names[other]


def test_predictions_csv_says_the_name_and_what_was_moved(run):
    _, moved, house = moved_by_hand(run)
    table = rows(run / "predictions.csv")
    assert (table[house]["label"], table[house]["known"], table[house]["group"]) == ("house", "false", "0")
    assert (table[moved]["label"], table[moved]["known"], table[moved]["group"]) == ("circle", "true", "")
    assert {line["label"] for line in table.values()} >= {"house", "circle"}
    import pyarrow.parquet

    labels = pyarrow.parquet.read_table(run / "predictions.parquet").column("label").to_pylist()
    assert labels == [line["label"] for line in table.values()]


def test_predict_says_the_name_of_every_kind_of_sample(uniot, run, shape_folders, store):
    _, moved, house = moved_by_hand(run)
    options = ("--store", store, "--workers", 0)
    code, said, _ = uniot("predict", run, shape_folders[1], *options)
    assert code == 0
    table = rows(said)
    assert table[house]["label"] == "house"
    assert (table[moved]["label"], table[moved]["known"]) == ("circle", "true")
    assert {name: line["label"] for name, line in table.items()} == {
        name: line["label"] for name, line in rows(run / "predictions.csv").items()
    }
    # One photograph, in words, under another name than the target's.
    code, said, _ = uniot("predict", run, shape_folders[1] / house)
    assert (
        code,
        bool(re.search(r": house, confidence 0\.\d\d; group 0, group confidence .*; nearest class ", said)),
    ) == (0, True)
    code, said, _ = uniot("predict", run, shape_folders[1] / moved)
    assert (code, ": circle, " in said) == (0, True)


def test_copies_go_to_a_folder_of_that_name(uniot, run, shape_folders, store, tmp_path):
    _, moved, house = moved_by_hand(run)
    copied = tmp_path / "sorted"
    code, _, said = uniot("predict", run, shape_folders[1], "--copy-to", copied, "--store", store, "--workers", 0)
    assert code == 0, said
    assert not list(copied.glob("unknown*"))
    originals = {name: (shape_folders[1] / name).read_bytes() for name in (moved, house)}
    found = {path.read_bytes(): path.parent.name for path in copied.rglob("*.png")}
    assert (found[originals[house]], found[originals[moved]]) == ("house", "circle")


def test_the_report_says_the_name(uniot, run):
    moved_by_hand(run)
    code, _, said = uniot("report", run)
    assert code == 0, said
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "house" in page
    assert "Group 0" not in page


def test_a_preference_does_not_undo_what_a_person_decided(run):
    row, _, _ = moved_by_hand(run)
    for prefer in ("known", "unknown"):
        model = Run.open(run, prefer=prefer).model
        assert model.labels(model.target)[row] == "circle"


def test_the_same_run_again_keeps_the_names(uniot, run, shape_folders, store):
    moved_by_hand(run)
    before = (run / "predictions.csv").read_bytes()
    source, target = shape_folders
    options = ("--private-classes", 1, "--store", store, "--workers", 0)
    code, said, _ = uniot("adapt", source, target, "--out", run, *options)
    assert (code, "already finished" in said) == (0, True)
    assert (run / "predictions.csv").read_bytes() == before


def test_names_of_an_earlier_run_in_the_folder_are_left_out_and_that_is_said(uniot, run, shape_folders, store):
    moved_by_hand(run)
    source, target = shape_folders
    options = ("--private-classes", 2, "--store", store, "--workers", 0, "--overwrite")
    assert uniot("adapt", source, target, "--out", run, *options)[0] == 0
    code, said, told = uniot("predict", run, target, "--store", store, "--workers", 0)
    assert code == 0
    assert "belongs to an earlier run in this folder" in told
    assert "house" not in said


def test_a_new_sample_follows_the_part_of_a_split_group_that_it_is_like(run):
    act(run, SplitGroup(kind="split", group=0), NameGroup(kind="name", group=0, name="house"))
    act(run, NameGroup(kind="name", group=1, name="hut"))
    model, annotated = load_model(run), Run.open(run).model
    unknown = np.flatnonzero(~model.target.known)
    # As if they were new: not equal to any sample of the target.
    features = model.target_features[unknown] + 0.01
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    assert annotated.annotations is not None
    answers = annotated.annotations.for_new(model.target.rows(unknown), features, model.target_features)
    labels = answers.labels(model.classes, "unknown", annotated.group_names)
    assert set(labels) == {"house", "hut"}
    assert (labels == annotated.labels(annotated.target)[unknown]).mean() > 0.8


def test_a_group_that_was_merged_into_a_class_is_that_class_for_new_samples_too(run):
    model = load_model(run)
    act(run, MergeGroup(kind="merge", group=0, to="class-1"))
    annotated = Run.open(run).model
    assert annotated.annotations is not None
    unknown = np.flatnonzero(model.target.group == 0)
    features = model.target_features[unknown[:3]] + 0.05
    answers = annotated.annotations.for_new(model.target.rows(unknown[:3]), features, model.target_features)
    assert answers.known.all()
    assert (answers.nearest == 1).all()
    assert (answers.confidence >= 0.5).all()


def test_discarded_samples_are_called_unknown_without_a_group(run):
    row = int(np.flatnonzero(load_model(run).target.known)[0])
    act(run, MoveSamples(kind="move", rows=[row], to="discarded"))
    line = list(rows(run / "predictions.csv").values())[row]
    assert (line["label"], line["known"], line["group"]) == ("unknown", "false", "")


def test_names_can_be_read_from_a_folder_that_cannot_be_written(uniot, run, shape_folders):
    _, _, house = moved_by_hand(run)
    run.chmod(0o555)
    try:
        code, said, _ = uniot("predict", run, shape_folders[1] / house)
    finally:
        run.chmod(0o755)
    assert (code, ": house, confidence " in said) == (0, True)
