"""Lists on the labelling page in a browser: the doubtful, more like this, and selections of the report and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from browser import CONTRASTS
from uniot.annotations.selections import selection_text
from uniot.labelling.live_report import LiveReport
from uniot.runs import Run
from uniot.runs.thumbnails import ThumbnailCache

pytestmark = pytest.mark.browser

DREW = "#similarity .main-svg"


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    return expect


@pytest.fixture
def page(asked, browsing, chromium_page, expect):
    chromium_page.goto(asked.address)
    expect(chromium_page.locator("#question-now")).to_contain_text("Now: ")
    yield chromium_page
    assert {re.match(r"https?://[^/]+", url)[0] for url in browsing.requests} == {f"http://127.0.0.1:{asked.port}"}
    chromium_page.goto("about:blank")


def asks_about(page, expect, served, row: int) -> None:
    expect(page.locator("#question-name")).to_have_text(served.session.target.names[row])


def open_list(page, served, listed: str) -> None:
    page.goto(f"http://127.0.0.1:{served.port}/#{listed}")


def test_the_doubtful_are_answered_one_by_one_with_single_keys(page, asked, expect):
    session, ranked = asked.session, asked.session.lists.of("doubtful").rows.tolist()
    page.locator("#show-doubtful").click()
    expect(page.locator("#listed-title")).to_have_text("Probably wrong")
    expect(page.locator("#show-doubtful")).to_have_attribute("aria-current", "page")
    asks_about(page, expect, asked, ranked[0])
    expect(page.locator("#listed-following li")).to_have_count(12)
    page.keyboard.press("n")
    expect(page.locator("#answers-text")).to_have_text("1 answer")
    following = int(session.lists.of("doubtful").rows[0])
    asks_about(page, expect, asked, following)
    nearest = session.question_view("doubtful")["question"]["nearest"][1]["name"]
    page.keyboard.press("2")
    expect(page.locator("#answers-text")).to_have_text("2 answers")
    model = Run.open(session.store.files.folder).model
    assert not model.target.known[ranked[0]]
    assert model.class_names[model.target.nearest[following]] == nearest
    page.keyboard.press("z")
    expect(page.locator("#answers-text")).to_have_text("1 answer")
    page.reload()
    expect(page.locator("#listed-title")).to_have_text("Probably wrong")
    assert page.url.endswith("/#ask:doubtful")


@pytest.mark.slow
def test_a_list_is_shown_all_together_and_one_by_one(page, asked, expect):
    rows = [3, 30, 12]
    open_list(page, asked, selection_text(rows, asked.session.target.digest))
    expect(page.locator(".tile")).to_have_count(3)
    expect(page.locator("#title")).to_have_text("Selection of 3 images")
    expect(page.locator("#order")).to_be_hidden()
    page.locator("#list-asks").click()
    asks_about(page, expect, asked, 3)
    expect(page.locator("#listed-note")).to_contain_text("3 of 3 images without an answer")
    page.locator("#list-all").click()
    expect(page.locator(".tile")).to_have_count(3)
    page.go_back()
    asks_about(page, expect, asked, 3)
    for _ in rows:
        page.keyboard.press("s")
        expect(page.locator("#answers[aria-busy]")).to_have_count(0)
    expect(page.locator("#settled-text")).to_have_text("Every image of this list has an answer.")
    page.locator("#list-end").click()
    expect(page.locator("#listed")).to_be_hidden()
    assert page.url.endswith("/#questions")
    expect(page.locator("#question-now")).to_contain_text("Now: ")


@pytest.mark.slow
def test_a_sample_is_left_for_later_or_chosen(page, asked, expect):
    open_list(page, asked, "ask:" + selection_text([3, 12, 30], asked.session.target.digest))
    asks_about(page, expect, asked, 3)
    page.keyboard.press("ArrowRight")
    asks_about(page, expect, asked, 12)
    page.locator("#pass").click()
    asks_about(page, expect, asked, 30)
    page.keyboard.press("n")
    # What is left was left for later: it comes again.
    asks_about(page, expect, asked, 3)
    page.locator("#listed-following button").nth(1).click()
    asks_about(page, expect, asked, 12)
    page.keyboard.press("n")
    asks_about(page, expect, asked, 3)
    assert set(asked.session.model().answers.rows.tolist()) == {30, 12}


@pytest.mark.slow
def test_more_like_this_from_a_question_a_tile_and_the_viewer(page, asked, expect):
    names, row = asked.session.target.names, asked.session.questions()[0].row
    page.locator("#question-like").click()
    expect(page.locator("#title")).to_have_text(f"Like “{names[row]}”")
    expect(page.locator(".tile").first).to_have_attribute("id", f"sample-{row}")
    second = asked.session.lists.of(f"like-{row}").rows[1]
    tile = page.locator(f"#sample-{second}")
    tile.click()
    page.locator("#more-like").click()
    expect(page.locator("#title")).to_have_text(f"Like “{names[second]}”")
    third = asked.session.lists.of(f"like-{second}").rows[2]
    page.locator(f"#sample-{third}").dblclick()
    page.locator("#viewer-like").click()
    expect(page.locator("#title")).to_have_text(f"Like “{names[third]}”")
    page.go_back()
    expect(page.locator("#title")).to_have_text(f"Like “{names[second]}”")
    # What is alike is moved together.
    for one in page.locator(".tile").all()[:2]:
        one.click()
    page.keyboard.press("g")
    expect(page.locator("#message")).to_contain_text("2 images moved to new group")
    expect(page.locator("#title")).to_have_text(f"Like “{names[second]}”")


@pytest.mark.slow
def test_an_address_that_is_no_list_of_this_run_is_reported(page, asked, browsing, expect):
    browsing.allow("response 400: POST")
    open_list(page, asked, "rows-00000000:1")
    page.reload()
    expect(page.locator("#problem")).to_contain_text("This selection belongs to another run")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lists_can_be_read_and_nothing_sticks_out(asked, browsing, expect, width, scheme):
    page = browsing.page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(asked.address)
    expect(page.locator("#question-now")).to_contain_text("Now: ")
    for listed in ("doubtful", "all:like-3"):
        open_list(page, asked, listed)
        page.reload()
        expect(page.locator("#listed-title" if listed == "doubtful" else ".tile").first).to_be_visible()
        if listed == "doubtful":
            for answer in page.locator("#answers button").all():
                expect(answer).to_be_in_viewport(ratio=0.99)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [text for text, contrast in page.evaluate(CONTRASTS) if contrast < 4.5] == []


@pytest.fixture
def followed(asked_run, asked_session, serve_session: Callable[..., object]) -> Iterator[object]:
    """The page of a run with its report, and with pictures."""
    run = Run.open(asked_run.folder)
    thumbnails = ThumbnailCache(
        asked_run.pictures(), asked_run.folder / "thumbnails.sqlite", asked_session.target.digest
    )
    report = LiveReport(run, asked_session)
    with closing(thumbnails), serve_session(asked_session, thumbnails, report=report) as page:
        yield page


@pytest.mark.slow
def test_the_report_follows_what_is_said_on_the_page(followed, browsing, expect):
    label = browsing.page()
    label.goto(followed.address)
    expect(label.locator("#question-now")).to_contain_text("Now: ")
    with label.expect_popup() as waiting:
        label.locator("#show-report").click()
    report = waiting.value
    report.locator(DREW).first.wait_for(timeout=60_000)
    expect(report.locator("#following span")).to_have_text("Follows the labelling page.")
    report.locator("#filter-category").select_option("unknown")
    before = report.evaluate("page.data.acting.live")
    group = followed.session.state.members(0)
    followed.session.act(_named("kettle"), followed.session.revision)
    report.wait_for_function("(before) => page.data.acting.live > before", arg=before, timeout=60_000)
    report.locator(DREW).first.wait_for()
    expect(report.locator("#groups h3").get_by_text("kettle", exact=True)).to_have_count(1)
    # The page looks as it did.
    assert report.locator("#filter-category").input_value() == "unknown"
    assert len(group) > 0
    # Somebody who reads is not interrupted.
    report.locator("#groups .act").first.click()
    followed.session.act(_named("pot"), followed.session.revision)
    report.locator("#acting-close").wait_for()
    expect(report.locator("#following-update")).to_be_visible(timeout=60_000)
    report.locator("#acting-close").click()
    report.wait_for_function("() => document.querySelector('#groups').textContent.includes('pot')", timeout=60_000)


@pytest.mark.slow
def test_a_selection_goes_from_the_page_to_the_report_and_back(followed, browsing, expect):
    label = browsing.page()
    label.goto(followed.address)
    expect(label.locator("#question-now")).to_contain_text("Now: ")
    open_list(label, followed, "all:like-3")
    expect(label.locator(".tile").first).to_be_visible()
    for tile in label.locator(".tile").all()[:3]:
        tile.click()
    rows = followed.session.lists.of("like-3").rows[:3].tolist()
    with label.expect_popup() as waiting:
        label.locator("#on-map").click()
    report = waiting.value
    report.locator("#map-selected").get_by_text("3 selected").wait_for(timeout=60_000)
    assert sorted(report.evaluate("page.selectedRows()")) == sorted(rows)
    report.locator("#map-label").click()
    expect(report.locator("#acting-command")).to_be_hidden()
    with report.expect_popup() as waiting:
        report.locator("#acting-open").click()
    back = waiting.value
    expect(back.locator("#title")).to_have_text("Selection of 3 images")
    expect(back.locator(".tile")).to_have_count(3)
    label.bring_to_front()


def _named(name: str) -> object:
    from uniot.labelling.actions import NameGroup

    return NameGroup(kind="name", group=0, name=name)
