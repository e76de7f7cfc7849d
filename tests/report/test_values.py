from __future__ import annotations

import shutil

import pytest

from uniot.errors import RunFolderError
from uniot.report.categories import Categories
from uniot.report.page import render
from uniot.report.summary import summarise
from uniot.report.values import ReportValues
from uniot.runs import Run


def test_a_saved_run_is_read_back_with_names_pictures_and_scores(tmp_path, made_model, made_run, metrics_of_run):
    model = made_model()
    run = ReportValues.of(made_run(model, tmp_path / "run", pictures=True, metrics=metrics_of_run)).run
    assert run.predictions.names == [f"shelf/{row:03d}.jpg" for row in range(25)]
    assert run.files.title == "run"
    assert run.metrics == metrics_of_run
    assert run.pictures.count("target") == 25
    keys = [category.key for category in Categories.of(model).found]
    assert [category.key for category in Categories.of(run.model).found] == keys


def test_a_run_without_its_target_says_where_to_make_the_report(made_model, made_run, without_target):
    run = made_run(without_target(made_model()))
    with pytest.raises(
        RunFolderError,
        match="without its target, so there is nothing to report. Use the folder that",
    ):
        ReportValues.of(run)


def test_files_of_two_runs_are_refused(made_model, made_run):
    folder = made_run().folder
    other = made_run(made_model(found=(3, 0, 0)), pictures=True).folder
    shutil.copy(other / "pictures.safetensors", folder)
    with pytest.raises(RunFolderError, match="the model has 25 target samples, the pictures 14"):
        render(ReportValues.of(Run.open(folder)))
    (folder / "pictures.safetensors").unlink()
    shutil.copy(other / "predictions.csv", folder)
    with pytest.raises(RunFolderError, match=r"the model has 25 target samples, predictions.csv 14. Make"):
        render(ReportValues.of(Run.open(folder)))


@pytest.mark.parametrize(("text", "words"), [("{", "cannot be read"), ("[1]", r"cannot be read \(not a JSON object")])
def test_damaged_scores_are_an_error_that_says_what_to_do(made_run, text, words):
    folder = made_run().folder
    (folder / "metrics.json").write_text(text)
    with pytest.raises(RunFolderError, match=f"metrics.json {words}.*Remove it, or run `uniot evaluate` again"):
        render(ReportValues.of(Run.open(folder)))


def test_the_labelled_sample_shown_for_a_class_is_the_one_nearest_to_its_prototype(made_model):
    model = made_model()
    source, prototypes = model.source, model.method.loss.classes.weight.detach().numpy()
    for index in range(3):
        own = source.classes == index
        nearness = source.features[own] @ prototypes[index]
        assert source.nearest_rows(model.class_centres)[index] == source.rows[own][nearness.argmax()]


def test_a_sample_is_called_by_what_it_is(made_model):
    model = made_model()
    assert summarise(model, Categories.of(model)).noun == "sample"
    assert summarise(model, Categories.of(model), has_pictures=True).noun == "picture"
