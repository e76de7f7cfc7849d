"""Runs whose samples are texts or links: what the page is sent, what is searched, and what describes the groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from uniot.labelling.actions import MergeGroup, MoveSamples, NameGroup, SplitGroup, Undo
from uniot.labelling.exporting import export_labels
from uniot.labelling.reading import IN_TILE, searched
from uniot.labelling.session import LabellingSession
from uniot.runs.group_descriptions import GroupDescription, GroupDescriptions
from uniot.runs.texts import Texts

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def texts(target, open_session, with_texts) -> LabellingSession:
    return open_session(with_texts(target, row_31=SCRIPT, row_45="Die Überweisung\nfehlt", row_2="refund, please"))


def found(session: LabellingSession, search: str, category: str = "group-0", **options: bool) -> list[int]:
    view = session.gallery(category, 0, "typical", search, **options)
    assert view["total"] == len(view["samples"])
    return [sample["row"] for sample in view["samples"]]


def test_a_sample_is_sent_with_its_text_as_it_is(texts):
    samples = {one["row"]: one for one in texts.gallery("group-0", 0, "typical")["samples"]}
    assert (samples[31]["text"], samples[31]["cut"], samples[31]["href"]) == (SCRIPT, False, None)
    assert samples[30]["name"] == "photos/030 é.jpg"


def test_a_search_finds_all_words_in_any_case_and_without_accents(texts):
    assert found(texts, "CARD where 3") == [row for row in found(texts, "") if row != 31]
    assert found(texts, "uberweisung FEHLT", "group-1") == [45]
    assert found(texts, "photos/045", "group-1") == [45]  # the name counts too
    assert found(texts, "uberweisung") == []
    assert found(texts, "uberweisung", everywhere=True) == [45]


def test_a_search_everywhere_shows_groups_before_classes_and_says_where_each_sample_is(texts):
    texts.act(MoveSamples(kind="move", rows=[45], to="discarded"), texts.revision)
    view = texts.gallery("group-0", 0, "typical", "e", everywhere=True)
    assert (view["everywhere"], view["total"]) == (True, 60)
    view = texts.gallery("group-0", 0, "typical", "please", everywhere=True)
    assert [one["in"] for one in view["samples"]] == ["known class “mug”"]
    rows = texts._every_row().tolist()
    assert (rows[0], rows[-1], rows.index(59) < rows.index(0) < rows.index(29)) == (30, 45, True)


def test_without_words_nothing_is_searched_everywhere(texts):
    view = texts.gallery("group-0", 0, "typical", "  ", everywhere=True)
    assert (view["everywhere"], view["total"]) == (False, 10)


def test_a_long_text_is_cut_around_what_was_found_and_sent_whole_on_request(target, open_session, with_texts):
    long = "padding " * 500 + "needle " + "padding " * 500
    session = open_session(with_texts(target, row_30=long))
    (sample,) = session.gallery("group-0", 0, "typical", "needle")["samples"]
    assert sample["cut"]
    assert len(sample["text"]) <= IN_TILE + 2
    assert "needle" in sample["text"]
    assert sample["text"][0] == sample["text"][-1] == "…"
    assert session.whole_text("target", 30) == {"text": long, "cut": False, "href": None}


def test_searched_words_are_bounded():
    assert searched("  Refund REFUND Übertrag ") == ("refund", "ubertrag")
    assert len(searched(" ".join(map(str, range(100))))) == 12


@pytest.mark.parametrize(
    ("address", "is_link"),
    [
        ("https://example.org/a?b=c#d", True),
        ("http://example.org", True),
        ("javascript:alert(1)", False),
        ("JavaScript:alert(1)", False),
        ("data:text/html,<script>", False),
        ("//example.org", False),
        ("https://", False),
        ("http://[::1", False),
        ("ftp://example.org", False),
        ("https://example.org/\u202egpj.exe", False),
        ("https://example.org/a b", False),
        ("https://" + "a" * 3000 + ".org", False),
    ],
)
def test_only_addresses_of_the_web_are_links(target, open_session, address, is_link, with_texts):
    session = open_session(with_texts(target, links=True, row_30=address))
    sample = session.whole_text("target", 30)
    assert (sample["text"], sample["href"]) == (address, address if is_link else None)


def test_a_text_is_never_a_link(target, open_session, with_texts):
    session = open_session(with_texts(target, row_30="https://example.org"))
    assert session.whole_text("target", 30)["href"] is None


def test_messages_call_a_text_a_text(texts):
    def do(action: object) -> str:
        return texts.act(action, texts.revision).message

    assert do(MoveSamples(kind="move", rows=[30, 32], to="discarded")) == "2 texts discarded."
    assert do(MergeGroup(kind="merge", group=2, to="group-1")) == "Group 2 with its 10 texts merged into group 1."
    assert "its texts count as that class" in do(NameGroup(kind="name", group=0, name="mug"))


def described(session: LabellingSession, group: int) -> tuple[list[str], list[str]]:
    (one,) = (one for one in session.overview()["groups"] if one["number"] == group)
    return one["terms"], one["suggestions"]


def test_words_stay_with_a_group_that_loses_a_sample_and_are_found_again_after_a_merge_or_split(
    target, open_session, with_texts
):
    about = {40: "refund", 50: "transfer"}
    texts = {f"row_{row + one}": f"My {word} is missing" for row, word in about.items() for one in range(10)}
    session = open_session(with_texts(target, **texts))
    assert described(session, 1) == (["word1", "card"], ["name 1", "kettle"])
    session.act(MoveSamples(kind="move", rows=[40], to="discarded"), session.revision)
    assert described(session, 1)[0] == ["word1", "card"]
    session.act(MergeGroup(kind="merge", group=2, to="group-1"), session.revision)
    terms, suggestions = described(session, 1)
    assert {"refund", "transfer"} & set(terms)
    assert suggestions == terms[:5]
    assert described(session, 0)[0] == ["word0", "card"]
    session.act(Undo(kind="undo", of=session.to_undo.id), session.revision)
    assert described(session, 1)[0] == ["word1", "card"]


@pytest.mark.parametrize("links", [False, True])
def test_marker_genes_and_links_are_not_found_again(target, open_session, with_texts, links):
    target = with_texts(target, links=links)
    session = open_session(target if links else replace(target, texts=None, noun="cell"))
    session.act(SplitGroup(kind="split", group=0), session.revision)
    assert described(session, 3) == ([], [])
    assert described(session, 1)[0] == ["word1", "card"]


def test_suggestions_that_are_no_names_are_left_out(target, open_session, with_texts):
    hostile = ("unknown", "two\nlines", "\u202eeman", "é" * 300, "", " kettle ", "kettle", "mug")
    target = replace(with_texts(target), descriptions=GroupDescriptions("words", (GroupDescription((), hostile),)))
    assert described(open_session(target), 0)[1] == ["kettle", "mug"]


def test_a_suggestion_is_one_step_that_can_be_undone(texts):
    name = described(texts, 1)[1][0]
    texts.act(NameGroup(kind="name", group=1, name=name), texts.revision)
    assert texts.to_undo.text == "group 1 named “name 1”"


def exported(session: LabellingSession, kind: str, path: object = None) -> str:
    session.act(NameGroup(kind="name", group=0, name="lost card"), session.revision)
    return export_labels(session.store.files, session.target, session.state, kind, path).path.read_text(
        encoding="utf-8"
    )


def test_exports_have_the_text_where_the_format_has_a_place_for_it(texts, tmp_path):
    lines = exported(texts, "csv", tmp_path / "mine.csv").splitlines()
    assert lines[0] == "path,label,decision,group,text"
    assert lines[2] == f"photos/031 é.jpg,lost card,named,0,{SCRIPT}"
    assert exported(texts, "csv").splitlines()[0] == "path,label,decision,group"  # labels.csv has a fixed form
    assert json.loads(exported(texts, "jsonl").splitlines()[1])["text"] == SCRIPT
    (task, *_) = json.loads(exported(texts, "label-studio"))
    assert task["data"] == {"text": "Where is my card 30?", "sample": "photos/030 é.jpg"}
    assert task["annotations"][0]["result"][0]["to_name"] == "text"
    assert texts.import_labels((tmp_path / "mine.csv").read_text(encoding="utf-8")).message.startswith("Nothing to")


def test_links_are_exported_as_links(target, open_session, with_texts):
    session = open_session(with_texts(target, links=True, row_31="javascript:alert(1)"))
    (task, *_) = json.loads(exported(session, "label-studio"))
    assert task["data"] == {"link": "https://example.org/30", "sample": "photos/030 é.jpg"}
    images = json.loads(exported(session, "coco"))["images"]
    assert (images[0]["coco_url"], images[1].get("coco_url")) == ("https://example.org/30", None)


def test_samples_of_which_only_the_embedding_is_known_are_exported_with_their_names(target, open_session):
    session = open_session(replace(target, noun="sample"))
    (task, *_) = json.loads(exported(session, "label-studio"))
    assert task["data"] == {"text": "photos/030 é.jpg", "sample": "photos/030 é.jpg"}


def test_the_page_serves_whole_texts_and_nothing_else(texts, serve_session: Callable[..., object]):
    with serve_session(texts, None) as served:
        assert served.ask("/texts/target/31").json["text"] == SCRIPT
        assert served.ask("/texts/source/0").json["text"] == "Labelled example of mug"
        assert served.ask("/texts/target/60").status == 400
        assert served.ask("/texts/target/-1").status == 422
        assert served.ask("/gallery?category=group-0&search=" + "a" * 201).status == 422
        assert served.ask("/gallery?category=group-0&search=script").json["total"] == 1
        page = served.ask("/")
        assert SCRIPT not in page.text
        assert "What are these texts about?" in page.text
        assert "image" not in page.text.replace("image/svg", "").replace("images_decided", "").replace('"images"', "")


def test_a_run_without_texts_says_so(session, serve_session):
    with serve_session(session, None) as served:
        assert "no texts" in served.ask("/texts/target/3").json["message"]


def test_a_search_in_fifty_thousand_texts_is_quick(new_target):
    from time import process_time

    from uniot.labelling.reading import SampleTexts

    target = new_target(n_groups=3, each=10)
    n = 50_000
    names = [f"t{row}" for row in range(n)]
    rng = np.random.default_rng(0)
    words = np.array(["card", "lost", "überweisung", "refund", "please", "account", "balance", "why"])
    values = [" ".join(line) for line in words[rng.integers(len(words), size=(n, 12))].tolist()]
    large = replace(target, names=names, texts=Texts({"source": [], "target": values}, are_links=False))
    texts = SampleTexts(large)
    expected = ["lost" in one and "überweisung" in one for one in values]
    assert texts.matching(searched("uberweisung lost")).tolist() == expected
    begin = process_time()
    texts.matching(searched("uberweisung lost"))
    assert process_time() - begin < 0.5
