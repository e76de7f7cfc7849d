"""The report that the labelling page serves: who may read it, what it may do, and that it is the present state."""

from __future__ import annotations

import time

import pytest

from uniot.errors import DataError
from uniot.labelling.actions import NameGroup
from uniot.labelling.live_report import LiveReport
from uniot.runs import Run


@pytest.fixture
def report(asked_run, asked_session) -> LiveReport:
    return LiveReport(Run.open(asked_run.folder), asked_session)


@pytest.fixture
def followed(asked_session, report, serve_session):
    with serve_session(asked_session, None, report=report) as page:
        yield page


def drawn(followed, revision: int) -> None:
    """Wait until the report shows an action."""
    end = time.monotonic() + 120
    while followed.ask("/report/state").json["ready"] != revision:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_page_without_a_report_serves_none(untouched):
    assert untouched.ask("/report").status == 404
    assert untouched.ask("/report/state").status == 404


@pytest.mark.parametrize("path", ["/report", "/report/state"])
@pytest.mark.parametrize(
    "headers", [{"Cookie": None}, {"Host": "evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Cookie": "a=b"}]
)
def test_only_who_has_the_token_reads_the_report(followed, report, path, headers):
    assert followed.ask(path, **headers).status == 403
    # Nothing is drawn for somebody who may not see it.
    assert report._thread is None


@pytest.mark.slow
def test_the_report_is_drawn_with_its_own_policy_and_without_the_token(followed):
    waiting = followed.ask("/report")
    assert "Drawing the report" in waiting.text
    assert "script-src 'self'" in waiting.headers["content-security-policy"]
    drawn(followed, 0)
    answer = followed.ask("/report")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'sha256-" in policy
    assert "script-src 'self'" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert followed.access.token not in answer.text
    assert not (followed.session.store.files.folder / "report.html").exists()
    followed.session.act(NameGroup(kind="name", group=0, name="<b>kettle</b>"), 0)
    assert followed.ask("/report/state").json == {"ready": 0, "latest": 1, "problem": ""}
    drawn(followed, 1)
    later = followed.ask("/report").text
    assert "&lt;b&gt;kettle&lt;/b&gt;" in later
    assert "<b>kettle</b>" not in later


def test_a_report_that_cannot_be_drawn_says_why(followed, report, monkeypatch):
    def fails() -> None:
        raise DataError("plotly is not installed. Install uniot[report].")

    monkeypatch.setattr(report, "_draw", fails)
    followed.ask("/report")
    report._thread.join()
    answer = followed.ask("/report")
    assert (answer.status, answer.text) == (
        503,
        "The report cannot be drawn: plotly is not installed. Install uniot[report].\n",
    )
