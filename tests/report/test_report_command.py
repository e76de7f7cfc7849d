from __future__ import annotations

from pathlib import Path

import pytest

from uniot.report import write_report
from uniot.runs import Run


@pytest.fixture(scope="module")
def run(made_model, made_run) -> Path:
    model = made_model(found=(5, 0, 0), groups=(3,))
    return made_run(model).folder


def test_the_report_goes_into_the_run_folder(uniot, run):
    code, out, _ = uniot("report", run)
    assert code == 0
    assert "Of 8 samples, 5 are labelled with 1 of your 3 classes; the other 3 look like one new kind." in out
    assert f"{run / 'report.html'} is written, " in out
    assert out.strip().endswith(f"MB. Next: uniot open {run}")
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_report_may_go_elsewhere_with_figures_and_leaves_the_run_alone(uniot, run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    code, out, _ = uniot("report", run, "--out", tmp_path / "new" / "page.html", "--figures", tmp_path / "figures")
    assert code == 0
    assert (tmp_path / "new" / "page.html").is_file()
    assert f"8 figures are written to {tmp_path / 'figures'}, each as PDF and SVG." in out
    assert len(list((tmp_path / "figures").iterdir())) == 16
    gallery = (tmp_path / "figures" / "gallery-group-000.svg").read_text(encoding="utf-8")
    assert gallery.count(">shelf/") == 3  # names, where there are no pictures
    assert before == {path: path.stat().st_mtime_ns for path in run.iterdir()}


def test_the_same_run_has_the_same_report_to_the_last_byte(run, tmp_path):
    first, second = (write_report(Run.open(run), tmp_path / name).page.read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_a_folder_that_is_no_run_is_one_sentence(uniot, tmp_path):
    code, _, err = uniot("report", tmp_path / "nothing")
    assert code == 1
    assert "nothing is not a folder. Give the folder of a run made with `uniot adapt`." in err
    assert "Traceback" not in err


def test_help_has_an_example(uniot):
    code, out, _ = uniot("report", "--help")
    assert code == 0
    assert "uniot report run/ --figures figures/" in " ".join(out.split())
