"""The labelling page in a browser: what was clicked is what labels.csv holds."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from browser import CONTRASTS

pytestmark = pytest.mark.browser


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    return expect


@pytest.fixture
def opened(served, browsing, chromium_page, expect):
    """The page, which may talk to nobody else."""
    page = chromium_page
    page.goto(served.address)
    expect(page.locator(".tile")).to_have_count(10)
    page.get_by_label("Go to the next unnamed group after saving").uncheck()
    yield page
    assert {re.match(r"https?://[^/]+", url)[0] for url in browsing.requests} == {f"http://127.0.0.1:{served.port}"}


def exported(run: Path) -> dict[str, tuple[str, str, str]]:
    with (run / "labels.csv").open(encoding="utf-8", newline="") as file:
        return {row["path"]: (row["label"], row["decision"], row["group"]) for row in csv.DictReader(file)}


def select(page, *rows):
    for row in rows:
        page.locator(f"#sample-{row}").click()


def place(page, name):
    page.locator("nav").get_by_role("link", name=name).click()


def test_what_was_clicked_is_what_is_exported(opened, served, expect):
    page, message = opened, opened.locator("#message")
    assert page.url.endswith("/#group-0")  # the token is gone from the address

    page.get_by_label("Name of this group").fill("  kettle ")
    page.get_by_role("button", name="Save name").click()
    expect(message).to_have_text("Group 0 named “kettle”.")
    expect(page.locator("#progress-text")).to_have_text("1 of 3 groups named, 10 of 30 images labelled")

    select(page, 31, 32)
    page.get_by_role("button", name="Discard", exact=True).click()
    expect(message).to_have_text("2 images discarded.")
    select(page, 33)
    page.locator("#selection").get_by_role("button", name="Assign to known class…").click()
    page.get_by_role("option", name=re.compile("pen")).click()
    expect(message).to_have_text("1 image marked as class “pen”.")
    select(page, 34)
    page.get_by_role("button", name="Move to…").click()
    page.get_by_label("Type to search").fill("group 2")
    page.keyboard.press("Enter")
    expect(message).to_have_text("1 image moved to group 2.")

    place(page, "Group 2")
    page.get_by_role("button", name="Merge into…").click()
    page.get_by_role("option", name=re.compile("Group 1")).click()
    expect(message).to_have_text("Group 2 with its 11 images merged into group 1.")
    expect(page.locator("#title")).to_have_text("Group 1")
    page.get_by_role("button", name="Undo").click()
    expect(message).to_have_text("Undone: group 2 with its 11 images merged into group 1.")
    page.get_by_role("button", name="Redo").click()
    expect(message).to_have_text("Redone: group 2 with its 11 images merged into group 1.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#groups li")).to_have_count(3)

    page.reload()
    expect(page.locator("#groups li")).to_have_count(3)
    place(page, "mug")
    select(page, 5)
    page.get_by_role("button", name="Move to…").click()
    page.get_by_role("option", name=re.compile("kettle")).click()
    expect(message).to_have_text("1 image moved to group 0 “kettle”.")

    page.get_by_role("button", name="Finish").click()
    counts = "7 in new classes, 1 in known classes, 2 discarded, 1 unknown."
    expect(message).to_contain_text(f"labels.csv is written: {counts}")
    names = served.session.target.names
    expected = {names[row]: ("kettle", "named", "0") for row in (5, 30, *range(35, 40))}
    expected |= {names[33]: ("pen", "class", "")} | {names[row]: ("", "discarded", "") for row in (31, 32)}
    expected |= {names[34]: ("", "unknown", "2")}
    assert exported(served.session.store.files.folder) == expected


def test_everything_can_be_done_with_the_keyboard(opened, served, expect):
    page, message = opened, opened.locator("#message")
    page.keyboard.press("n")
    page.keyboard.type("kettle")
    page.keyboard.press("Enter")
    expect(message).to_have_text("Group 0 named “kettle”.")
    page.keyboard.press("u")
    expect(page.locator("#title")).to_have_text("Group 1")
    page.keyboard.type("mug")
    expect(page.locator("#name-note")).to_have_text("“mug” is a known class: these images count as that class.")
    page.keyboard.press("Enter")
    expect(message).to_contain_text("which is a known class")

    page.keyboard.press("j")
    expect(page.locator("#title")).to_have_text("Group 2")
    page.keyboard.press("i")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#selected-text")).to_have_text("3 selected")
    page.keyboard.press("x")
    expect(message).to_have_text("3 images discarded.")
    expect(page.locator(".tile")).to_have_count(7)
    expect(page.locator(".tile:focus")).to_have_count(1)  # the keyboard is still among the images
    page.keyboard.press("Enter")
    expect(page.locator("#viewer-title")).to_contain_text("photos/")
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    page.keyboard.press("s")
    expect(message).to_contain_text("Group 2 split: ")
    page.keyboard.press("z")
    page.keyboard.press("z")
    expect(message).to_have_text("Undone: 3 images discarded.")
    expect(page.locator(".tile")).to_have_count(10)
    page.keyboard.press("a")
    page.keyboard.press("m")
    page.keyboard.type("new")
    page.keyboard.press("Enter")
    expect(message).to_have_text("10 images moved to new group 4.")
    page.keyboard.press("c")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(message).to_contain_text("Group 4 with its 10 images marked as class")
    page.keyboard.press("e")
    expect(message).to_contain_text("labels.csv is written: 10 in new classes, 20 in known classes, 0 discarded.")
    assert len(exported(served.session.store.files.folder)) == 30


@pytest.mark.slow
def test_single_keys_can_be_switched_off(opened, expect):
    page = opened
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.get_by_label("Use single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    expect(page.locator("#title")).to_have_text("Group 0")
    page.reload()
    page.keyboard.press("?")
    expect(page.get_by_label("Use single-key shortcuts")).not_to_be_checked()


def test_a_tab_that_is_behind_says_so_and_catches_up(opened, served, browsing, expect):
    browsing.allow("response 409: ")
    late = browsing.page()
    late.goto(served.address)
    late.get_by_label("Go to the next unnamed group after saving").uncheck()
    expect(late.locator(".tile")).to_have_count(10)
    opened.get_by_label("Name of this group").fill("kettle")
    opened.keyboard.press("Enter")
    expect(opened.locator("#title")).to_have_text("Group 0: kettle")

    late.get_by_label("Name of this group").fill("lamp")
    late.keyboard.press("Enter")
    expect(late.locator("#problem")).to_contain_text("Group 0 “kettle” has been changed in another tab")
    expect(late.locator("#title")).to_have_text("Group 0: kettle")
    assert served.session.state.names == {0: "kettle"}
    late.get_by_label("Name of this group").fill("lamp")
    late.keyboard.press("Enter")
    expect(late.locator("#title")).to_have_text("Group 0: lamp")


@pytest.mark.slow
def test_a_suggestion_merges_and_a_link_only_looks(opened, served, expect):
    features = served.session.target.features
    features[40:50] = features[30:40]  # group 1 looks like group 0
    served.session.order.forget([0, 1])
    opened.reload()
    suggestion = opened.locator("#similar-list li").first
    expect(suggestion).to_contain_text("Group 1")
    suggestion.get_by_role("link").click()
    expect(opened.locator("#title")).to_have_text("Group 1")
    opened.go_back()
    expect(opened.locator("#title")).to_have_text("Group 0")
    opened.get_by_role("button", name="Merge this group into group 1").click()
    expect(opened.locator("#title")).to_have_text("Group 1")
    expect(opened.locator("#subtitle")).to_have_text("20 images")
    assert not (served.session.state.category == 0).any()


@pytest.mark.slow
def test_an_image_of_a_known_class_can_be_confirmed_discarded_and_put_back(opened, served, expect):
    place(opened, "pen")
    select(opened, 10)
    opened.get_by_role("button", name="Confirm class").click()
    expect(opened.locator("#subtitle")).to_have_text("10 images of a known class, 1 of them assigned by hand")
    select(opened, 11)
    opened.get_by_role("button", name="Discard", exact=True).click()
    place(opened, "Discarded")
    expect(opened.locator(".tile")).to_have_count(1)
    select(opened, 11)
    opened.get_by_role("button", name="Put back").click()
    expect(opened.get_by_text("No image is discarded.")).to_be_visible()
    assert served.session.state.category.tolist() == served.session.target.start.tolist()


@pytest.mark.slow
def test_a_name_that_is_refused_is_explained_and_stays_to_be_mended(opened, browsing, expect):
    browsing.allow("response 400: ")
    opened.get_by_label("Name of this group").fill("unknown")
    opened.get_by_role("button", name="Save name").click()
    expect(opened.locator("#problem")).to_contain_text("Choose another name")
    expect(opened.get_by_label("Name of this group")).to_have_value("unknown")


def test_names_are_shown_as_they_are_written(new_target, open_session, serve_session, chromium_page, expect, tmp_path):
    wicked = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    session = open_session(new_target(classes=[wicked, "pen"], n_groups=1))
    heard = []
    chromium_page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
    with serve_session(session, None) as served:
        chromium_page.goto(served.address)
        chromium_page.get_by_label("Name of this group").fill(wicked + "!")
        chromium_page.keyboard.press("Enter")
        expect(chromium_page.locator("#title")).to_have_text(f"Group 0: {wicked}!")
        place(chromium_page, wicked + " 10")
        expect(chromium_page.locator("#title")).to_have_text(wicked)
        chromium_page.keyboard.press("l")
        chromium_page.locator("#queue-label").fill(wicked + "?")
        chromium_page.keyboard.press("Enter")
        expect(chromium_page.locator("#queue-text")).to_contain_text(f"labelled “{wicked}?”")
        chromium_page.keyboard.press("Escape")
        chromium_page.keyboard.press("e")
        expect(chromium_page.locator("#finish")).to_be_visible()
        chromium_page.goto("about:blank")
    assert heard == []


@pytest.mark.slow
def test_a_run_without_pictures_shows_the_names_of_its_samples(session, serve_session, chromium_page, expect):
    with serve_session(session, None) as served:
        chromium_page.goto(served.address)
        expect(chromium_page.locator(".tile")).to_have_count(10)
        assert re.fullmatch(r"photos/\d+ é.jpg", chromium_page.locator(".tile .name").first.inner_text())
        assert chromium_page.locator("img:visible").count() == 0
        chromium_page.goto("about:blank")


@pytest.mark.slow
def test_pages_turn_and_a_reload_stays(new_target, open_session, serve_session, chromium_page, expect, tmp_path):
    page = chromium_page
    with serve_session(open_session(new_target(n_groups=1, each=130)), None) as served:
        page.goto(served.address)
        expect(page.locator("#page-text")).to_have_text("1–60 of 130")
        page.get_by_role("button", name="Select this page").click()
        page.get_by_role("button", name="Next page").click()
        expect(page.locator("#page-text")).to_have_text("61–120 of 130")
        expect(page.locator("#selected-text")).to_have_text("60 selected")  # a selection may span pages
        page.keyboard.press(".")
        expect(page.locator("#page-text")).to_have_text("121–130 of 130")
        page.reload()
        expect(page.locator("#page-text")).to_have_text("121–130 of 130")
        page.goto("about:blank")


@pytest.mark.slow
def test_when_the_server_has_ended_the_page_says_what_to_do(session, serve_session, browsing, chromium_page, expect):
    browsing.allow("request failed: .* net::ERR_CONNECTION_REFUSED")
    with serve_session(session, None) as served:
        chromium_page.goto(served.address)
        expect(chromium_page.locator(".tile")).to_have_count(10)
    chromium_page.keyboard.press("s")
    expect(chromium_page.locator("#problem")).to_contain_text(
        "The command that serves this page is not running any more."
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_every_text_can_be_read(served, browsing, expect, scheme):
    page = browsing.page(color_scheme=scheme)
    page.goto(served.address)
    expect(page.locator(".tile")).to_have_count(10)
    select(page, 30)
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)  # colours fade in
    found = page.evaluate(CONTRASTS)
    for key in "?le":
        page.keyboard.press(key)
        expect(page.locator("dialog[open]")).to_have_count(1)
        found += page.evaluate(CONTRASTS)
        page.keyboard.press("Escape")
    assert len(found) > 60
    assert [text for text, ratio in found if ratio < 4.5] == []


@pytest.mark.slow
def test_every_control_has_a_name_and_shows_its_focus(opened):
    select(opened, 30)
    controls = opened.locator("button:visible, input:visible, select:visible, a:visible, [role=option]:visible")
    snapshot = opened.locator("body").aria_snapshot()
    assert controls.count() > 30
    assert not re.search(r"- (button|link|textbox|combobox|option|progressbar)(:|$| \[)", snapshot, re.MULTILINE), (
        snapshot
    )
    unfocused = []
    for number in range(60):
        opened.keyboard.press("Tab")
        outline = opened.evaluate(
            "[document.activeElement.outerHTML.slice(0, 80), getComputedStyle(document.activeElement).outlineStyle]"
        )
        if outline[1] == "none" and not outline[0].startswith("<body"):
            unfocused.append((number, outline))
    assert unfocused == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.slow
def test_nothing_sticks_out(served, browsing, expect, width):
    page = browsing.page(viewport={"width": width, "height": 800})
    page.goto(served.address)
    expect(page.locator(".tile")).to_have_count(10)
    if width == 390:
        page.get_by_role("button", name="Show groups").click()
    place(page, "Group 1")
    expect(page.locator("#title")).to_have_text("Group 1")
    select(page, 40, 41)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("Escape")
    for key, dialog in (("l", "#queue"), ("e", "#finish"), ("?", "#help")):
        page.keyboard.press(key)
        expect(page.locator(dialog)).to_be_visible()
        assert page.locator(dialog).evaluate("(one) => one.scrollWidth <= one.clientWidth")
        page.keyboard.press("Escape")


def test_a_quick_hand_gets_what_it_saw(opened, served, expect):
    """Clicks that come faster than answers are about what was on the screen, one after the other."""
    opened.evaluate(
        """() => {
          const click = (selector) => document.querySelector(selector).click();
          click("#sample-30");
          click("#discard");
          click("#discard");
          click("#sample-31");
          click('nav a[href="#group-1"]');
          document.querySelector("#name").value = "kettle";
          click("#name-form button");
          for (const key of "zzzy") document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        }"""
    )
    expect(opened.locator("#message")).to_have_text("Redone: 1 image discarded.")
    assert served.session.state.members(-1).tolist() == [30]
    assert served.session.state.names == {}
    assert [(step.kind, step.text) for step in served.session.store.entries()] == [
        ("move", "1 image discarded"),
        ("name", "group 0 named “kettle”"),
        ("undo", "group 0 named “kettle”"),
        ("undo", "1 image discarded"),
        ("redo", "1 image discarded"),
    ]
