"""The questions of the labelling page: what the server says, and what it refuses."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import uniot
from uniot.annotations.places import class_place, is_class
from uniot.datasets import make_toy_domains
from uniot.labelling.actions import AnswerQuestion, MoveSamples, NameGroup
from uniot.labelling.questions import HARDLY
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import N_EXEMPLARS
from uniot.runs import Run


def answer(session, row, said):
    session.act(AnswerQuestion(kind="answer", row=row, answer=said), session.revision)


def answer_until_settled(session, truth, most=40):
    for _ in range(most):
        if (view := session.question_view())["settled"]:
            return view
        row = view["question"]["row"]
        answer(session, row, str(truth[row]))
    pytest.fail(f"not settled after {most} answers")


def test_the_question_is_the_one_that_the_model_asks(asked, asked_session):
    found = asked.ask("/questions").json
    question = found["question"]
    target, model = asked_session.target, asked_session.model()
    assert question["row"] == int(model.ask(1)[0])
    assert question["name"] == target.names[question["row"]]
    place = int(asked_session.state.category[question["row"]])
    assert question["now"]["label"] == (target.classes[-2 - place] if is_class(place) else "unknown")
    assert question["now"]["confidence"] == pytest.approx(float(model.target.confidence[question["row"]]), abs=1e-3)
    assert [one["name"] for one in question["nearest"]] == [name for name, _ in asked_session.questions()[0].nearest]
    assert sorted(question["classes"]) == [f"class-{index}" for index in range(5)]
    assert question["nearest"][0]["name"] == target.classes[int(model.target.nearest[question["row"]])]


def test_the_share_and_its_interval_move_with_an_answer(asked, asked_session):
    before = asked.ask("/questions").json
    assert (before["answers"], before["settled"]) == (0, False)
    row = before["question"]["row"]
    body = {"seen": 0, "action": {"kind": "answer", "row": row, "answer": "unknown"}, "questions": True}
    told = asked.ask("/actions", "POST", json.dumps(body).encode()).json
    after = told["questions"]
    assert told["message"].startswith("1 image answered “unknown”")
    assert after["answers"] == 1
    assert after["revision"] == told["state"]["revision"] == 1
    assert after["question"]["row"] != row
    assert after["interval"] != before["interval"]
    estimate = asked_session.estimate()
    assert (after["unknown"], *after["interval"]) == pytest.approx((estimate.unknown, *estimate.interval), abs=1e-4)
    assert after["share"] == estimate.sentence
    assert Run.open(asked_session.store.files.folder).model.answers.by_row == {row: -1}, (
        "it is saved before it is confirmed"
    )


def test_exemplars_are_source_samples_of_the_class_and_members_that_a_person_placed(asked_session):
    target = asked_session.target
    source = target.model.source
    (question,) = asked_session.questions()
    for index in range(len(target.classes)):
        rows = target.class_exemplars(index, N_EXEMPLARS)
        assert len(set(rows)) == N_EXEMPLARS
        assert (source.classes[np.isin(source.rows, rows)] == index).all()
        assert rows[0] == target.class_faces[index]
    members = asked_session.state.members(class_place(1)).tolist()
    placed = next(row for row in asked_session.state.members(0).tolist() if row != question.row)
    asked_session.act(MoveSamples(kind="move", rows=[placed], to="class-1"), asked_session.revision)
    found = asked_session.order.class_members(1, 3, leave_out=members[0])
    assert found[0] == placed
    assert set(found[1:]) < set(members[1:])
    assert placed not in asked_session.order.class_members(1, 3, leave_out=placed)


def test_without_a_source_a_class_has_no_exemplar_of_it(target):
    assert target.class_exemplars(1, 3) == [1]
    object.__setattr__(target, "class_faces", np.full(3, -1))
    assert target.class_exemplars(1, 3) == []


def test_a_sample_of_a_named_group_says_so(asked_session):
    (question,) = [one for one in asked_session.questions(20) if one.belief.group][:1]
    group = int(asked_session.state.category[question.row])
    assert question.belief.group == f"group {group}"
    asked_session.act(NameGroup(kind="name", group=group, name="kettle"), asked_session.revision)
    (again,) = [one for one in asked_session.questions(20) if one.row == question.row]
    assert again.belief.group == f"group {group} “kettle”"
    assert again.believed == "unknown"


def test_settled_is_what_the_expected_change_says(asked_session, asked_run):
    view = answer_until_settled(asked_session, asked_run.truth)
    assert view["answers"] >= 3
    assert asked_session.model().expected_change(view["question"]["row"]) < HARDLY


def test_when_every_sample_has_an_answer_there_is_no_question(asked_session):
    n_samples = len(asked_session.target.names)
    asked_session.tell(dict.fromkeys(range(n_samples), -1))
    view = asked_session.question_view()
    assert (view["question"], view["settled"], view["answers"]) == (None, True, n_samples)
    assert view["unknown"] == 1


def test_the_rows_to_preload_hold_the_next_question_after_the_usual_answers(asked, asked_session):
    (question,) = asked_session.questions()
    rows = asked.ask(f"/questions/following?row={question.row}").json["rows"]
    assert 1 <= len(rows) <= 3
    for said in (question.nearest[0][0], "unknown", None):
        answer(asked_session, question.row, said)
        assert asked_session.questions()[0].row in rows
        asked.act(kind="undo", of=asked_session.to_undo.id)
    assert asked.ask("/questions/following?row=100000").status == 400
    for wrong in ("row=-1", "row=x", "row=99999999999", ""):
        assert asked.ask(f"/questions/following?{wrong}").status == 422


def test_an_answer_that_comes_meanwhile_ends_the_preparation(asked_session, monkeypatch):
    first, second = (one.row for one in asked_session.questions(2))
    answered = asked_session.decisions.answered

    def interrupted(answers):
        monkeypatch.undo()
        answer(asked_session, second, "unknown")
        return answered(answers)

    monkeypatch.setattr(asked_session.decisions, "answered", interrupted)
    model = asked_session.target.model
    monkeypatch.setattr(type(asked_session), "model", lambda _: model)
    assert asked_session.following_rows(first) == []
    assert len(asked_session.following_rows(asked_session.questions()[0].row)) > 0


def test_an_answer_changes_the_model_in_the_same_way_whichever_came_last(asked_session):
    first, second = (one.row for one in asked_session.questions(2))
    answers = asked_session.target.given
    one = asked_session.decisions.answered(answers.told([first, second], [-1, 0]))
    assert asked_session.decisions.answered(answers.told([second, first], [0, -1])) is one
    assert asked_session.decisions.answered(answers.told([first, second], [-1, 1])) is not one


def test_of_a_run_with_a_preference_the_share_has_no_interval(first_asked_run, open_session, tmp_path):
    model = uniot.load(first_asked_run.open(tmp_path / "first").folder)
    toy = make_toy_domains(3, 2, 2, seed=1)
    model.set_params(private_prior=0.4)
    model.fit(toy.x_source, toy.y_source, toy.x_target).save(tmp_path / "run")
    view = open_session(TargetSamples.of_run(Run.open(tmp_path / "run"))).question_view()
    assert view["interval"] is None
    assert view["share"] == f"Unknown: {100 * view['unknown']:.0f} %, by the preference of the run."
    assert view["question"]["nearest"]


def test_a_second_tab_that_answers_the_same_question_is_told(asked, asked_session):
    row = asked.ask("/questions").json["question"]["row"]
    seen = asked_session.revision
    assert asked.act(seen=seen, kind="answer", row=row, answer="unknown").status == 200
    late = asked.act(seen=seen, kind="answer", row=row, answer="common-0")
    assert late.status == 409
    assert "has been changed in another tab" in late.json["message"]
    assert asked_session.model().answers.by_row == {row: -1}


def test_tabs_that_answer_at_once_lose_no_answer(asked, asked_session):
    rows = [one.row for one in asked_session.questions(8)]

    def work(mine):
        for row in mine:
            seen = asked.ask("/state").json["revision"]
            while (said := asked.act(seen=seen, kind="answer", row=row, answer="common-1")).status == 409:
                seen = said.json["state"]["revision"]
            assert said.status == 200
            asked.ask(f"/questions/following?row={row}")

    threads = [threading.Thread(target=work, args=(rows[part::2],)) for part in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked_session.model().answers.by_row == dict.fromkeys(sorted(rows), 1)


@pytest.mark.parametrize(
    "said",
    [{"answer": "comon-1"}, {"answer": ""}, {"answer": "x" * 1601}, {"answer": 3}, {"row": 10**6, "answer": "unknown"}],
)
def test_an_answer_that_cannot_be_used_changes_nothing(asked, asked_session, said):
    found = asked.act(**({"kind": "answer", "row": 0} | said))
    assert found.status in (400, 422)
    assert found.json["message"]
    assert asked_session.revision == 0


# A list of samples is posted to the first one.
@pytest.mark.parametrize(("path", "of_post"), [("/questions", 422), ("/questions/following?row=0", 405)])
def test_questions_need_the_token_and_the_own_origin(asked, path, of_post):
    assert asked.ask(path).status == 200
    assert asked.ask(path, Cookie=None).status == 403
    assert asked.ask(path, Sec_Fetch_Site="cross-site").status == 403
    assert asked.ask(path, Host="evil.example").status == 403
    assert asked.ask(path, "POST", b"{}").status == of_post
    assert asked.ask(path, "POST", b"{}", Cookie=None).status == 403


def test_the_page_opens_at_the_questions_until_something_is_answered(asked, asked_session, untouched):
    assert '"opens_at": "questions"' in asked.ask("/").text
    (question,) = asked_session.questions()
    answer(asked_session, question.row, None)
    assert '"opens_at": "groups"' in asked.ask("/").text
    assert '"opens_at": "groups"' in untouched.ask("/").text, "a run without a model cannot be asked"
    assert untouched.ask("/questions").json["message"].endswith("has no model that can be asked. Make the run again.")


def test_the_queue_says_what_the_run_believes_now(asked, asked_session):
    first = asked.ask("/queue?count=3").json["samples"][0]
    assert first["now"]["label"] in (*asked_session.target.classes, "unknown")
    assert 0 < first["now"]["confidence"] <= 1
