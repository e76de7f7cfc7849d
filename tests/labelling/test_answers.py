"""Answers of a person about single samples: one store, followed by everything that the run says."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import uniot
from uniot import UniNCM
from uniot.annotations.places import class_place, is_class
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, RunFolderError
from uniot.labelling.actions import (
    AnswerQuestion,
    Edit,
    ForgetAnswers,
    LabelSample,
    MergeGroup,
    MoveSamples,
    NameGroup,
    PutBackSamples,
    Redo,
    Undo,
)
from uniot.labelling.publishing import publish
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN
from uniot.runs import Run
from uniot.runs.annotations import FILE
from uniot.runs.saving import save_model

Opened = Callable[[Path], LabellingSession]


@pytest.fixture(scope="module")
def toy():
    """Classes that overlap, so that the run is wrong about some samples."""
    clean = make_toy_domains(3, 2, 2, seed=1)
    noise = np.random.default_rng(0).normal(size=clean.x_target.shape)
    return replace(clean, x_target=clean.x_target + 1.6 * clean.x_target.std() * noise)


@pytest.fixture(scope="module")
def saved(toy, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("answers") / "run"
    UniNCM(random_state=0, n_private_classes=2).fit(toy.x_source, toy.y_source, toy.x_target).save(folder)
    return folder


@pytest.fixture
def run(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


@pytest.fixture
def opened() -> Iterator[Opened]:
    stores: list[LabelStore] = []

    def open_session(run: Path) -> LabellingSession:
        read = Run.open(run)
        target = TargetSamples.of_run(read)
        stores.append(LabelStore.of_run(read, target.digest))
        return LabellingSession(target, stores[-1])

    yield open_session
    for store in stores:
        store.close()


def act(session: LabellingSession, *actions: Edit) -> None:
    for action in actions:
        session.act(action, session.revision)


def answer(session: LabellingSession, row: int, said: str | None) -> None:
    act(session, AnswerQuestion(kind="answer", row=row, answer=said))


def truth(toy) -> np.ndarray:
    return np.where(np.isin(toy.oracle_y_target, np.unique(toy.y_source)), toy.oracle_y_target, "unknown")


def answer_questions(session: LabellingSession, right: np.ndarray, n: int) -> list[int]:
    asked = []
    for _ in range(n):
        (question,) = session.questions()
        answer(session, question.row, str(right[question.row]))
        asked.append(question.row)
    return asked


def labels_of(run: Path) -> np.ndarray:
    model = Run.open(run).model
    return np.asarray(model.labels(model.target))


def shown(session: LabellingSession) -> np.ndarray:
    """Labels as the page shows them."""
    target = session.target
    return np.array(
        [target.classes[-2 - one] if is_class(one) else "unknown" for one in session.state.category.tolist()]
    )


def test_the_page_the_run_and_the_tables_say_the_same_after_answers(run, opened, toy):
    session = opened(run)
    before = shown(session)
    asked = answer_questions(session, truth(toy), 8)
    others = np.setdiff1d(np.arange(len(before)), asked)
    assert (shown(session) != before)[others].any(), "answers move other samples too"
    assert (shown(session)[asked] == truth(toy)[asked]).all()
    assert (labels_of(run) == shown(session)).all()
    publish(session, session.target.model)
    assert (Run.open(run).predictions.labels == shown(session)).all()
    assert (uniot.load(run).labels_ == shown(session)).all()


def test_answers_on_the_page_are_those_of_the_estimator(run, opened, toy):
    session, model = opened(run), uniot.load(run)
    for row in answer_questions(session, truth(toy), 6):
        model.tell(row, str(truth(toy)[row]))
    assert (shown(session) == model.labels_).all()
    assert session.estimate().interval == pytest.approx(model.private_share_interval_)


def test_new_samples_follow_the_answers(run, opened, toy):
    session = opened(run)
    answer_questions(session, truth(toy), 8)
    model = uniot.load(run)
    new = make_toy_domains(3, 2, 2, seed=1).x_target
    predicted = Run.open(run).model
    assert (predicted.labels(predicted.predict(model._inputs(new))) == model.predict(new)).all()


def test_an_answer_is_one_step_that_can_be_undone_and_done_again(run, opened, toy):
    session = opened(run)
    answer_questions(session, truth(toy), 3)
    before, by_hand = session.state.category.copy(), session.state.by_hand.copy()
    answer_questions(session, truth(toy), 1)
    after = session.state.category.copy()
    session.act(Undo(kind="undo", of=session.to_undo.id), session.revision)
    assert (session.state.category == before).all()
    assert (session.state.by_hand == by_hand).all()
    session.act(Redo(kind="redo", of=session.to_redo.id), session.revision)
    assert (session.state.category == after).all()
    again = opened(run)
    assert (again.state.category == after).all()


def test_cannot_tell_is_kept_and_not_asked_again(run, opened):
    session = opened(run)
    (question,) = session.questions()
    before = session.state.category.copy()
    answer(session, question.row, None)
    assert (session.state.category == before).all()
    assert not session.state.by_hand.any()
    again = opened(run)
    assert again.state.cannot_tell.nonzero()[0].tolist() == [question.row]
    assert again.questions()[0].row != question.row
    assert Run.open(run).model.answers.by_row == {question.row: CANNOT_TELL}
    act(again, MoveSamples(kind="move", rows=[question.row], to="class-0"))
    assert not again.state.cannot_tell.any()


def test_cannot_tell_withdraws_an_earlier_answer(run, opened):
    session = opened(run)
    before = session.state.category.copy()
    row = int(np.flatnonzero(before >= 0)[0])
    answer(session, row, session.target.classes[2])
    assert session.state.category[row] == class_place(2)
    answer(session, row, None)
    assert not session.state.by_hand.any()
    assert (session.state.category == before).all()


def test_samples_that_a_person_placed_are_answers(run, opened):
    session = opened(run)
    known = np.flatnonzero(session.state.category < -1)[:2].tolist()
    unknown = np.flatnonzero(session.state.category == 0)[:3].tolist()
    act(
        session,
        MoveSamples(kind="move", rows=known[:1], to="group-1"),
        MoveSamples(kind="move", rows=known[1:], to="discarded"),
        MoveSamples(kind="move", rows=unknown[:1], to="class-2"),
        MoveSamples(kind="move", rows=unknown[1:2], to="group-0"),
    )
    expected = {known[0]: UNKNOWN, known[1]: UNKNOWN, unknown[0]: 2, unknown[1]: UNKNOWN}
    assert Run.open(run).model.answers.by_row == expected
    act(session, PutBackSamples(kind="put-back", rows=unknown[:1]))
    del expected[unknown[0]]
    assert Run.open(run).model.answers.by_row == expected


def test_a_group_with_the_name_of_a_class_is_an_answer_about_its_samples(run, opened):
    session = opened(run)
    members = session.state.members(0)
    act(session, NameGroup(kind="name", group=0, name=session.target.classes[1]))
    assert Run.open(run).model.answers.by_row == dict.fromkeys(members.tolist(), 1)
    answer(session, int(session.state.members(1)[0]), "unknown")
    assert (session.state.category[members] == 0).all()


def test_moving_a_sample_moves_no_other_one_until_the_next_answer(run, opened, toy):
    session = opened(run)
    before = session.state.category.copy()
    rows = np.flatnonzero((truth(toy) != "unknown") & (before >= 0))[:6]
    for row in rows.tolist():
        place = session.target.classes.index(truth(toy)[row])
        act(session, MoveSamples(kind="move", rows=[row], to=f"class-{place}"))
    others = np.delete(np.arange(len(before)), rows)
    assert (session.state.category[others] == before[others]).all()
    assert (labels_of(run) == shown(session)).all()
    confidence = Run.open(run).model.target.confidence
    assert (confidence[rows] == 1).all()
    assert (confidence[others] < 1).all()
    answer_questions(session, truth(toy), 1)
    answered = session.model()
    assert set(rows.tolist()) < set(answered.answers.rows.tolist())
    assert ((session.state.category < -1) == answered.target.known).all()


def test_a_label_with_its_similar_samples_leaves_known_and_unknown_to_the_model(run, opened):
    session = opened(run)
    row = int(session.state.members(0)[0])
    act(session, LabelSample(kind="label", row=row, label="kettle"))
    answered = session.model()
    assert answered.answers.by_row == {row: UNKNOWN}
    assert ((session.state.category < -1) == answered.target.known).all()


def test_a_sample_called_unknown_joins_a_group_and_a_merged_group_is_not_revived(run, opened):
    session = opened(run)
    act(session, MergeGroup(kind="merge", group=0, to="group-1"), NameGroup(kind="name", group=1, name="kettle"))
    for row in np.flatnonzero(session.state.category < -1)[:5].tolist():
        answer(session, row, "unknown")
    assert set(session.state.category[session.state.category >= 0].tolist()) == {1}
    assert session.state.names == {1: "kettle"}


def test_an_empty_group_of_the_run_comes_back_with_its_samples(saved, tmp_path, opened, toy):
    model = uniot.load(saved)
    model.set_params(private_prior=0.0)
    model.fit(toy.x_source, toy.y_source, toy.x_target).save(tmp_path / "run")
    session = opened(tmp_path / "run")
    assert (session.state.category < 0).all()
    row = int(np.flatnonzero(truth(toy) == "unknown")[0])
    answer(session, row, "unknown")
    group = int(session.state.category[row])
    assert group >= 0
    assert (labels_of(tmp_path / "run") == shown(session)).all()
    act(session, MoveSamples(kind="move", rows=[row + 1], to="new"))
    assert session.state.category[row + 1] > group


def test_answers_given_to_an_estimator_are_by_hand_on_the_page(toy, saved, tmp_path, opened):
    model = uniot.load(saved)
    rows = [3, 40, 90]
    model.tell(rows, [str(one) for one in truth(toy)[rows[:2]]] + [None])
    model.save(tmp_path / "told")
    session = opened(tmp_path / "told")
    assert session.state.by_hand.nonzero()[0].tolist() == rows[:2]
    assert session.state.cannot_tell.nonzero()[0].tolist() == rows[2:]
    assert (shown(session) == model.labels_).all()
    answer_questions(session, truth(toy), 1)
    assert set(Run.open(tmp_path / "told").model.answers.rows.tolist()) > set(rows)


def test_estimator_is_not_saved_over_labels_that_would_no_longer_belong_to_the_run(toy, run, tmp_path, opened):
    session = opened(run)
    act(session, NameGroup(kind="name", group=1, name="kettle"))
    publish(session, session.target.model)
    before = (run / "predictions.csv").read_bytes()
    model = uniot.load(run)
    model.save(run)
    assert Run.open(run).model.group_names == {1: "kettle"}
    assert (run / "predictions.csv").read_bytes() == before
    assert b"kettle" in before
    rows = np.flatnonzero(model.labels_ != truth(toy))[:5]
    model.tell(rows, truth(toy)[rows])
    with pytest.raises(RunFolderError, match=r"has labels that people gave .* Save to another folder, or give these"):
        model.save(run)
    assert Run.open(run).model.group_names == {1: "kettle"}
    model.save(tmp_path / "other")
    assert (uniot.load(tmp_path / "other").labels_ == model.labels_).all()


def test_estimator_that_is_saved_again_keeps_the_names_of_the_samples(toy, run):
    names = [f"{row}.jpg" for row in range(len(toy.x_target))]
    model = uniot.load(run)
    save_model(model.model_, run, names)
    model.tell([0], [None]).save(run)
    assert Run.open(run).predictions.names == names


def test_forgetting_gives_the_decision_of_the_rule_and_keeps_names(run, opened, toy):
    session = opened(run)
    before = session.state.category.copy()
    act(session, NameGroup(kind="name", group=1, name="kettle"))
    act(session, MoveSamples(kind="move", rows=[0], to="discarded"))
    answer_questions(session, truth(toy), 6)
    act(session, ForgetAnswers(kind="forget"))
    assert not session.state.by_hand.any()
    assert (session.state.category == before).all()
    assert session.state.names == {1: "kettle"}
    assert not len(Run.open(run).model.answers)
    session.act(Undo(kind="undo", of=session.to_undo.id), session.revision)
    assert session.state.by_hand.sum() == 7


def test_labels_without_a_column_are_refused_and_not_lost_in_silence(run, opened):
    session = opened(run)
    row = int(session.state.members(0)[0])
    act(session, MoveSamples(kind="move", rows=[row], to="class-0"))
    with closing(sqlite3.connect(run / FILE)) as connection:
        connection.execute("ALTER TABLE samples DROP COLUMN cannot_tell")
        connection.commit()
        with pytest.raises(RunFolderError, match=r"labels\.sqlite is damaged \(no such column: cannot_tell\)"):
            _ = Run.open(run).model


def test_samples_that_a_person_labelled_do_not_count_in_the_scores(run, opened, toy):
    session = opened(run)
    asked = answer_questions(session, truth(toy), 5)
    lied = truth(toy).copy()
    lied[asked] = "common-0"
    assert Run.open(run).evaluate(lied).to_dict() == Run.open(run).evaluate(truth(toy)).to_dict()
    model = Run.open(run).model
    others = np.delete(np.arange(len(lied)), asked)
    assert Run.open(run).evaluate(lied).counts == Run.open(run).evaluate(lied, rows=others).counts
    assert not model.labelled_by_people[others].any()


def test_scores_of_other_decisions_are_not_shown(uniot, run, opened, toy, tmp_path):
    labels = tmp_path / "truth.csv"
    labels.write_text("path,label\n" + "".join(f"{row},{one}\n" for row, one in enumerate(truth(toy))))
    assert uniot("evaluate", run, "--labels", labels)[0] == 0
    first = Run.open(run).metrics
    assert first is not None
    session = opened(run)
    answer_questions(session, truth(toy), 8)
    assert Run.open(run).metrics is None
    code, said, _ = uniot("evaluate", run, "--labels", labels)
    assert code == 0
    assert "follow what people said; 8 samples that they labelled are left out of the scores." in " ".join(said.split())
    assert Run.open(run).metrics["h_score"] != first["h_score"]


def test_an_answer_about_no_sample_or_no_class_changes_nothing(run, opened):
    session = opened(run)
    with pytest.raises(DataError, match=r"there is no sample 100000: this run has \d+"):
        answer(session, 100_000, "unknown")
    with pytest.raises(DataError, match="there is no class 'comon-1'. Did you mean 'common-1'?"):
        answer(session, 0, "comon-1")
    assert session.revision == 0


_ANSWERS_UNTIL_KILLED = """
import sys
from uniot.labelling.actions import AnswerQuestion
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.labelling.samples import TargetSamples
from uniot.runs.run import Run
run = Run.open(sys.argv[1])
target = TargetSamples.of_run(run)
session = LabellingSession(target, LabelStore.of_run(run, target.digest))
while True:
    (question,) = session.questions()
    session.act(AnswerQuestion(kind="answer", row=question.row, answer=question.believed), session.revision)
    print(question.row, flush=True)
"""


def test_a_killed_process_loses_no_answer(run, opened):
    process = subprocess.Popen(
        [sys.executable, "-c", _ANSWERS_UNTIL_KILLED, str(run)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    answered = [int(process.stdout.readline()) for _ in range(6)]
    process.kill()
    answered += [int(line) for line in process.stdout.read().split()]
    process.wait()
    process.stdout.close()
    found = opened(run).state.by_hand.nonzero()[0].tolist()
    assert set(answered) <= set(found)
    assert len(found) <= len(answered) + 1
    assert (labels_of(run) == shown(opened(run))).all()
