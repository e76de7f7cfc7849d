"""A run of another format is refused in one sentence that gives the format and what to do."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import uniot as package
from uniot import Run, UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import RunFolderError
from uniot.labelling.actions import NameGroup
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore

REFUSED = (
    r"has format 'uniot-3' and this version of uniot reads 'uniot-4'. Install the version that wrote it, or make it "
    r"again.$"
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    toy = make_toy_domains(3, 1, 2, samples_per_class=10, dimensions=8, seed=1)
    folder = tmp_path_factory.mktemp("runs") / "run"
    UniNCM(random_state=0, n_private_classes=2).fit(toy.x_source, toy.y_source, toy.x_target).save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def give_old_format(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b'"uniot-4"') == 1
    path.write_bytes(content.replace(b'"uniot-4"', b'"uniot-3"'))


@pytest.mark.parametrize("name", ["model.safetensors", "features.safetensors"])
@pytest.mark.parametrize("opened", [lambda folder: Run.open(folder).model, package.load])
def test_a_run_of_an_old_format_is_refused(folder, name, opened):
    assert len(Run.open(folder).model.target), "the run is whole before its format is changed"
    give_old_format(folder / name)
    with pytest.raises(RunFolderError, match=f"{name} {REFUSED}"):
        opened(folder)


def test_a_command_refuses_a_run_of_an_old_format(folder, uniot):
    give_old_format(folder / "model.safetensors")
    said = uniot("report", folder)
    assert said.code == 1
    assert "has format 'uniot-3' and this version of uniot reads 'uniot-4'" in " ".join(said.stderr.split())


def test_labels_of_an_old_format_are_refused_and_kept(folder):
    run = Run.open(folder)
    target = TargetSamples.of_run(run)
    with closing(LabelStore.of_run(run, target.digest)) as store:
        LabellingSession(target, store).act(NameGroup(kind="name", group=0, name="kettle"), seen=0)
    assert "kettle" in Run.open(folder).model.group_names.values()
    with closing(sqlite3.connect(run.files.annotations)) as labels, labels:
        labels.execute("UPDATE about SET value = 'uniot-labels-1' WHERE key = 'format'")
    words = r"has format 'uniot-labels-1' and this version of uniot reads 'uniot-labels-2'. Install .*or move the file"
    with pytest.raises(RunFolderError, match=words):
        _ = Run.open(folder).model
    with pytest.raises(RunFolderError, match=words):
        LabelStore.of_run(run, target.digest)
    with closing(sqlite3.connect(run.files.annotations)) as labels:
        assert labels.execute("SELECT name FROM groups WHERE number = 0").fetchall() == [("kettle",)]
