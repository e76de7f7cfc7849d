"""Lists of samples across groups and classes, as a session makes them and the server sends them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from uniot.annotations.selections import selection_text
from uniot.errors import DataError
from uniot.labelling.actions import AnswerQuestion, MoveSamples
from uniot.labelling.lists import MOST_ALIKE
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN


def test_the_doubtful_come_in_the_order_of_their_confidence_whatever_their_class(asked_session):
    model = asked_session.model()
    found = asked_session.lists.of("doubtful")
    confidence = model.target.confidence[found.rows]
    assert len(found.rows) == len(model.target)
    assert (np.diff(confidence) >= 0).all()
    first = found.rows[:40]
    assert len(set(model.target.nearest[first].tolist())) > 1
    assert len(set(model.target.known[first].tolist())) == 2
    assert f"About {round(float((1 - model.target.confidence).sum())):,} of {len(model.target)}" in found.note


def test_who_has_an_answer_leaves_the_doubtful_and_the_estimate_of_the_rule_with_it(asked_session):
    first, second, third, fourth = asked_session.lists.of("doubtful").rows[:4].tolist()
    asked_session.tell({first: UNKNOWN, second: CANNOT_TELL})
    asked_session.act(MoveSamples(kind="move", rows=[third], to="discarded"), asked_session.revision)
    found = asked_session.lists.of("doubtful")
    assert not {first, second, third} & set(found.rows.tolist())
    assert fourth in found.rows
    # After answers, another decision than that of the rule is made, which the estimate is not for.
    assert "About" not in found.note


def test_what_is_like_a_sample_begins_with_it_and_goes_on_with_the_nearest(session):
    found = session.lists.of("like-31")
    cosines = session.target.features @ session.target.features[31]
    assert found.rows[0] == 31
    assert (np.diff(cosines[found.rows]) <= 1e-6).all()
    assert len(found.rows) == min(MOST_ALIKE + 1, len(session.target.names))
    # The group of row 31 has ten samples around a direction of their own.
    assert set(found.rows[:10].tolist()) == set(range(30, 40))


def test_a_question_of_a_list_is_its_first_without_an_answer(asked_session):
    rows = [40, 7, 23]
    listed = selection_text(rows, asked_session.target.digest)
    view = asked_session.question_view(listed)
    assert view["question"]["row"] == 7
    assert [one["row"] for one in view["listed"]["following"]] == [7, 23, 40]
    asked_session.act(AnswerQuestion(kind="answer", row=7, answer=asked_session.target.unknown), asked_session.revision)
    view = asked_session.question_view(listed)
    assert view["question"]["row"] == 23
    assert (view["listed"]["total"], view["listed"]["open"]) == (3, 2)
    # One that was passed over comes again after the others.
    view = asked_session.question_view(listed, at=40)
    assert [one["row"] for one in view["listed"]["following"]] == [40, 23]
    asked_session.tell({23: UNKNOWN, 40: CANNOT_TELL})
    assert asked_session.question_view(listed)["question"] is None
    # Somebody may look again at what has an answer, and one that is not in the list is not asked about.
    assert asked_session.question_view(listed, at=7)["question"]["row"] == 7
    assert asked_session.question_view(listed, at=1)["question"] is None


def test_an_answer_of_a_list_holds_whatever_the_model_says_later(asked_session):
    row = int(asked_session.lists.of("doubtful").rows[0])
    other = asked_session.target.classes[-1]
    asked_session.act(AnswerQuestion(kind="answer", row=row, answer=other), asked_session.revision)
    others = asked_session.lists.of("doubtful").rows[:8].tolist()
    asked_session.tell(dict.fromkeys(others, UNKNOWN))
    model = asked_session.model()
    assert model.target.known[row]
    assert model.class_names[model.target.nearest[row]] == other


def test_a_gallery_of_a_list_has_its_order_and_says_where_each_sample_is(session):
    listed = selection_text([35, 2, 58], session.target.digest)
    view = session.gallery("group-0", 0, "typical", listed=listed)
    assert [one["row"] for one in view["samples"]] == [2, 35, 58]
    assert [one["in"] for one in view["samples"]] == ["known class “mug”", "group 0", "group 2"]
    assert view["listed"]["title"] == "Selection of 3 images"
    found = session.gallery("group-0", 0, "typical", "035", listed=listed)
    assert [one["row"] for one in found["samples"]] == [35]


def test_a_list_of_another_run_is_refused(session):
    with pytest.raises(DataError, match="belongs to another run"):
        session.gallery("group-0", 0, "typical", listed="rows-00000000:1")


def ask_list(page, path, **body):
    return page.ask(path, "POST", json.dumps(body).encode())


def test_long_lists_are_asked_for_in_the_body_of_a_request(served):
    listed = selection_text(range(0, 60, 2), served.session.target.digest)
    answer = ask_list(served, "/gallery", category="group-0", listed=listed)
    assert answer.status == 200
    assert [one["row"] for one in answer.json["samples"]] == list(range(0, 60, 2))


def test_an_action_brings_the_next_question_of_its_list(asked):
    listed = selection_text([7, 23], asked.session.target.digest)
    assert ask_list(asked, "/questions", listed=listed).json["question"]["row"] == 7
    body = {
        "seen": asked.session.revision,
        "action": {"kind": "answer", "row": 7, "answer": None},
        "questions": True,
        "listed": {"listed": listed},
    }
    answer = ask_list(asked, "/actions", **body)
    assert answer.json["questions"]["question"]["row"] == 23
    assert asked.session.model().answers.by_row == {7: CANNOT_TELL}


@pytest.mark.parametrize("path", ["/gallery", "/questions"])
@pytest.mark.parametrize(
    ("listed", "status"),
    [
        ("rows-00000000:1", 400),
        ("rows-", 400),
        ("like-60", 400),
        ("x" * 60_001, 422),
        (3, 422),
        ("like-999999999", 400),
    ],
)
def test_what_is_no_list_is_refused(untouched, path, listed, status):
    body = {"listed": listed} | ({"category": "group-0"} if path == "/gallery" else {})
    assert ask_list(untouched, path, **body).status == status


@pytest.mark.parametrize("path", ["/gallery", "/questions"])
@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": None}, {"Cookie": None}])
def test_only_the_page_itself_reads_lists(untouched, path, headers):
    body = json.dumps({"listed": "doubtful", "category": "group-0"}).encode()
    assert untouched.ask(path, "POST", body, **headers).status == 403
