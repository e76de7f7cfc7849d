"""The questions of the labelling page in a browser: every answer by click and by key."""

from __future__ import annotations

import re
from itertools import product

import pytest

from browser import CONTRASTS
from tiers import slow_unless
from uniot.labelling.actions import AnswerQuestion
from uniot.runs import Run

pytestmark = pytest.mark.browser


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


def answers(served) -> dict[int, int]:
    """As a new process would read them."""
    return Run.open(served.session.store.files.folder).model.answers.by_row


def question(served):
    return served.session.questions()[0]


def after(page, expect, n_answers):
    expect(page.locator("#answers-text")).to_have_text(
        "No answers yet" if n_answers == 0 else f"{n_answers} answer{'s' if n_answers > 1 else ''}"
    )


def test_a_run_without_answers_opens_at_the_questions(page, asked, expect):
    assert page.url.endswith("/#questions")  # the token is gone from the address
    here = question(asked)
    expect(page.locator("#question-name")).to_have_text(here.name)
    expect(page.locator("#question-now")).to_have_text(
        re.compile(rf"Now: {here.believed}( \(group \d\))?, confidence {here.belief.confidence:.2f}\.")
    )
    image = page.locator("#question-picture img")
    expect(image).to_have_attribute("src", re.compile(f"/pictures/target/{here.row}/large"))
    expect(page.locator("#nearest .name")).to_have_text([name for name, _ in here.nearest])
    expect(page.locator("#nearest li").first.locator("img")).to_have_count(3)
    expect(page.locator("#nearest img").first).to_have_attribute("src", re.compile("/pictures/source/"))
    expect(page.locator("#answer-yes")).to_have_text(re.compile(f"Yes, {here.nearest[0][0]}"))
    expect(page.locator("#share-text")).to_have_text(asked.session.estimate().sentence)
    expect(page.locator("#gallery")).to_be_hidden()
    after(page, expect, 0)


def test_every_answer_can_be_clicked(page, asked, expect):
    classes, expected = asked.session.target.classes, {}
    here = question(asked)
    page.locator("#answer-yes").click()
    after(page, expect, 1)
    expected[here.row] = classes.index(here.nearest[0][0])
    expect(page.locator("#message")).to_contain_text(f"1 image answered “{here.nearest[0][0]}”")
    assert answers(asked) == expected

    here = question(asked)
    expect(page.locator("#question-name")).to_have_text(here.name)
    page.locator("#answer-class").click()
    expect(page.locator("#picker-title")).to_have_text(f"Which class is “{here.name}”?")
    expect(page.locator("#picker-list li")).to_have_count(5)
    expect(page.locator("#picker-list .name").first).to_have_text(here.nearest[0][0])
    page.locator("#picker").get_by_role("button", name="Cancel").click()
    after(page, expect, 1)
    page.locator("#answer-class").click()
    page.get_by_role("option", name="common-2").click()
    after(page, expect, 2)
    expected[here.row] = classes.index("common-2")

    here = question(asked)
    page.locator("#answer-none").click()
    after(page, expect, 3)
    expected[here.row] = -1
    here = question(asked)
    page.locator("#answer-unsure").click()
    after(page, expect, 4)
    expected[here.row] = -2
    assert answers(asked) == expected
    expect(page.locator("#share-text")).to_have_text(asked.session.estimate().sentence)

    page.get_by_role("button", name="Undo").click()
    after(page, expect, 3)
    expect(page.locator("#question-name")).to_have_text(here.name)  # the same question again
    page.get_by_role("button", name="Redo").click()
    after(page, expect, 4)


