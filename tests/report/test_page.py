"""The page as text: what it says, that it is whole, and that nothing in a name can reach out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from uniot.errors import DataError
from uniot.labelling.actions import NameGroup
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.report.categories import Categories
from uniot.report.map import make_map
from uniot.report.page import render
from uniot.report.values import ReportValues
from uniot.runs.run import Run

HOSTILE = [
    "<script>window.broken = 1</script>",
    "</script><img src=x onerror='window.broken = 1'>",
    "\"'><b onmouseover=alert(1)>&amp; {{ 7 * 7 }} $x$",
]
VOID = {"meta", "link", "img", "input", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """Elements in order, each with the text directly in it and below it."""

    html: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[Element] = []
        self.feed(self.html)
        assert not self._open, f"{self._open[-1].tag} is never closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attributes)))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"{tag} was never opened"
        assert self._open[-1].tag == tag
        self._open.pop()

    def handle_data(self, text: str) -> None:
        for element in self._open:
            element.text += text

    def all(self, *tags: str) -> list[Element]:
        return [element for element in self.elements if element.tag in tags]

    def one(self, identifier: str) -> Element:
        (found,) = [element for element in self.elements if element.attributes.get("id") == identifier]
        return found

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", self.all("main")[0].text)

    def json(self, **attributes: str) -> object:
        (found,) = [one for one in self.all("script") if attributes.items() <= one.attributes.items()]
        return json.loads(found.text)


def page_of(run) -> Page:
    return Page(render(ReportValues.of(run)))


@pytest.fixture(scope="module")
def page(made_model, made_run, metrics_of_run, evidence_of_run) -> Page:
    model = made_model(interval=(2, 4), evidence=evidence_of_run, oracle=True)
    return page_of(made_run(model, pictures=True, metrics=metrics_of_run))


@pytest.fixture(scope="module")
def plain(made_run) -> Page:
    """Of a run from embeddings, without scores."""
    return page_of(made_run())


def test_the_page_opens_with_the_sentence_and_the_counts(page):
    assert page.words.strip().startswith(
        "Report of run Method: UniOT Of 25 pictures, 14 are labelled with 2 of your 3 classes; the other 11 look like"
    )
    assert "14 known" in page.words
    assert "2 to 4 are plausible" in page.words


def test_scores_show_the_recall_of_each_class_and_the_confusion(page, plain):
    assert "Recall of each class ant 100.0 unknown 50.0" in page.words
    (table,) = [table for table in page.all("table") if table.attributes.get("class") == "confusion"]
    assert re.sub(r"\s+", " ", table.text).strip() == "true classantbeeunknown ant 1091 elk * 734"
    assert page.all("details")[0].text.strip().startswith("All settings")  # neither is folded away
    assert not [table for table in plain.all("table") if table.attributes.get("class") == "confusion"]


@pytest.mark.parametrize("is_named", [False, True])
def test_lists_of_samples_have_the_labels_of_predictions_csv(made_run, is_named):
    run = made_run()
    if is_named:
        target = TargetSamples.of_run(run)
        with closing(LabelStore.of_run(run, target.digest)) as store:
            LabellingSession(target, store).act(NameGroup(kind="name", group=1, name="kettle"), seen=0)
        run = Run.open(run.folder)
    data = page_of(run).json(id="data")
    labels = {int(row): data["categories"][sample[4]][4] for row, sample in data["samples"].items()}
    assert labels == dict(enumerate(run.model.labels(run.model.target).tolist()))
    assert ("kettle" in labels.values()) == is_named


def test_each_group_names_the_classes_it_is_nearest_to(page):
    assert len(re.findall(r"nearest: \w+ -?[\d.]+, \w+ -?[\d.]+, \w+ -?[\d.]+", page.words)) == 2


def test_headings_are_in_order(page):
    levels = [int(heading.tag[1]) for heading in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_nothing_is_fetched_from_elsewhere(page):
    for element in page.elements:
        for name in ("src", "href", "action", "srcset", "data"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (element.tag, name, value[:80])
    assert "url(" not in page.all("style")[0].text
    assert "@import" not in page.all("style")[0].text


def test_every_link_leads_somewhere_and_every_id_is_there_once(page):
    identifiers = Counter(element.attributes["id"] for element in page.elements if "id" in element.attributes)
    assert identifiers.most_common(1)[0][1] == 1
    for link in page.all("a"):
        target = link.attributes.get("href")
        assert target is None or target == "#" or target[1:] in identifiers, target


def test_every_picture_and_control_has_words(page):
    assert all("alt" in picture.attributes for picture in page.all("img"))
    for chart in page.elements:
        if chart.attributes.get("class", "").startswith("chart"):
            assert chart.attributes["aria-label"]
    for button in page.all("button"):
        assert button.attributes.get("aria-label") or button.text.strip()
    labels = "".join(label.text for label in page.all("label"))
    assert "Class or group" in labels
    assert "Colour by" in labels


def test_the_security_policy_lets_these_scripts_run_and_no_other(page):
    (policy,) = [one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes]
    run = [script.text for script in page.all("script") if "type" not in script.attributes]
    assert len(run) == 1 + len(list((files("uniot.report") / "templates" / "scripts").iterdir()))
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert re.search(r"script-src (.*?);", policy)[1] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert "default-src 'none'" in policy


def test_galleries_show_each_sample_of_a_small_class_with_its_confidence(page, made_run):
    card = page.one("class-000")
    assert "ant" in card.text
    assert "9 pictures" in card.text
    # The mean, the samples, and the confidence below which they are doubtful.
    assert len(re.findall(r"[01]\.\d\d", card.text)) == 1 + 9 + 1
    names = [picture.attributes["alt"] for picture in page.all("img")]
    assert sum(name.startswith("shelf/") for name in names) == 25
    assert "A labelled example of ant" in names
    assert "A labelled example of cow" not in names


def test_evidence_on_the_number_of_groups_is_told(page):
    assert "2 groups among 11 unknown pictures; 2 to 4 are plausible." in page.words
    assert re.search(r"silhouette \(not counted\) ?Often too high\. ?8\.5 ?6 to 11", page.words)


def test_class_without_doubtful_samples_says_so(made_model, made_run):
    model = made_model()
    ones = np.ones(len(model.target))
    sure = replace(model, target=replace(model.target, confidence=ones, group_confidence=ones.copy()))
    page = page_of(made_run(sure, pictures=True))
    for key, words in (("class-000", "every confidence is 0.75"), ("group-000", "every group confidence is 0.5")):
        card = page.one(key).text
        assert f"None is doubtful: {words} or more." in card
        assert "Doubtful" not in card


def test_absent_classes_are_listed(page):
    section = page.one("absent").text
    assert "cow" in section
    assert "bee" not in section


def test_honest_scores_and_those_of_an_oracle_stand_apart(page):
    scores = page.one("scores").text
    honest, oracle = scores.split("With knowledge of the true labels")
    assert re.search(r"H³-score, honest\s*70\.0\s*Harmonic mean", honest)
    assert "80.0" not in honest
    assert re.search(r"H³-score, oracle\s*80\.0", oracle)
    assert "NMI, honest" in honest
    assert "nobody has this knowledge" in oracle
    assert "nmi_honest has no value" in oracle


def test_figures_have_their_data(page, plain):
    drawn = {one.attributes["data-chart"] for one in page.all("script") if "data-chart" in one.attributes}
    assert drawn == {
        "map", "confidence", "similarity", "transport", "losses", "class-mass", "detection",
    }  # fmt: skip
    assert drawn <= {element.attributes.get("id") for element in page.elements}
    assert "Recall: fraction of the samples of your classes" in page.words
    assert "Recall: share" not in plain.words


def test_a_run_without_pictures_shows_names(plain):
    assert "shelf/003.jpg" in plain.one("groups").text + plain.one("classes").text
    assert not plain.all("img")
    assert "14 are labelled with 2 of your 3 classes" in plain.words
    assert "see its name" in plain.words


def test_scores_are_shown_only_where_the_truth_was_told(plain):
    assert "oracle" not in plain.words.lower()
    assert not [link for link in plain.all("a") if link.attributes.get("href") == "#scores"]


def test_every_setting_is_told_with_what_it_means(plain, made_run):
    settings = plain.one("settings").text
    for name, about in type(made_run().model.settings).model_fields.items():
        assert name in settings
        assert about.description in settings


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"groups": ()}, "No picture is unknown, so there is no group."),
        ({"found": (0, 0, 0)}, "None of the 11 pictures is labelled with your 3 classes"),
        ({"groups": (4,)}, "the other 4 look like one new kind"),
        ({"found": (3, 3, 3)}, "None: all of your classes were found."),
        (
            {"found": (1, 0, 0), "groups": (1,)},
            "1 is labelled with 1 of your 3 classes; the other 1 looks like a new kind",
        ),
    ],
    ids=["no unknown", "no known", "one group", "all found", "two samples"],
)
def test_unusual_targets_have_a_page(made_model, made_run, model, words):
    page = page_of(made_run(made_model(**model), pictures=True))
    assert words in page.words
    sections = {element.attributes.get("id") for element in page.all("section")}
    assert ("classes" in sections) == any(model.get("found", (1,)))
    assert ("groups" in sections) == bool(model.get("groups", (1,)))


def test_names_are_text_whatever_is_in_them(made_model, made_run, plain, tmp_path):
    model = made_model(classes=HOSTILE)
    names = [f"{HOSTILE[row % 3]} {row}" for row in range(len(model.target))]
    scores = {"per_class_recall": {HOSTILE[0]: 1.0}, "notes": [HOSTILE[1]], "confusion": {HOSTILE[1]: {HOSTILE[0]: 1}}}
    run = made_run(model, tmp_path / HOSTILE[0].replace("/", "∕"), names=names, metrics=scores)
    page = page_of(run)
    assert [script.attributes for script in page.all("script")] == [one.attributes for one in plain.all("script")]
    assert not [name for element in page.elements for name in element.attributes if name.startswith("on")]
    assert not page.all("img", "b")[len(plain.all("img", "b")) :]
    for name in HOSTILE[:2]:
        assert name in page.one("classes").text
    assert "{{ 7 * 7 }}" in page.words
    data = page.json(id="data")
    assert data["classes"] == HOSTILE
    assert data["samples"]["4"][0] == names[4]
    # Plotly obeys some tags; it is given none.
    text = json.dumps(page.json(**{"data-chart": "similarity"}))
    assert "script" in text
    assert "<" not in text
    assert "<" in page.json(id="data")["places"][0][2]  # the page's own script makes this one harmless


def test_names_that_no_encoding_holds_have_a_page(made_model, made_run):
    model = made_model(classes=["a\udcff", "b", "猫\u2028\n🐈"])
    html = render(ReportValues.of(made_run(model)))
    assert r"a\udcff" in Page(html.encode("utf-8").decode("utf-8")).words


@pytest.mark.slow
def test_thousands_of_classes_and_hundreds_of_groups_stay_bounded(made_model, made_run):
    names = [f"class {number}" for number in range(2500)]
    run = made_run(made_model(names, [1] * 1500 + [0] * 1000, [4] * 300, epsilon=1.0), pictures=True)
    page = Page(render(replace(ReportValues.of(run), map=make_map(run.model, Categories.of(run.model), most=200))))
    assert len(page.html) < 12e6
    assert "1,470 smaller classes without a gallery" in page.words
    assert "270 smaller groups without a gallery" in page.words
    assert "and 1,270 more: see predictions.csv" in page.words
    assert "600 rows are shown, evenly chosen; 2,100 are left out." in page.words
    assert "2,400 classes are left out" in page.words


def test_a_missing_package_says_what_to_install(monkeypatch, made_model):
    model = made_model()
    monkeypatch.setitem(__import__("sys").modules, "openTSNE", None)
    with pytest.raises(
        DataError,
        match=r"drawing the map of the report needs openTSNE, which cannot be imported .*pip install 'uniot\[report\]'",
    ):
        make_map(model, Categories.of(model))


def luminance(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {', ':root:not([data-theme="light"]) {'])
def test_text_stands_out_from_what_it_is_on(theme):
    css = (files("uniot.report") / "templates" / "report.css").read_text(encoding="utf-8")
    block = css.split(theme, 1)[1].split("}", 1)[0]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    for ink in ("ink", "soft", "accent"):
        for paper in ("page", "panel"):
            light, dark = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)
