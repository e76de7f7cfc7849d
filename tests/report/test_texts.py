"""Reports of runs whose samples are texts or links, and what describes their groups."""

from __future__ import annotations

import re
from html import unescape

import pytest

from uniot.annotations.places import DISCARDED
from uniot.io.shown import Shown
from uniot.labelling.actions import MoveSamples
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.report.page import make_content, render
from uniot.report.texts import ReportTexts
from uniot.report.values import ReportValues
from uniot.runs.group_descriptions import GroupDescription, GroupDescriptions
from uniot.runs.run import Run

WICKED = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u202eevil"


@pytest.fixture
def text_run(made_model, made_run):
    """A run with texts or links of both collections, and words for its two groups."""

    def made(kind: str = "text", model=None, **texts: str) -> Run:
        run = made_run(model or made_model())
        n_target, n_source = len(run.predictions), len(run.model.source.rows)
        target = [
            f"https://example.org/{row}" if kind == "link" else f"My card {row} is lost" for row in range(n_target)
        ]
        for name, text in texts.items():
            target[int(name.removeprefix("row_"))] = text
        groups = tuple(GroupDescription((f"word{one}", "<b>card</b>"), (f"name {one}", "unknown")) for one in range(2))
        with Run.writer(run.folder) as writer:
            source = [f"Labelled text {row}" for row in range(n_source)]
            writer.write_shown(Shown(kind, source), Shown(kind, target))
            writer.write_descriptions(GroupDescriptions("typical words", groups))
        return Run.open(run.folder)

    return made


def texts_of(run: Run) -> dict[int, str]:
    return make_content(ReportValues.of(run))["data"]["texts"]


def test_cards_map_and_filters_have_the_texts(text_run):
    run = text_run()
    content = make_content(ReportValues.of(run))
    data = content["data"]
    assert content["found"].noun == "text"
    assert data["texts"] == {row: f"My card {row} is lost" for row in range(len(run.predictions))}
    assert set(data["sourceTexts"].values()) == {f"Labelled text {row}" for row in range(len(run.model.source.rows))}
    (group, *_) = content["groups"].shown
    assert [sample.text.text for sample in group.typical] == [
        f"My card {sample.row} is lost" for sample in group.typical
    ]
    page = render(ReportValues.of(run))
    assert "Text or name" in page
    assert "labelled example:" in page
    assert "image" not in re.search(r'<p class="lead">.*?</p>', page)[0]


def test_a_group_shows_its_words_and_suggested_names(text_run):
    page = render(ReportValues.of(text_run()))
    card = re.search(r'<article class="card" id="group-000">.*?</article>', page, re.DOTALL)[0]
    assert 'typical words: <span dir="auto">word0, &lt;b&gt;card&lt;/b&gt;</span>' in card
    assert 'suggested names: <span dir="auto">name 0</span>' in card  # "unknown" is no name


def test_words_leave_a_group_that_people_have_changed(text_run):
    run = text_run()
    target = TargetSamples.of_run(run)
    store = LabelStore.of_run(run, target.digest)
    session = LabellingSession(target, store)
    rows = session.state.members(0).tolist()
    session.act(MoveSamples(kind="move", rows=rows[:4], to="discarded"), 0)
    assert (session.state.category[rows[:4]] == DISCARDED).all()
    store.close()
    shown = {
        card.category.index: card.described
        for card in make_content(ReportValues.of(Run.open(run.folder)))["groups"].shown
    }
    assert shown[0] == GroupDescription()
    assert shown[1].terms == ("word1", "<b>card</b>")


def test_a_hostile_text_is_text_and_in_one_line(text_run):
    run = text_run(row_0=WICKED, row_1="first\n\n   second")
    page = render(ReportValues.of(run))
    assert "<img src=x" not in page
    assert "<script>alert(1)" not in page
    assert texts_of(run)[0] == " ".join(WICKED.split())
    assert texts_of(run)[1] == "first second"


def test_only_addresses_of_the_web_become_links(text_run):
    run = text_run("link", row_0="javascript:alert(1)", row_1="https://example.org/" + "a" * 500)
    assert make_content(ReportValues.of(run))["found"].noun == "sample"
    found = texts_of(run)
    assert found[0] == "javascript:alert(1)"
    assert isinstance(found[1], str)  # it is cut, and would lead elsewhere
    assert found[2] == ["https://example.org/2"]
    page = render(ReportValues.of(run))
    links = re.findall(r'<a class="text"[^>]*>', page)
    assert links
    assert all('target="_blank" rel="noopener noreferrer"' in link for link in links)
    assert all(unescape(re.search('href="([^"]*)"', link)[1]).startswith("https://") for link in links)


def test_texts_are_cut_until_all_fit(text_run, monkeypatch):
    run = text_run(row_0="<" * 10_000, row_1="é" * 300)
    wanted = [("target", row) for row in range(len(run.predictions))]
    texts = ReportTexts(run, wanted)
    assert (len(texts.of(("target", 0)).text), texts.of(("target", 1)).text) == (400, "é" * 300)
    monkeypatch.setattr("uniot.report.texts._MOST_BYTES", 2500)
    texts = ReportTexts(run, wanted)
    assert len(texts.of(("target", 0)).text) == 240
    assert texts.of(("target", 2)).text == "My card 2 is lost"


def test_a_run_without_texts_has_none(made_run):
    run = made_run()
    texts = ReportTexts(run, [("target", 0)])
    assert texts.of(("target", 0)) is None
    assert texts_of(run) == {}


@pytest.mark.browser
@pytest.mark.slow
def test_pointing_at_a_sample_shows_its_text_and_the_filter_finds_it(text_run, browsing):
    run = text_run(row_3=WICKED)
    run.report()
    page = browsing.page()
    heard: list[str] = []
    page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
    page.goto((run.folder / "report.html").as_uri())
    page.locator("#map .trace.scatter").last.locator("path.point").first.hover(force=True)
    page.locator("#about .text").wait_for()
    assert page.locator("#about .text").inner_text() in run.texts.all("target")
    page.fill("#filter-words", "EVIL")
    page.locator("#filter-count", has_text="1 of").first.wait_for()
    assert page.locator(".card li[data-row]:visible").count() in (0, 1)
    assert heard == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