def test_every_answer_has_a_key(page, asked, expect):
    classes, expected = asked.session.target.classes, {}
    for number, (key, said) in enumerate((("y", None), ("n", -1), ("s", -2)), start=1):
        here = question(asked)
        page.keyboard.press(key)
        after(page, expect, number)
        expected[here.row] = classes.index(here.nearest[0][0]) if said is None else said
    here = question(asked)
    page.keyboard.press("c")
    page.keyboard.type("source-1")
    page.keyboard.press("Enter")
    after(page, expect, 4)
    assert answers(asked) == expected | {here.row: classes.index("source-1")}
    page.keyboard.press("z")
    after(page, expect, 3)
    expect(page.locator("#message")).to_contain_text("Undone: 1 image answered “source-1”")
    assert answers(asked) == expected
    page.keyboard.press("u")
    after(page, expect, 2)
    page.keyboard.press("Control+y")
    after(page, expect, 3)
    assert answers(asked) == expected


@pytest.mark.slow
def test_one_of_the_nearest_classes_is_chosen_by_click_and_by_number(page, asked, expect):
    classes, expected = asked.session.target.classes, {}
    for index in (0, 1, 2):
        here = question(asked)
        page.keyboard.press(str(index + 1))
        after(page, expect, index + 1)
        expected[here.row] = classes.index(here.nearest[index][0])
    here = question(asked)
    page.get_by_role("button", name=f"It is {here.nearest[1][0]}").click()
    after(page, expect, 4)
    assert answers(asked) == expected | {here.row: classes.index(here.nearest[1][0])}


@pytest.mark.slow
def test_everything_can_be_reached_with_the_tab_key(page, asked, expect):
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        found = page.evaluate("[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]")
        assert found[1] != "none" or not found[0]
        reached.append(found[0])
    wanted = ["show-questions", "show-groups", "answer-yes", "answer-class", "answer-none", "answer-unsure"]
    assert [one for one in reached if one in wanted][: len(wanted)] == wanted
    here = question(asked)
    page.locator("#answer-none").focus()
    page.keyboard.press("Enter")
    after(page, expect, 1)
    expect(page.locator("#answer-none")).to_be_focused()  # ready for the next
    page.keyboard.press("Space")
    after(page, expect, 2)
    assert answers(asked)[here.row] == -1


@pytest.mark.slow
def test_the_bar_shows_the_share_and_its_interval(page, asked, expect):
    def placed():
        return page.evaluate(
            """() => {
              const [bar, band, now] = [".share-bar", "#share-interval", "#share-now"].map(
                (selector) => document.querySelector(selector).getBoundingClientRect());
              const part = (x) => (x - bar.left) / bar.width;
              return [part((now.left + now.right) / 2), part(band.left), part(band.right)];
            }"""
        )

    for number, key in enumerate("nyyn", start=1):
        page.keyboard.press(key)
        after(page, expect, number)
    page.wait_for_timeout(600)  # it moves there
    found = asked.session.estimate()
    assert placed() == pytest.approx([found.unknown, *found.interval], abs=0.02)
    assert found.interval[1] - found.interval[0] < 0.9


