from __future__ import annotations

import json
import shutil

import pytest

from uniot.errors import RunFolderError
from uniot.report.run import FinishedRun
from uniot.runs import Run


def test_a_saved_run_is_read_back_with_names_pictures_and_scores(tmp_path, made_run, saved_run, metrics_of_run):
    run = made_run(pictures=True)
    folder = saved_run(tmp_path / "run", run)
    (folder / "metrics.json").write_text(json.dumps(metrics_of_run))
    read = FinishedRun.of(Run.open(folder))
    assert read.names == run.names
    assert read.title == "run"
    assert read.metrics == metrics_of_run
    assert read.pictures.count("target") == len(run.names)
    assert [category.key for category in read.categories] == [category.key for category in run.categories]


def test_a_run_without_its_target_says_where_to_make_the_report(
    tmp_path, made_model, made_run, saved_run, without_target
):
    folder = saved_run(tmp_path, made_run(without_target(made_model())))
    with pytest.raises(
        RunFolderError,
        match="without its target, so there is nothing to report. Use the folder that",
    ):
        FinishedRun.of(Run.open(folder))


def test_files_of_two_runs_are_refused(tmp_path, made_model, made_run, saved_run):
    folder = saved_run(tmp_path / "run", made_run())
    other = saved_run(tmp_path / "other", made_run(made_model(found=(3, 0, 0)), pictures=True))
    shutil.copy(other / "pictures.safetensors", folder)
    with pytest.raises(RunFolderError, match="the model has 25 target samples, the pictures 14"):
        FinishedRun.of(Run.open(folder))
    shutil.copy(other / "predictions.csv", folder)
    with pytest.raises(RunFolderError, match=r"the model has 25 target samples, predictions.csv 14. Make"):
        FinishedRun.of(Run.open(folder))


@pytest.mark.parametrize(("text", "words"), [("{", "cannot be read"), ("[1]", r"cannot be read \(not a JSON object")])
def test_damaged_scores_are_an_error_that_says_what_to_do(tmp_path, made_run, saved_run, text, words):
    folder = saved_run(tmp_path, made_run())
    (folder / "metrics.json").write_text(text)
    with pytest.raises(RunFolderError, match=f"metrics.json {words}.*Remove it, or run `uniot evaluate` again"):
        FinishedRun.of(Run.open(folder))


def test_the_labelled_sample_shown_for_a_class_is_the_one_nearest_to_its_prototype(made_run):
    run = made_run()
    source, prototypes = run.model.source, run.model.method.classes.weight.detach().numpy()
    for index in range(3):
        own = source.classes == index
        nearness = source.features[own] @ prototypes[index]
        assert run.nearest_source_rows[index] == source.rows[own][nearness.argmax()]


def test_a_sample_is_called_by_what_it_is(made_run):
    assert made_run().noun(2) == "samples"
    assert made_run(pictures=True).noun(1) == "picture"
