"""The tables of a run folder follow the page, within a moment and after a crash."""

from __future__ import annotations

import csv
import time
from contextlib import closing
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from uniot import UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import RunFolderError
from uniot.labelling.actions import NameGroup
from uniot.labelling.names import read_names
from uniot.labelling.publishing import Publisher, export_run
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.runs.loading import load_model
from uniot.runs.run import Run
from uniot.runs.saving import save_model


@pytest.fixture(scope="module")
def model():
    toy = make_toy_domains(seed=1)
    return UniNCM(random_state=0, n_private_classes=2).fit(toy.x_source, toy.y_source, toy.x_target).model_


@pytest.fixture
def run(model, tmp_path) -> Path:
    save_model(model, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def session(run):
    target = TargetSamples.of_run(Run.open(run))
    with closing(LabelStore.of_run(Run.open(run), target.digest)) as store:
        yield LabellingSession(target, store)


def labels_of(run: Path) -> list[str]:
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return [line["label"] for line in csv.DictReader(file)]


def name(session: LabellingSession, group: int, text: str) -> None:
    session.act(NameGroup(kind="name", group=group, name=text), session.revision)


def until(condition) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("nothing was published")


def test_the_tables_follow_while_the_page_is_open_and_end_with_the_last_state(run, session, model):
    members = np.flatnonzero(model.target.group == 0)
    with Publisher(session, load_model(run)):
        name(session, 0, "kettle")
        until(lambda: "kettle" in labels_of(run))
        name(session, 1, "lamp")
    labels = labels_of(run)
    assert {labels[row] for row in members} == {"kettle"}
    assert {labels[row] for row in np.flatnonzero(model.target.group == 1)} == {"lamp"}
    assert read_names(run / "labels.csv").new_classes == ["kettle", "lamp"]


def test_nothing_is_written_if_nothing_was_done(run, session):
    before = (run / "predictions.csv").stat().st_mtime_ns
    with Publisher(session, load_model(run)):
        pass
    assert (run / "predictions.csv").stat().st_mtime_ns == before
    assert not (run / "labels.csv").exists()


def test_what_a_killed_page_left_is_written_by_the_next_one(run, session):
    name(session, 0, "kettle")  # no publisher, as after kill -9
    assert "kettle" not in labels_of(run)
    with Publisher(session, load_model(run)):
        pass
    assert "kettle" in labels_of(run)


def test_a_table_that_cannot_be_written_is_told_on_the_page(run, session):
    (run / "labels.csv").mkdir()
    with Publisher(session, load_model(run)):
        name(session, 0, "kettle")
        until(lambda: session.problem)
    assert f"{run / 'labels.csv'} cannot be written" in session.overview()["problem"]


def test_integer_classes_are_text_beside_names(tmp_path):
    toy = make_toy_domains(seed=1)
    numbers = np.unique(toy.y_source, return_inverse=True)[1]
    model = UniNCM(random_state=0, n_private_classes=2).fit(toy.x_source, numbers, toy.x_target).model_
    save_model(model, tmp_path / "run")
    target = TargetSamples.of_run(Run.open(tmp_path / "run"))
    with closing(LabelStore.of_run(Run.open(tmp_path / "run"), target.digest)) as store:
        session = LabellingSession(target, store)
        with Publisher(session, model):
            name(session, 0, "kettle")
    found = set(labels_of(tmp_path / "run"))
    assert "kettle" in found
    assert found - {"kettle"} <= {*map(str, numbers.tolist()), "-1"}


def test_an_end_in_the_moment_before_the_tables_are_written_is_not_missed(run, session):
    publisher = Publisher(session, load_model(run))

    class EndsAfterTheRest(Event):
        """As if the page ended when the thread has just found that it has not."""

        def wait(self, timeout: float | None = None) -> bool:
            found = self.is_set()
            self.set()
            publisher._wake.set()
            return found

    publisher._ends = EndsAfterTheRest()
    session.on_change = publisher._note
    name(session, 0, "kettle")
    publisher._thread.start()
    publisher._thread.join(timeout=20)
    assert not publisher._thread.is_alive()
    assert "kettle" in labels_of(run)


def test_labels_that_were_never_made_say_how_to_make_them(run):
    with pytest.raises(RunFolderError, match=r"has no labels yet. Run `uniot label"):
        export_run(run, run / "labels.csv")
    assert not (run / "labels.sqlite").exists()
