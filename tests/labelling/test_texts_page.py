"""Texts and links on the labelling page, in a browser."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from browser import CONTRASTS

pytestmark = pytest.mark.browser

WICKED = "<script>alert(1)</script><img src=x onerror=alert(2)>\n\u202edesrever"


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    return expect


@pytest.fixture
def served_texts(target, open_session, serve_session, with_texts):
    session = open_session(with_texts(target, row_30=WICKED, row_31="long " * 400 + "end", row_2="Refund, please"))
    with serve_session(session, None) as served:
        yield served


@pytest.fixture
def page(served_texts, browsing, chromium_page, expect):
    heard: list[str] = []
    chromium_page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
    chromium_page.goto(served_texts.address)
    expect(chromium_page.locator(".tile")).to_have_count(10)
    yield chromium_page
    assert {re.match(r"https?://[^/]+", url)[0] for url in browsing.requests} == {
        f"http://127.0.0.1:{served_texts.port}"
    }
    assert heard == []
    chromium_page.goto("about:blank")


def test_a_suggested_name_is_taken_with_one_click_and_undone(page, served_texts, expect):
    expect(page.locator("#terms")).to_have_text("Typical words: word0, card")
    expect(page.locator("#groups .hint").first).to_have_text("word0, card")
    page.get_by_label("Go to the next unnamed group after saving").uncheck()
    page.get_by_role("button", name="Name this group “name 0”").click()
    expect(page.locator("#title")).to_have_text("Group 0: name 0")
    assert served_texts.session.state.names == {0: "name 0"}
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#title")).to_have_text("Group 0")
    page.locator("#name").focus()
    for _ in range(3):  # past Save and Next
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_text("Group 0 named “name 0”.")


def test_a_search_finds_texts_here_and_everywhere(page, served_texts, expect):
    page.keyboard.press("/")
    page.keyboard.type("card 33")
    expect(page.locator("#subtitle")).to_have_text("1 text found here")
    expect(page.locator(".tile .text")).to_have_text("Where is my card 33?")
    page.locator("#search").fill("refund")
    expect(page.locator("#empty")).to_have_text("No text here contains these words.")
    page.get_by_label("everywhere").check()
    expect(page.locator("#title")).to_have_text("Search everywhere")
    expect(page.locator(".tile .place")).to_have_text("in known class “mug”")
    page.locator("#search").press("Enter")
    expect(page.locator(".tile")).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("x")
    expect(page.locator("#message")).to_have_text("1 text discarded.")
    expect(page.locator(".tile .place")).to_have_text("in discarded")
    assert served_texts.session.state.members(-1).tolist() == [2]
    page.locator("#search").press("Escape")
    expect(page.locator("#subtitle")).to_have_text("10 texts")


@pytest.mark.slow
def test_a_text_is_shown_as_it_is_and_whole_if_it_is_opened(page, expect):
    expect(page.locator("#sample-30 .text")).to_have_text(WICKED, use_inner_text=False)
    assert page.locator("#sample-30 script, #sample-30 img").count() == 0
    page.locator("#sample-31").dblclick()
    expect(page.locator("#viewer-text")).to_contain_text("long end")
    assert len(page.locator("#viewer-text").inner_text()) == 2003
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page.locator("#queue-shown .text")).not_to_be_empty()
    expect(page.get_by_text("What is it about?")).to_be_visible()
    page.keyboard.press("Escape")
    assert "image" not in page.locator("body").inner_text()


@pytest.mark.slow
def test_a_link_opens_in_a_tab_of_its_own_and_selects_nothing(
    target, open_session, serve_session, with_texts, chromium_page, expect
):
    session = open_session(with_texts(target, links=True, row_31="javascript:alert(1)"))
    page = chromium_page
    with serve_session(session, None) as served:
        page.goto(served.address)
        link = page.locator("#sample-30 a")
        expect(link).to_have_attribute("href", "https://example.org/30")
        expect(link).to_have_attribute("target", "_blank")
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        expect(page.locator("#sample-31 .text")).to_have_text("javascript:alert(1)")
        assert page.locator("#sample-31 a").count() == 0
        page.evaluate("addEventListener('click', (event) => event.preventDefault(), true)")
        link.click()
        expect(page.locator("#selected-text")).to_be_empty()
        page.goto("about:blank")


@pytest.mark.slow
def test_a_question_shows_the_text_large_and_labelled_examples_beside_it(
    asked_session, with_texts, serve_session, chromium_page, expect
):
    session, page = asked_session, chromium_page
    target = session.target
    n_source = 1 + max(row for index in range(len(target.classes)) for row in target.class_exemplars(index, 3))
    texts = with_texts(target).texts
    sources = [f"Labelled text {row}" for row in range(n_source)]
    shown = replace(
        with_texts(target), texts=type(texts)({"source": sources, "target": texts.all("target")}, are_links=False)
    )
    session = type(session)(shown, session.store)
    with serve_session(session, None) as served:
        page.goto(served.address)
        row = session.questions()[0].row
        expect(page.locator("#question-picture .text")).to_have_text(f"Where is my card {row}?")
        expect(page.locator("#question-name")).to_have_text(target.names[row])
        expect(page.locator("#nearest li").first.locator(".text")).to_have_count(3)
        expect(page.locator("#nearest .text").first).to_contain_text("Labelled text")
        page.keyboard.press("n")
        expect(page.locator("#message")).to_contain_text("1 text answered")
        page.goto("about:blank")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_and_nothing_sticks_out_on_a_phone(served_texts, browsing, expect, scheme):
    page = browsing.page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page.goto(served_texts.address)
    expect(page.locator(".tile")).to_have_count(10)
    page.locator("#search").fill("e")
    page.get_by_label("everywhere").check()
    expect(page.locator("#title")).to_have_text("Search everywhere")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [text for text, ratio in page.evaluate(CONTRASTS) if ratio < 4.5] == []
    page.goto("about:blank")
