"""Suspect labels of the source: what people say about them, on the page and in tables, and the run that is repeated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from uniot.adaptation.collections import Collections
from uniot.data_quality.checks import SuspectLabel, write_suspect_labels
from uniot.datasets import make_toy_domains
from uniot.errors import DataError
from uniot.io.csv_tables import dict_reader
from uniot.labelling.samples import TargetSamples
from uniot.labelling.source_labels import SourceLabels
from uniot.labelling.suspects import SuspectLabels
from uniot.runs import Run

NAMES = ["a/0.jpg", "a/1.jpg", "b/2.jpg", "b/3.jpg"]
LABELS = np.array(["a", "a", "b", "b"])
SUSPECTS = [
    SuspectLabel("shelf/3.jpg", 3, "common-0", "common-1", 0.91, True),
    SuspectLabel("shelf/8.jpg", 8, "common-1", "common-2", 0.62, False),
    SuspectLabel("<b>9</b>", 9, "common-1", "common-0", 0.55, False),
]


def table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_corrects_confirms_and_drops(tmp_path):
    text = "path,label,decision\na/1.jpg,b,\na/0.jpg,a,right\nb/2.jpg,,dropped\n"
    labels, kept = SourceLabels.read(table(tmp_path / "t.csv", text)).apply(NAMES, LABELS)
    assert labels.tolist() == ["a", "b", "b", "b"]
    assert kept.tolist() == [True, True, False, True]


def test_what_is_said_later_replaces_what_was_said_before():
    first = SourceLabels({"a/0.jpg": ("b", "changed"), "a/1.jpg": ("", "dropped")})
    both = first.followed_by(SourceLabels({"a/1.jpg": ("a", "right")}))
    assert both.said == {"a/0.jpg": ("b", "changed"), "a/1.jpg": ("a", "right")}
    assert both.sentence == "1 source label is corrected."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path\na/0.jpg\n", "needs the columns path"),
        ("path,label,decision\na/0.jpg,b,maybe\n", "line 2: the decision is 'maybe'"),
        ("path,label,decision\na/0.jpg,b,dropped\n", "A dropped sample alone has no label"),
        ("path,label\na/0.jpg,b\na/0.jpg,a\n", "a second time"),
        ('path,label\na/0.jpg,"b\x07"\n', "control characters"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        SourceLabels.read(table(tmp_path / "t.csv", text))


def test_a_sample_that_is_not_there_or_there_twice_is_an_error():
    said = SourceLabels({"c/9.jpg": ("b", "changed")})
    with pytest.raises(DataError, match="1 of 1 source sample whose label was corrected are not in the source"):
        said.apply(NAMES, LABELS)
    with pytest.raises(DataError, match="several source samples are named 'c/9.jpg'"):
        said.apply([*NAMES[:2], "c/9.jpg", "c/9.jpg"], LABELS)


@pytest.fixture
def suspects(asked_run, asked_session) -> SuspectLabels:
    run = Run.open(asked_run.folder)
    write_suspect_labels(run.files.suspect_labels, SUSPECTS)
    return SuspectLabels(run, asked_session.target)


@pytest.fixture
def suspecting(asked_session, suspects, serve_session):
    with serve_session(asked_session, None, suspects=suspects) as page:
        yield page


def written(page) -> list[tuple[str, str, str]]:
    with page.session.store.files.source_labels.open(encoding="utf-8", newline="") as file:
        return [(line["path"], line["label"], line["decision"]) for line in dict_reader(file)]


def tell(page, row: object, decision: object, label: str = "", **headers):
    body = json.dumps({"row": row, "decision": decision, "label": label}).encode()
    return page.ask("/source-labels", "POST", body, **headers)


def test_what_is_said_on_the_page_is_in_the_table_at_once(suspecting, suspects):
    assert [one["row"] for one in suspecting.ask("/source-labels").json["suspects"]] == [3, 8, 9]
    assert tell(suspecting, 3, "changed", "common-1").json["message"] == "shelf/3.jpg: the label is now “common-1”."
    assert tell(suspecting, 8, "dropped").json["decided"] == 2
    tell(suspecting, 9, "right")
    assert written(suspecting) == [
        ("shelf/3.jpg", "common-1", "changed"),
        ("shelf/8.jpg", "", "dropped"),
        ("<b>9</b>", "common-1", "right"),
    ]
    tell(suspecting, 8, "")
    assert [path for path, _, _ in written(suspecting)] == ["shelf/3.jpg", "<b>9</b>"]
    # As after a restart.
    run = Run.open(suspecting.session.store.files.folder)
    again = SuspectLabels(run, TargetSamples.of_run(run)).view()
    assert [one["decision"] for one in again["suspects"]] == ["changed", "", "right"]


@pytest.mark.parametrize(
    ("row", "decision", "label", "status"),
    [
        (4, "right", "", 400),
        (3, "changed", "no such class", 400),
        (3, "changed", "", 400),
        (3, "dropped", "common-1", 400),
        (3, "maybe", "", 422),
        (-1, "right", "", 422),
        ("3", "right", "", 422),
        (3, "changed", "x" * 2000, 422),
    ],
)
def test_what_is_no_decision_is_refused(suspecting, row, decision, label, status):
    assert tell(suspecting, row, decision, label).status == status
    assert not suspecting.session.store.files.source_labels.exists()


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": None}, {"Cookie": None}])
def test_only_the_page_itself_may_decide(suspecting, headers):
    assert tell(suspecting, 3, "dropped", **headers).status == 403
    assert not suspecting.session.store.files.source_labels.exists()


def test_a_page_without_suspects_has_no_such_address(untouched):
    assert untouched.ask("/source-labels").status == 404


@pytest.mark.browser
def test_suspect_labels_are_decided_with_single_keys(suspecting, browsing):
    from playwright.sync_api import expect

    page = browsing.page()
    page.goto(suspecting.address)
    page.locator("#show-source").click()
    items = page.locator(".suspect")
    expect(items).to_have_count(3)
    expect(items.nth(2)).to_contain_text("<b>9</b>")
    expect(items.nth(0)).to_be_focused()
    page.keyboard.press("y")
    expect(items.nth(0).locator(".said")).to_have_text("now “common-1”")
    expect(items.nth(1)).to_be_focused()
    page.keyboard.press("x")
    expect(items.nth(2)).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#suspects-text")).to_have_text("3 of 3 labels decided.")
    page.keyboard.press("z")
    expect(page.locator("#suspects-text")).to_have_text("2 of 3 labels decided.")
    page.keyboard.press("ArrowUp")
    expect(items.nth(1)).to_be_focused()
    items.nth(2).locator("[data-act=another]").click()
    page.locator("#picker-filter").fill("common-2")
    page.keyboard.press("Enter")
    expect(items.nth(2).locator(".said")).to_have_text("now “common-2”")
    items.nth(2).locator("[data-act=withdraw]").click()
    expect(page.locator("#suspects-text")).to_have_text("2 of 3 labels decided.")
    for act, said in (("suggested", "now “common-0”"), ("right", "“common-1” is right"), ("drop", "left out")):
        items.nth(2).locator(f"[data-act={act}]").click()
        expect(items.nth(2).locator(".said")).to_contain_text(said)
    page.reload()
    expect(page.locator("#suspects-text")).to_have_text("3 of 3 labels decided.")
    page.keyboard.press("g")
    expect(page.locator(".tile").first).to_be_visible()
    assert [path for path, _, _ in written(suspecting)] == ["shelf/3.jpg", "shelf/8.jpg", "<b>9</b>"]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory, uniot) -> Path:
    """A run whose source has two labels that are wrong."""
    folder = tmp_path_factory.mktemp("wrong")
    toy = make_toy_domains(3, 1, 1, samples_per_class=12, seed=3)
    labels = toy.y_source.copy()
    labels[0], labels[1] = "common-1", "common-1"
    names = [f"shelf/{row:03d}.jpg" for row in range(len(labels))]
    np.savez(folder / "source.npz", x=toy.x_source, y=labels, ids=names)
    np.savez(folder / "target.npz", x=toy.x_target)
    answer = uniot("adapt", folder / "source.npz", folder / "target.npz", "--out", folder / "run")
    assert answer.code == 0, answer.stderr
    return folder


@pytest.fixture(scope="module")
def repeated(wrong, uniot) -> str:
    """What the command printed that repeated the run with a corrected source, as run-continued beside it."""
    run = Run.open(wrong / "run")
    suspects = SuspectLabels(run, TargetSamples.of_run(run))
    assert {one["row"] for one in suspects.view()["suspects"]} >= {0, 1}
    suspects.decide(0, "changed", "common-0")
    suspects.decide(1, "dropped")
    answer = uniot("adapt", "--continue", wrong / "run")
    assert answer.code == 0, answer.stderr
    return answer.stdout


def test_a_run_is_repeated_with_its_corrected_source_by_one_command(wrong, repeated):
    assert "1 source label is corrected and 1 source sample is left out." in repeated
    run, again = Run.open(wrong / "run"), Run.open(wrong / "run-continued")
    n_source = len(run.saved_model.source.rows)
    assert len(again.saved_model.source.rows) == n_source - 1
    assert again.saved_model.source.classes[0] == again.saved_model.class_names.index("common-0")
    # What was said goes with the run, and is not asked again.
    said = SourceLabels.of_run(again.files.source_labels).said
    assert said == {"shelf/000.jpg": ("common-0", "changed"), "shelf/001.jpg": ("", "dropped")}
    assert Collections.of_run(again).source.names == [f"shelf/{row:03d}.jpg" for row in range(n_source) if row != 1]


@pytest.mark.usefixtures("repeated")
def test_a_table_corrects_the_source_of_a_new_run(wrong, uniot, tmp_path):
    corrections = table(tmp_path / "c.csv", "path,label\nshelf/000.jpg,common-0\nshelf/001.jpg,\n")
    places = (wrong / "source.npz", wrong / "target.npz")
    answer = uniot("adapt", *places, "--out", tmp_path / "run", "--source-labels", corrections)
    assert answer.code == 0, answer.stderr
    new, continued = Run.open(tmp_path / "run"), Run.open(wrong / "run-continued")
    assert new.predictions.labels.tolist() == continued.predictions.labels.tolist()
    answer = uniot(
        "adapt", *places, "--out", tmp_path / "other", "--source-labels", table(tmp_path / "d.csv", "path\n")
    )
    assert answer.code == 1
    assert "needs the columns path" in answer.stderr


def test_corrections_that_leave_one_class_are_refused(wrong):
    run = Run.open(wrong / "run")
    found = Collections.of_run(run, source_labels=SourceLabels({"shelf/002.jpg": ("common-0", "changed")}))
    names = found.source.names
    everything = SourceLabels(dict.fromkeys(names, ("common-0", "changed")))
    with pytest.raises(DataError, match="fewer than two classes"):
        Collections.of_run(run, source_labels=everything)
