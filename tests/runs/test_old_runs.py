"""Run folders of earlier versions: they open, predict the same labels and are reported, or say what to do.

The folders in `old/` were written by earlier versions with `uniot adapt source.npz target.npz`, where the target has
the classes cup, fork and spoon and the source cup, fork and knife. `new.csv` has the predictions of that version for
new.npz.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from uniot import Run
from uniot.errors import RunFolderError
from uniot.io.embedding_files import read_embeddings
from uniot.io.predictions import read_predictions
from uniot.training.domains import inputs_of

OLD = Path(__file__).parent / "old"
METHODS = {"uniot-3-uniot": "uniot", "uniot-2-uniot": "uniot"}
LOST = ("uniot-2-universal", "uniot-3-universal")


@pytest.fixture(params=METHODS)
def folder(request, tmp_path):
    """A copy, so that nothing is written into the fixture."""
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def test_old_run_has_the_present_name_of_its_method(folder):
    run = Run.open(folder)
    assert run.settings.method == run.model.settings.method == METHODS[folder.name]
    assert run.inputs == {"source": "/data/source.npz", "target": "/data/target.npz"}
    assert run.image_settings is None


def test_old_run_predicts_the_same_labels_and_groups(folder):
    run, before = Run.open(folder), read_predictions(folder / "new.csv")
    prediction = run.model.predict(inputs_of(read_embeddings(OLD / "new.npz").x, run.model))
    assert run.model.labels(prediction).tolist() == before.labels.tolist()
    assert prediction.group.tolist() == before.groups.tolist()
    assert run.model.classes[prediction.nearest].tolist() == before.nearest_classes.tolist()
    # In the former format the confidence was the score of being known.
    score = prediction.known_score if folder.name == "uniot-2-uniot" else prediction.confidence
    assert score == pytest.approx(before.confidence, abs=1e-5)


def test_old_run_has_its_predictions_for_the_target(folder):
    run = Run.open(folder)
    assert run.model.labels(run.model.target).tolist() == run.predictions.labels.tolist()
    assert run.model.target.group.tolist() == run.predictions.groups.tolist()
    confidence = run.model.target.confidence
    assert confidence.min() > 0
    assert confidence.max() <= 1


def test_confidence_of_the_former_format_becomes_a_probability(tmp_path):
    """Both formats were written from the same data with the same seed, so the runs are the same."""
    former, present = Run.open(OLD / "uniot-2-uniot").model, Run.open(OLD / "uniot-3-uniot").model
    assert former.target.known_score == pytest.approx(present.target.known_score, abs=1e-5)
    assert former.target_odds == pytest.approx(present.target_odds, rel=1e-5)
    # From features in half precision.
    assert former.target_class_probability == pytest.approx(present.target_class_probability, abs=5e-3)
    preferring = former.with_preference(private_prior=0.5).target
    assert preferring.known.mean() == pytest.approx(0.5, abs=0.05)


def test_old_run_is_evaluated_and_reported(folder):
    run = Run.open(folder)
    scores = run.evaluate(OLD / "target.npz")
    assert scores.h_score == pytest.approx(run.metrics["h_score"])
    pytest.importorskip("jinja2")
    page = run.report(folder / "page.html").read_text(encoding="utf-8")
    assert folder.name in page


def test_old_settings_can_be_used_for_a_new_run(folder):
    from uniot.io.text import read_settings

    assert read_settings(folder / "settings.toml")[0].method == METHODS[folder.name]


@pytest.mark.parametrize("lost", LOST)
def test_run_whose_rule_is_gone_still_has_its_predictions_and_settings(lost):
    run = Run.open(OLD / lost)
    assert len(run.predictions) == 24
    assert set(run.predictions.labels) <= {"cup", "fork", "knife", "unknown"}
    assert run.settings.method == "unincm"
    assert run.settings.seed == 0
    words = (
        r"a rule of unincm that no longer exists.*uniot adapt labelled/ unlabelled/ --settings .*settings.toml --out"
    )
    with pytest.raises(RunFolderError, match=words):
        _ = run.model
    with pytest.raises(RunFolderError, match=words):
        run.evaluate(np.repeat("cup", 24))


@pytest.mark.parametrize("lost", LOST)
def test_command_on_a_run_whose_rule_is_gone_says_what_to_do(uniot, tmp_path, lost):
    answer = uniot("predict", OLD / lost, OLD / "new.npz", "--out", tmp_path / "new.csv")
    assert answer.code == 1
    assert "that no longer exists" in " ".join(answer.stderr.split())


def test_format_that_does_not_match_the_content_is_refused(tmp_path):
    folder = Path(shutil.copytree(OLD / "uniot-3-uniot", tmp_path / "run"))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"uniot-3"', b'"uniot-2"'))
    with pytest.raises(RunFolderError, match="has a format that does not match its content"):
        Run.open(folder)
