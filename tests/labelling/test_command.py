"""`uniot label` as it is typed, on a real run: from the first address to labels.csv."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np
import pytest

from uniot import UniNCM
from uniot.annotations.places import class_place
from uniot.datasets import make_toy_domains
from uniot.errors import RunFolderError
from uniot.labelling.actions import NameGroup
from uniot.labelling.names import read_names
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import FILE, LabelStore, label_lock
from uniot.runs.run import Run
from uniot.runs.saving import save_model


@pytest.fixture(scope="module")
def model():
    toy = make_toy_domains(seed=1)
    return UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target).model_


@pytest.fixture
def run(model, tmp_path) -> Path:
    names = [f"ünï cödé/{row}, photo.jpg" for row in range(len(model.target))]
    save_model(model, tmp_path / "run", names)
    return tmp_path / "run"


def name_group(run: Path, group: int, name: str) -> None:
    target = TargetSamples.of_run(Run.open(run))
    store = LabelStore.of_run(Run.open(run), target.digest)
    session = LabellingSession(target, store)
    session.act(NameGroup(kind="name", group=group, name=name), session.revision)
    store.close()


@pytest.mark.usefixtures("interruptible")
def test_the_page_is_served_until_it_is_interrupted(uniot, run):
    command = [sys.executable, "-m", "uniot", "label", str(run)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as server:
        try:
            address = re.fullmatch(
                r"Label here: (http://127\.0\.0\.1:\d+/\?token=[\w-]{43})\n", server.stdout.readline()
            )
            assert address is not None
            browser = build_opener(HTTPCookieProcessor())
            with browser.open(address[1]) as page:
                assert page.url.endswith("/")
                assert "token" not in page.url
                assert "<title>Label run · uniot</title>" in page.read().decode()
            code, _, said = uniot("label", run)
            assert code == 1
            assert "another `uniot label` or `uniot ask` has" in said
        finally:
            server.send_signal(signal.SIGINT)
        told = server.communicate(timeout=20)[1]
    assert server.returncode == 0
    assert "Traceback" not in told
    assert f"Ended; nothing was named yet. Next: uniot label {run}" in told
    assert not (run / "labels.sqlite-wal").exists()
    with label_lock(run):
        pass


def test_the_end_of_the_page_names_the_next_command_if_something_has_a_name(uniot, run, monkeypatch):
    monkeypatch.setattr("uniot.labelling.server.serve", lambda *_, **__: None)
    (run / "labels.csv").write_text("path,label,decision\n", encoding="utf-8")
    assert f"Ended; nothing was named yet. Next: uniot label {run}" in uniot("label", run)[2]
    (run / "labels.csv").write_text("path,label,decision\na,kettle,named\n", encoding="utf-8")
    told = uniot("label", run)[2]
    assert f"every label is in {run / 'labels.sqlite'}. Next: uniot adapt --continue {run}" in told


def test_export_needs_no_page_and_names_the_next_command(uniot, run, model):
    name_group(run, 0, "kettle")
    with label_lock(run):  # a page that is open does not stop it
        code, said, _ = uniot("label", run, "--out", run / "labels.csv")
    assert code == 0
    assert f"{run / 'labels.csv'} is written: " in said
    assert f"Next: uniot adapt --continue {run}" in said
    members = np.flatnonzero(model.target.group == 0)
    found = read_names(run / "labels.csv")
    assert found.names == [f"ünï cödé/{row}, photo.jpg" for row in members]
    assert set(found.labels) == {"kettle"}
    with (run / "labels.csv").open(encoding="utf-8", newline="") as file:
        assert {row["group"] for row in csv.DictReader(file)} == {"0"}


def test_export_before_anything_is_named_says_what_to_do(uniot, run):
    code, _, said = uniot("label", run, "--out", run / "labels.csv")
    assert code == 1
    assert "has no labels yet. Run `uniot label" in said
    assert not (run / "labels.csv").exists()


def test_a_run_that_was_made_again_keeps_the_old_labels_from_the_new_groups(uniot, run, model):
    name_group(run, 0, "kettle")
    group = model.target.group.copy()
    group[np.flatnonzero(group == 0)[0]] = 1
    # Another program than this one writes the run: `save` itself refuses to separate a run from its labels.
    labels = (run / FILE).read_bytes()
    (run / FILE).unlink()
    save_model(replace(model, target=replace(model.target, group=group)), run, read_all_names(run))
    (run / FILE).write_bytes(labels)
    for command in (("label", run, "--out", run / "labels.csv"), ("label", run)):
        code, _, said = uniot(*command)
        assert code == 1
        assert "belongs to another run" in said
        assert "To start again without labels, move labels.sqlite away" in said


def test_the_same_run_made_again_keeps_its_labels(uniot, run, model):
    name_group(run, 0, "kettle")
    save_model(model, run, read_all_names(run))
    assert uniot("label", run, "--out", run / "labels.csv")[0] == 0


def read_all_names(run: Path) -> list[str]:
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return [row["path"] for row in csv.DictReader(file)]


def test_the_target_stands_where_the_run_put_it(run, model):
    target = TargetSamples.of_run(Run.open(run))
    answers = model.target
    assert target.classes == [str(name) for name in model.classes]
    assert (target.start[answers.known] == class_place(0) - answers.nearest[answers.known]).all()
    assert (target.start[~answers.known] == answers.group[~answers.known]).all()
    for index, row in enumerate(target.class_faces):
        assert model.source.classes[np.flatnonzero(model.source.rows == row)[0]] == index


def test_unknown_samples_without_a_group_make_one(run, model):
    target = replace(model.target, group=np.full(len(model.target), -1))
    none = replace(model.groups, group=target.group[~target.known], centres=model.groups.centres[:0])
    save_model(replace(model, target=target, groups=none), run)
    assert set(TargetSamples.of_run(Run.open(run)).start[~target.known]) == {0}


def test_two_samples_of_one_name_cannot_be_labelled(run, model):
    names = read_all_names(run)
    names[5] = names[2]
    save_model(model, run, names)
    with pytest.raises(
        RunFolderError, match="has two samples named 'ünï cödé/2, photo.jpg', and labels are stored by name"
    ):
        TargetSamples.of_run(Run.open(run))


def test_a_table_of_another_length_is_refused(run):
    lines = (run / "predictions.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "predictions.csv").write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(
        RunFolderError,
        match=r"mixes files of two runs: the model has \d+ target samples, predictions.csv \d+. Make the run again",
    ):
        TargetSamples.of_run(Run.open(run))


def test_what_is_no_run_is_told(uniot, tmp_path):
    code, _, said = uniot("label", tmp_path / "nowhere")
    assert (code, "is not a folder" in said) == (1, True)


def test_a_network_address_needs_a_word_more(uniot, run):
    code, _, said = uniot("label", run, "--host", "0.0.0.0")
    assert code == 1
    assert "Add --allow-network if you want that" in said


def test_without_its_packages_the_page_says_what_to_install(uniot, run):
    kept = {name: module for name, module in sys.modules.items() if name.startswith("uniot.labelling.server")}
    with mock.patch.dict(sys.modules, {"uvicorn": None}):
        for name in kept:
            del sys.modules[name]
        code, _, said = uniot("label", run)
    sys.modules.update(kept)
    assert code == 1
    assert "the labelling page needs uvicorn" in said
    assert "pip install 'uniot[report]'" in said


def test_pictures_of_another_run_are_refused(uniot, run, model):
    from uniot.runs.pictures import write_pixels

    write_pixels(run, np.zeros((3, 8, 8)), np.zeros((7, 8, 8)))
    code, _, said = uniot("label", run)
    assert code == 1
    assert "target samples, the pictures 7" in said


def test_an_export_of_nothing_leads_back_to_the_page(uniot, run):
    name_group(run, 0, "kettle")
    name_group(run, 0, "")
    code, said, _ = uniot("label", run, "--out", run / "labels.csv")
    assert code == 0
    assert "nothing has a name yet" in said
    assert said.rstrip().endswith(f"Next: uniot label {run}")


def test_labels_go_out_to_a_tool_and_come_back_by_the_command_line(uniot, run, model, tmp_path):
    name_group(run, 0, "kettle")
    code, said, _ = uniot("label", run, "--out", tmp_path / "out.jsonl")
    assert code == 0
    assert f"{tmp_path / 'out.jsonl'} is written: " in said
    assert uniot("label", run, "--out", tmp_path / "coco.json", "--format", "coco")[0] == 0
    for leftover in run.glob("labels.sqlite*"):
        leftover.unlink()
    code, said, _ = uniot("label", run, "--import", tmp_path / "out.jsonl")
    count = int((model.target.group == 0).sum())
    assert (code, said.startswith(f"{count} samples imported with 1 label.")) == (0, True)
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["label"] for line in lines if line["group"] == "0"} == {"kettle"}


def test_a_format_without_a_file_and_a_file_without_a_format_are_explained(uniot, run, tmp_path):
    name_group(run, 0, "kettle")
    code, _, said = uniot("label", run, "--format", "coco")
    assert (code, "Give --out FILE as well" in said) == (1, True)
    code, _, said = uniot("label", run, "--out", tmp_path / "what.json")
    assert (code, "Add --format" in said) == (1, True)
    with label_lock(run):
        (tmp_path / "a.csv").write_text("path,label\n", encoding="utf-8")
        code, _, said = uniot("label", run, "--import", tmp_path / "a.csv")
    assert (code, "another `uniot label` or `uniot ask` has" in said) == (1, True)
    code, _, said = uniot("label", run, "--import", tmp_path / "nowhere.csv")
    assert (code, "nowhere.csv cannot be read" in said) == (1, True)
