from __future__ import annotations

import re

import pytest

from uniot.errors import RunFolderError
from uniot.report.figures import write_figures
from uniot.report.values import ReportValues


@pytest.fixture(scope="module")
def run(made_model, made_run):
    names = ["$x_1^$", "<b>&amp;", "猫\n犬"]
    return made_run(made_model(names, found=(3, 0, 0), groups=(3,), oracle=True), pictures=True)


@pytest.fixture(scope="module")
def drawn(run):
    return ReportValues.of(run)


@pytest.fixture(scope="module")
def figures(tmp_path_factory, run, drawn):
    folder = tmp_path_factory.mktemp("figures")
    return folder, write_figures(drawn, folder)


def test_every_figure_is_there_as_pdf_and_svg(figures):
    folder, written = figures
    names = ["map", "gallery-class-000", "gallery-group-000", "confidence", "similarity", "transport", "losses"]
    expected = [f"{name}.{ending}" for name in [*names, "class-mass", "detection"] for ending in ("pdf", "svg")]
    assert [path.name for path in written] == expected
    assert sorted(path.name for path in folder.iterdir()) == sorted(expected)


def test_text_stays_text(figures):
    folder, _ = figures
    for name in ("map", "losses", "similarity"):
        assert "<text" in (folder / f"{name}.svg").read_text(encoding="utf-8")
        pdf = (folder / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf  # a TrueType font, embedded
        assert b"/Type3" not in pdf


def test_names_are_drawn_as_they_are_written(figures):
    svg = (figures[0] / "similarity.svg").read_text(encoding="utf-8")
    written = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"$x_1^$", "&lt;b&gt;&amp;amp;", "猫 犬"} <= set(written)


def test_galleries_hold_the_pictures(figures):
    svg = (figures[0] / "gallery-class-000.svg").read_text(encoding="utf-8")
    assert "data:image/png;base64" in svg
    assert "$x_1^$: 3 pictures, mean confidence" in svg


@pytest.mark.slow
def test_the_same_run_has_the_same_figures_to_the_last_byte(tmp_path, figures, run, drawn):
    _, written = figures
    write_figures(drawn, tmp_path)
    for path in written:
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_file_where_the_folder_should_be_is_refused(tmp_path, run, drawn):
    (tmp_path / "figures").write_text("")
    with pytest.raises(RunFolderError, match="is a file. Give a folder for the figures"):
        write_figures(drawn, tmp_path / "figures")
