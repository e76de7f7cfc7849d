"""Targets larger than memory: fitted on a sample, decided in blocks."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import uniot.training.large_targets as large_targets
from uniot import UniDAClassifier, UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, RunFolderError
from uniot.io.tensor_files import read_tensors, write_tensors
from uniot.labelling.samples import TargetSamples
from uniot.methods.unincm.method import UniNCMMethod
from uniot.runs import Run
from uniot.runs.loading import load_model
from uniot.runs.saving import save_model
from uniot.training.samples import ScaledRows


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(4, 2, 3, samples_per_class=100, dimensions=32, spread=0.8)


@pytest.fixture
def sampled(monkeypatch):
    """Fits to 200 rows of a target at most."""
    monkeypatch.setattr(UniNCMMethod, "most_fitted_rows", 200)


@pytest.fixture
def features_of_the_sample_alone(monkeypatch):
    monkeypatch.setattr(large_targets, "MOST_FEATURE_VALUES", 1000)


def fitted(toy, target=None, **parameters):
    target = toy.x_target if target is None else target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return UniNCM(random_state=0, **parameters).fit(toy.x_source, toy.y_source, target)


def test_the_whole_target_is_predicted_as_the_model_predicts_it(toy, sampled):
    model = fitted(toy).model_
    assert len(model.target) == len(toy.x_target) > 200
    assert model.feature_rows is None
    assert len(model.target_features) == len(toy.x_target)
    again = fitted(toy).predict_full(toy.x_target)
    for name in ("nearest", "known", "known_score", "confidence", "group", "group_confidence"):
        assert np.array_equal(getattr(model.target, name), getattr(again, name)), name
    assert model.method.stored_target().n_samples == 200
    assert 0 < (~model.target.known).sum() < len(model.target)
    assert np.array_equal(model.groups.group, model.target.group[~model.target.known])
    # Rare classes may be lost, and the user is told.
    assert any("fitted to 200 of the" in words for words in model.reliability.warnings)


def test_a_target_that_is_not_stored_is_labelled_as_one_that_is(toy, sampled):
    stored, forgotten = fitted(toy), fitted(toy, store_target=False)
    assert forgotten.model_.method.stored_target().n_samples == 0
    assert np.array_equal(stored.labels_, forgotten.labels_)


def test_a_sample_leads_to_nearly_the_same_labels(toy, monkeypatch):
    whole = fitted(toy).labels_
    monkeypatch.setattr(UniNCMMethod, "most_fitted_rows", len(toy.x_target) // 2)
    assert (fitted(toy).labels_ == whole).mean() > 0.9


@pytest.mark.parametrize("settings", [{"method": "uniot", "steps": 20}, {"method": "calibrated"}])
def test_a_rule_that_needs_the_whole_target_gets_it(toy, monkeypatch, settings):
    def fit():
        return UniDAClassifier(**settings, random_state=0).fit(toy.x_source, toy.y_source, toy.x_target).model_

    whole = fit()
    monkeypatch.setattr(large_targets, "MOST_FEATURE_VALUES", 1000)
    monkeypatch.setattr(large_targets, "_MOST_DRAWN", 150)
    part = fit()
    assert len(part.feature_rows) == len(part.target_features) == 150
    assert np.allclose(part.target_odds, whole.target_odds, rtol=1e-12)
    assert np.array_equal(part.target.nearest, whole.target.nearest)
    assert np.array_equal(part.target.known, whole.target.known)
    assert np.array_equal(part.target_features, whole.target_features[part.feature_rows])
    assert ((part.target.group >= 0) == ~part.target.known).all()
    assert not any("fitted to" in words for words in part.reliability.warnings), "it was fitted to all"


def test_no_warning_about_a_part_if_unincm_was_fitted_to_all_rows_of_a_wide_target(toy, monkeypatch):
    monkeypatch.setattr(large_targets, "MOST_FEATURE_VALUES", 1000)
    model = fitted(toy).model_
    assert len(model.feature_rows) == len(toy.x_target)
    assert not any("fitted to" in words for words in model.reliability.warnings)


def test_class_that_only_samples_outside_of_the_drawn_part_are_of_is_not_absent(toy, monkeypatch):
    monkeypatch.setattr(large_targets, "MOST_FEATURE_VALUES", 1000)
    monkeypatch.setattr(large_targets, "_MOST_DRAWN", 150)

    def fit(target):
        return UniDAClassifier("calibrated", random_state=0).fit(toy.x_source, toy.y_source, target).model_

    drawn = fit(toy.x_target).feature_rows
    rare = str(next(name for name in toy.oracle_y_target if name in toy.y_source))
    is_rare = toy.oracle_y_target == rare
    place = np.concatenate([np.setdiff1d(np.arange(len(is_rare)), drawn), drawn])
    target = np.empty_like(toy.x_target)
    target[place] = np.concatenate([toy.x_target[is_rare], toy.x_target[~is_rare]])
    model = fit(target)
    assert np.array_equal(model.feature_rows, drawn)
    assert rare not in model.absent_classes
    part = model.target.rows(drawn)
    assert rare not in model.classes[part.nearest[part.known]], "by the part alone it would be"


def test_a_mapped_target_is_fitted_as_one_in_memory(toy, sampled, tmp_path):
    np.save(tmp_path / "target.npy", toy.x_target)
    mapped = fitted(toy, np.load(tmp_path / "target.npy", mmap_mode="r"))
    assert mapped.model_.fingerprint == fitted(toy).model_.fingerprint
    assert (mapped.labels_ == fitted(toy).labels_).all()


@pytest.mark.parametrize("preference", [{"private_prior": 0.3}, {"prefer": "known"}])
def test_a_preference_is_measured_on_the_whole_target(toy, sampled, features_of_the_sample_alone, preference):
    asked = fitted(toy, **preference).model_
    later = fitted(toy).model_.with_preference(**preference)
    assert np.array_equal(asked.target.known, later.target.known)
    assert np.array_equal(asked.target.confidence, later.target.confidence)
    if "private_prior" in preference:
        assert abs(float((~asked.target.known).mean()) - 0.3) < 0.01
    # Rows that become unknown join the nearest group, although their features are not kept.
    assert ((later.target.group >= 0) == ~later.target.known).all()


def test_a_run_with_the_features_of_a_sample_is_saved_and_read(toy, sampled, features_of_the_sample_alone, tmp_path):
    model = fitted(toy).model_
    assert len(model.target_features) == 200
    assert (np.diff(model.feature_rows) > 0).all()
    save_model(model, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    for name in ("known", "group", "confidence"):
        assert np.array_equal(getattr(run.model.target, name), getattr(model.target, name))
    assert np.array_equal(run.model.nearest_groups.group, model.nearest_groups.group)
    wanted = model.with_preference(prefer="unknown").target
    assert np.array_equal(Run.open(tmp_path / "run", prefer="unknown").model.target.group, wanted.group)
    assert run.evaluate(toy.oracle_y_target).h_score > 0.5
    with pytest.raises(DataError, match="features of 200 of them.*Adapt to fewer samples"):
        TargetSamples.of_run(run)
    with pytest.raises(DataError, match="no map of it to show"):
        run.report()


def test_rows_out_of_order_are_damage(toy, sampled, features_of_the_sample_alone, tmp_path):
    save_model(fitted(toy).model_, tmp_path / "run")
    path = tmp_path / "run" / "features.safetensors"
    tensors, about = read_tensors(path)
    for wrong in (tensors["target.rows"].flip(0), tensors["target.rows"] + 10**6):
        write_tensors(path, {**tensors, "target.rows": wrong}, about)
        with pytest.raises(RunFolderError):
            load_model(tmp_path / "run")


def test_a_small_target_is_used_as_a_whole(toy):
    method = fitted(toy).model_.method
    for n_rows, part in ((50_000, None), (50_001, 50_000)):
        found = large_targets.PartOfTarget.of(method, ScaledRows(np.ones((n_rows, 1)), 1.0), seed=0)
        assert (found and len(found.rows)) == part
    assert bool((torch.diff(found.rows) > 0).all())


def test_the_seed_decides_which_samples_stand_for_a_large_target():
    method, target = SimpleNamespace(most_fitted_rows=200), ScaledRows(np.ones((300, 1)), 1.0)
    one, same, other = (large_targets.PartOfTarget.of(method, target, seed).rows.tolist() for seed in (0, 0, 1))
    assert one == same != other
