"""Runs and fitted estimators in a notebook and as text."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.base import clone

from uniot import UniNCM, UniOT
from uniot.datasets import make_toy_domains
from uniot.runs import Run


class Read(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, text: str) -> None:
        if self.cells:
            self.cells[-1] += text


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(n_common=3, n_source_private=1, n_target_private=2, samples_per_class=20, seed=0)


@pytest.fixture(scope="module")
def fitted(toy) -> UniNCM:
    classes = np.array([f"<b>{name}</b>" for name in toy.y_source])
    return UniNCM(random_state=0).fit(toy.x_source, classes, toy.x_target)


def test_an_estimator_shows_counts_interval_and_three_rows_of_each_group(fitted, toy):
    html = fitted._repr_mimebundle_()["text/html"]
    n_unknown = int((fitted.labels_ == "unknown").sum())
    low, high = fitted.private_share_interval_
    assert f"<b>{n_unknown:,} unknown</b>" in html
    assert f"{100 * low:.0f} to {100 * high:.0f} % are plausible" in html
    cells = Read(html[: html.index("</table>")]).cells
    assert cells[0].startswith("<b>")
    for group in range(fitted.n_private_classes_):
        place = cells.index(f"Group {group}")
        assert cells[place + 1] == str((fitted.groups_ == group).sum())
        rows = [int(row) for row in cells[place + 2].replace("row", "").split()]
        assert len(rows) == 3
        assert (fitted.groups_[rows] == group).all()


def test_names_are_text_in_html(fitted):
    name = str(fitted.classes_[0])
    html = fitted._repr_html_inner()
    assert name.startswith("<b>")
    assert name not in html
    assert name.replace("<", "&lt;").replace(">", "&gt;") in html


def test_representations_follow_the_conventions_of_scikit_learn(fitted):
    assert repr(fitted) == "UniNCM(random_state=0)"
    assert repr(clone(fitted)) == repr(fitted)
    new = UniOT(steps=3)
    assert "unknown</b>" not in new._repr_mimebundle_()["text/html"]
    with sklearn.config_context(display="text"):
        assert set(fitted._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(fitted, "_repr_html_")


def test_answers_show_in_the_result_of_an_estimator(toy):
    model = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target)
    row = int(np.flatnonzero(model.labels_ == "unknown")[0])
    model.tell(row, toy.y_source[0])
    n_unknown = int((model.labels_ == "unknown").sum())
    assert f"<b>{n_unknown:,} unknown</b>" in model._repr_html_inner()


def test_a_run_says_what_is_in_it(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    run = Run.open(tmp_path / "run")
    n_known = int((fitted.labels_ != "unknown").sum())
    n_target, n_groups = len(fitted.labels_), fitted.n_private_classes_
    assert repr(run) == (
        f"<Run({str(tmp_path / 'run')!r}): unincm, {n_target} target samples: {n_known} known, {n_target - n_known} "
        f"unknown in {n_groups} groups>"
    )
    html = run._repr_html_()
    assert "<b>run</b> · UniNCM" in html
    assert f"<b>{n_known:,} known</b>" in html
    (tmp_path / "run" / "predictions.csv").write_text("damaged", encoding="utf-8")
    assert repr(Run.open(tmp_path / "run")).endswith(f"unincm, {n_target} target samples>")