@pytest.mark.slow
def test_the_view_is_chosen_by_click_and_key_and_a_reload_keeps_it(page, asked, expect):
    page.locator("#show-groups").click()
    expect(page.locator("#title")).to_have_text("Group 0")
    expect(page.locator("#question")).to_be_hidden()
    assert page.url.endswith("#group-0")
    page.reload()
    expect(page.locator("#title")).to_have_text("Group 0")
    expect(page.locator("#questions")).to_be_hidden()
    page.locator("#show-questions").click()
    expect(page.locator("#question-name")).to_have_text(question(asked).name)
    expect(page.locator("#show-questions")).to_have_attribute("aria-current", "page")
    page.keyboard.press("n")
    after(page, expect, 1)
    page.reload()
    after(page, expect, 1)
    expect(page.locator("#question-name")).to_have_text(question(asked).name)
    page.keyboard.press("g")
    expect(page.locator("#gallery")).to_be_visible()
    page.keyboard.press("n")  # names the group here, and answers nothing
    expect(page.locator("#name")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("q")
    expect(page.locator("#question")).to_be_visible()
    page.go_back()
    expect(page.locator("#gallery")).to_be_visible()
    assert len(answers(asked)) == 1


@pytest.mark.slow
def test_with_answers_the_page_opens_at_the_groups_unless_the_address_says_otherwise(asked, chromium_page, expect):
    asked.act(kind="answer", row=question(asked).row, answer="unknown")
    chromium_page.goto(asked.address)
    expect(chromium_page.locator("#title")).to_have_text("Group 0")
    chromium_page.goto("about:blank")
    chromium_page.goto(f"{asked.address}#questions")
    after(chromium_page, expect, 1)
    chromium_page.goto("about:blank")
    chromium_page.goto(f"{asked.address}#groups")
    expect(chromium_page.locator("#title")).to_have_text("Group 0")
    chromium_page.goto("about:blank")


@pytest.mark.slow
def test_the_page_says_when_more_answers_will_hardly_change_anything(page, asked, asked_run, expect):
    session, truth = asked.session, asked_run.truth
    expect(page.locator("#settled")).to_be_hidden()
    n_answers = 0
    while not session.question_view()["settled"]:
        here = question(asked)
        # The last answers are given on the page.
        session.act(AnswerQuestion(kind="answer", row=here.row, answer=str(truth[here.row])), session.revision)
        n_answers += 1
    asked.act(kind="undo", of=session.to_undo.id)
    page.reload()
    after(page, expect, n_answers - 1)
    expect(page.locator("#settled")).to_be_hidden()
    here = question(asked)
    page.locator("#answer-class").click()
    if truth[here.row] == "unknown":
        page.keyboard.press("Escape")
        page.keyboard.press("n")
    else:
        page.get_by_role("option", name=str(truth[here.row])).click()
    expect(page.locator("#settled-text")).to_have_text("More answers will hardly change this.")
    page.locator("#settled-finish").click()
    expect(page.locator("#finish")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#settled-groups").click()
    expect(page.locator("#gallery")).to_be_visible()


@pytest.mark.slow
def test_when_every_image_has_an_answer_the_page_says_so(asked, chromium_page, expect):
    asked.session.tell(dict.fromkeys(range(len(asked.session.target.names)), -1))
    chromium_page.goto(f"{asked.address}#questions")
    expect(chromium_page.locator("#settled-text")).to_have_text("Every image has an answer.")
    expect(chromium_page.locator("#question")).to_be_hidden()
    for key in "yncs1":
        chromium_page.keyboard.press(key)
    expect(chromium_page.locator("#picker")).to_be_hidden()
    chromium_page.goto("about:blank")


def test_a_second_tab_that_answers_the_same_question_is_told_and_catches_up(page, asked, browsing, expect):
    browsing.allow("response 409: ")
    late = browsing.page()
    late.goto(asked.address)
    here = question(asked)
    expect(late.locator("#question-name")).to_have_text(here.name)
    page.keyboard.press("n")
    after(page, expect, 1)
    late.keyboard.press("y")
    expect(late.locator("#problem")).to_contain_text("has been changed in another tab")
    after(late, expect, 1)
    assert answers(asked) == {here.row: -1}
    expect(late.locator("#question-name")).to_have_text(question(asked).name)
    late.keyboard.press("n")
    after(late, expect, 2)
    late.goto("about:blank")


@pytest.mark.slow
def test_a_quick_second_press_answers_nothing_that_was_not_seen(page, asked, expect):
    here = question(asked)
    page.evaluate(
        """() => {
          for (const key of "nny1") document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
          document.querySelector("#answer-none").click();
        }"""
    )
    after(page, expect, 1)
    page.wait_for_timeout(300)
    assert answers(asked) == {here.row: -1}


@pytest.mark.slow
def test_the_next_image_is_there_before_it_is_asked_for(page, asked, browsing, expect):
    with page.expect_response(lambda response: "/questions/following" in response.url) as found:
        page.keyboard.press("n")
    rows = found.value.json()["rows"]
    assert rows
    page.wait_for_load_state("networkidle")
    for row in rows:
        assert any(f"/pictures/target/{row}/large" in url for url in browsing.requests)
    after(page, expect, 1)
    n_loaded = len([url for url in browsing.requests if "/large" in url])
    page.keyboard.press("n")
    after(page, expect, 2)
    assert page.locator("#question-picture img").evaluate("(image) => image.decode().then(() => true)")
    assert n_loaded >= 3


@pytest.mark.slow
def test_a_run_without_pictures_asks_with_names(asked_session, serve_session, chromium_page, expect):
    with serve_session(asked_session, None) as served:
        chromium_page.goto(served.address)
        here = question(served)
        expect(chromium_page.locator("#question-picture")).to_have_text(here.name)
        assert chromium_page.locator("img:visible").count() == 0
        for number, key in enumerate("yns2", start=1):
            chromium_page.keyboard.press(key)
            after(chromium_page, expect, number)
        assert len(answers(served)) == 4
        chromium_page.keyboard.press("z")
        after(chromium_page, expect, 3)
        chromium_page.goto("about:blank")


@pytest.mark.slow
def test_one_by_one_opens_beside_the_questions_and_says_the_guess(page, asked, expect):
    page.keyboard.press("l")
    expect(page.locator("#queue-guess")).to_have_text(re.compile(r"Guess: .+, confidence \d\.\d\d(; .+)?\."))
    page.locator("#queue-label").fill("kettle")
    page.keyboard.press("Enter")
    expect(page.locator("#queue-text")).to_contain_text("1 image labelled “kettle”")
    page.locator("#queue-close").click()
    after(page, expect, 1)  # a label is an answer too
    expect(page.locator("#question-name")).to_have_text(question(asked).name)


@pytest.mark.slow
def test_the_skip_link_leads_to_the_question(page, expect):
    page.locator("a.skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#question-title")).to_be_focused()


@pytest.mark.slow
def test_single_keys_answer_nothing_if_they_are_switched_off(page, asked, expect):
    page.keyboard.press("?")
    expect(page.locator("#keys h4")).to_have_text(["Questions", "Groups", "Everywhere"])
    page.get_by_label("Use single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    for key in "yns1":
        page.keyboard.press(key)
    page.locator("#answer-none").click()
    after(page, expect, 1)


@pytest.mark.parametrize(("width", "scheme"), slow_unless([*product([390, 1280], ["light", "dark"])], [(390, "dark")]))
def test_the_questions_fit_and_can_be_read(asked, browsing, expect, width, scheme):
    page = browsing.page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(asked.address)
    after(page, expect, 0)
    page.keyboard.press("n")
    after(page, expect, 1)
    page.mouse.move(0, 0)
    page.wait_for_timeout(600)  # colours fade in
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = page.evaluate(CONTRASTS)
    assert len(found) > 20
    assert [text for text, ratio in found if ratio < 4.5] == []
    bottom = page.locator(".messages").bounding_box()["y"]
    for id in ("answer-yes", "answer-class", "answer-none", "answer-unsure"):
        box = page.locator(f"#{id}").bounding_box()
        assert box["height"] >= 40
        assert box["y"] + box["height"] <= bottom, "every answer is in sight"
    snapshot = page.locator("body").aria_snapshot()
    assert not re.search(r"- (button|link|textbox|combobox|option)(:|$| \[)", snapshot, re.MULTILINE), snapshot
    page.goto("about:blank")


def test_names_are_shown_as_they_are_written(asked_session, serve_session, chromium_page, expect):
    wicked = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    row = question_row = asked_session.questions()[0].row
    asked_session.target.names[question_row] = wicked
    asked_session.target.classes[int(asked_session.model().target.nearest[row])] = wicked
    heard = []
    chromium_page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
    with serve_session(asked_session, None) as served:
        chromium_page.goto(served.address)
        expect(chromium_page.locator("#question-picture")).to_have_text(wicked)
        expect(chromium_page.locator("#answer-nearest")).to_have_text(f"Yes, {wicked}")
        chromium_page.goto("about:blank")
    assert heard == []
