"""A person's answers: asked for by any method, followed by everything it returns, never overruled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import uniot
from uniot import UniDAClassifier, UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import DataError
from uniot.export.hub import without_data
from uniot.export.onnx import export_onnx
from uniot.methods.registry import hyperparameters

SMALL = {"steps": 40, "hidden_size": 64, "feature_size": 32, "detection_start": 20, "queue_size": 400}


@pytest.fixture(scope="module")
def toy():
    """Classes that overlap, so that no method is right about all of them."""
    clean = make_toy_domains(3, 2, 2, seed=1)
    rng = np.random.default_rng(0)
    noise = 0.8 * clean.x_target.std() * rng.normal(size=clean.x_target.shape)
    return replace(clean, x_target=clean.x_target + noise)


def truth(toy, model) -> np.ndarray:
    return np.where(np.isin(toy.oracle_y_target, model.classes_), toy.oracle_y_target, "unknown")


def fitted(toy, method: str = "unincm") -> UniDAClassifier:
    acting = {name: value for name, value in SMALL.items() if name in hyperparameters(method)}
    return UniDAClassifier(method, random_state=0, **acting).fit(toy.x_source, toy.y_source, toy.x_target)


@pytest.mark.parametrize("method", ["unincm", "uniot", "dance", "ovanet", "source-only"])
def test_every_method_can_be_asked_and_told(toy, method):
    model = fitted(toy, method)
    right, before = truth(toy, model), (model.labels_ == truth(toy, model)).mean()
    for _ in range(10):
        row = model.ask()
        model.tell(row, right[row])
    told = model.model_.answers.rows
    assert len(np.unique(told)) == 10
    assert (model.labels_[told] == right[told]).all()
    assert (model.labels_ == right).mean() >= before
    low, high = model.private_share_interval_
    assert 0 <= low <= high <= 1
    assert set(model.absent_classes_) == set(model.classes_) - set(model.labels_)


@pytest.fixture(scope="module")
def swapped():
    """Two common classes that lie where the source has the other one: the method takes one for the other."""
    clean = make_toy_domains(3, 2, 2, seed=1)
    rows = {name: clean.y_source == name for name in ("common-0", "common-1")}
    y_source = clean.y_source.copy()
    y_source[rows["common-0"]], y_source[rows["common-1"]] = "common-1", "common-0"
    return replace(clean, y_source=y_source)


@pytest.mark.parametrize("method", ["unincm", "uniot"])
def test_named_samples_move_the_classes_around_them(swapped, method, tmp_path):
    model = fitted(swapped, method)
    right = truth(swapped, model)
    exchanged = np.isin(right, ["common-0", "common-1"])
    assert (model.labels_ == right)[exchanged].mean() < 0.1
    for name in ("common-0", "common-1", "common-2"):
        rows = np.flatnonzero(right == name)[:4]
        model.tell(rows, right[rows])
    untold = np.setdiff1d(np.arange(len(right)), model.model_.answers.rows)
    assert (model.labels_ == right)[exchanged].mean() > 0.9
    assert (model.predict(swapped.x_target) == model.labels_)[untold].all()
    largest = model.predict_proba(swapped.x_target).argmax(axis=1)
    assert (np.append(model.classes_, "unknown")[largest] == model.predict(swapped.x_target)).all()
    model.save(tmp_path / "run")
    again = uniot.load(tmp_path / "run")
    assert (again.labels_ == model.labels_).all()
    assert (again.predict(swapped.x_target) == model.predict(swapped.x_target)).all()
    row = int(again.ask()[0])
    assert (again.tell(row, right[row]).labels_ == model.tell(row, right[row]).labels_).all()


def test_predictions_follow_the_answers(toy):
    model = fitted(toy)
    right = truth(toy, model)
    model.tell(range(0, 60, 3), right[:60:3])
    untold = np.setdiff1d(np.arange(len(right)), model.model_.answers.rows)
    assert (model.predict(toy.x_target) == model.labels_)[untold].all()
    proba = model.predict_proba(toy.x_target)
    names = np.append(model.classes_, "unknown")
    assert (names[proba.argmax(axis=1)] == model.predict(toy.x_target)).all()


def test_told_labels_hold_against_every_preference(toy):
    model = fitted(toy)
    right = truth(toy, model)
    model.tell(range(40), right[:40])
    for preference in ({"private_prior": 0.0}, {"private_prior": 1.0}, {"prefer": "unknown"}):
        moved = model.model_.with_preference(**preference)
        assert (moved.labels(moved.target)[:40] == right[:40]).all()


def test_answers_are_saved_and_loaded(toy, tmp_path):
    model = fitted(toy)
    right = truth(toy, model)
    model.tell([4, 90, 20], [right[4], right[90], None])
    model.save(tmp_path / "run")
    again = uniot.load(tmp_path / "run")
    assert again.model_.answers.rows.tolist() == [4, 90, 20]
    assert (again.labels_ == model.labels_).all()
    assert again.ask(5).tolist() == model.ask(5).tolist()
    assert (again.predict(toy.x_target) == model.predict(toy.x_target)).all()


def test_shared_run_keeps_the_line_and_no_answer(toy):
    model = fitted(toy)
    model.tell(range(0, 60, 3), truth(toy, model)[:60:3])
    shared = without_data(model.model_)
    assert len(shared.answers) == 0
    assert shared.posterior is not None
    with pytest.raises(DataError, match="shared without its target, so that there is nothing to ask about"):
        shared.ask()


def test_new_classes_are_counted_and_grouped_again_after_the_answers():
    toy = make_toy_domains(3, 2, 4, seed=1)
    model = fitted(toy)
    right = truth(toy, model)
    # A person calls one of the common classes none of theirs: one new class more.
    rows = np.flatnonzero(right == "common-0")
    before = model.n_private_classes_
    model.tell(rows, ["unknown"] * len(rows))
    for name in ("common-1", "common-2"):
        model.tell(np.flatnonzero(right == name)[:5], [name] * 5)
    assert model.n_private_classes_ == before + 1
    found, counts = np.unique(model.groups_[rows], return_counts=True)
    assert counts.max() > 0.9 * len(rows)
    others = np.setdiff1d(np.arange(len(right)), rows)
    assert (model.groups_[others] == found[counts.argmax()]).mean() < 0.05
    assert ((model.groups_ >= 0) == (model.labels_ == "unknown")).all()
    assert (model.predict_group(toy.x_target) >= 0).mean() == pytest.approx((model.groups_ >= 0).mean(), abs=0.05)


def test_answer_can_be_taken_back_by_another(toy):
    model = fitted(toy)
    before = model.labels_.copy()
    model.tell(7, "unknown")
    assert model.labels_[7] == "unknown"
    model.tell(7, None)
    assert (model.labels_ == before).all()


@pytest.mark.parametrize(
    ("indices", "answers", "words"),
    [
        (10**6, "unknown", "index 1000000 is not a row of the target"),
        ([0, 1], ["unknown"], "there are 1 answers for 2 indices"),
        ([0, 1], "unknown", "answers is the text 'unknown' for 2 indices"),
        ([0.5], ["unknown"], "indices are float64"),
        ([0], ["comon-0"], "Did you mean 'common-0'"),
    ],
)
def test_wrong_answers_are_refused_in_words_and_change_nothing(toy, indices, answers, words):
    model = fitted(toy)
    before = model.labels_.copy()
    with pytest.raises(DataError, match=words):
        model.tell(indices, answers)
    assert (model.labels_ == before).all()
    assert len(model.model_.answers) == 0


def test_more_questions_than_samples_are_all_samples():
    toy = make_toy_domains(2, 0, 1, samples_per_class=5, seed=0)
    model = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target)
    assert sorted(model.ask(100).tolist()) == list(range(len(toy.x_target)))
    with pytest.raises(DataError, match="Ask at least one question"):
        model.ask(0)


@pytest.mark.slow
def test_onnx_file_decides_by_the_answers(toy, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = fitted(toy)
    model.tell(range(0, 60, 3), truth(toy, model)[:60:3])
    path = tmp_path / "model.onnx"
    export_onnx(model.model_, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (known,) = session.run(["known"], {"embeddings": toy.x_target.astype(np.float32)})
    assert (known == (model.predict(toy.x_target) != "unknown")).all()
    assert (known != (fitted(toy).predict(toy.x_target) != "unknown")).any()


@pytest.mark.slow
def test_exported_graph_names_the_classes_that_the_answers_moved(swapped, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = fitted(swapped)
    right = truth(swapped, model)
    for name in ("common-0", "common-1"):
        rows = np.flatnonzero(right == name)[:4]
        model.tell(rows, right[rows])
    assert model.model_.posterior.class_shift is not None
    path = tmp_path / "model.onnx"
    export_onnx(model.model_, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (nearest,) = session.run(["nearest"], {"embeddings": swapped.x_target.astype(np.float32)})
    assert (nearest == model.predict_full(swapped.x_target).nearest).all()
