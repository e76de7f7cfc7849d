"""DANN, PADA, IWAN and RTN, which align the domains, from arrays to decisions on toy data."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from uniot import UniOT
from uniot.data.toy import make_toy_domains
from uniot.evaluation import h_score

# Each method has to be this good where answers at random have 0.09.
H_SCORES = {"dann": 0.8, "pada": 0.8, "iwan": 0.7, "rtn": 0.5}
TOY = make_toy_domains(n_common=6, n_source_private=4, n_target_private=4, samples_per_class=20)


def fit(method: str) -> UniOT:
    options = {} if method == "rtn" else {"discriminator_size": 64}
    model = UniOT(
        method=method,
        method_options=options,
        random_state=0,
        steps=100,
        learning_rate=0.01,
        feature_size=32,
        input_norm=10.0,
        n_private_classes=4,
    )
    return model.fit(TOY.x_source, TOY.y_source, TOY.x_target)


fitted = functools.cache(fit)


@pytest.mark.parametrize("method", H_SCORES)
def test_common_classes_are_named_and_private_ones_called_unknown(method):
    is_source_class = np.isin(TOY.oracle_y_target, TOY.y_source)
    truth = np.where(is_source_class, TOY.oracle_y_target, "unknown")
    assert h_score(truth, fitted(method).labels_) > H_SCORES[method]


@pytest.mark.parametrize("method", H_SCORES)
def test_two_runs_are_identical_whatever_else_draws_random_numbers(method):
    one = fitted(method)
    torch.rand(3)
    two = fit(method)
    assert one.model_.history.rows == two.model_.history.rows
    for name, value in one.model_.method.state_dict().items():
        assert torch.equal(value, two.model_.method.state_dict()[name]), name


@pytest.mark.parametrize("method", H_SCORES)
def test_saved_and_loaded_model_decides_the_same(method, tmp_path):
    model = fitted(method)
    model.save(tmp_path / "run")
    loaded = UniOT.load(tmp_path / "run")
    assert np.array_equal(loaded.predict(TOY.x_target), model.labels_)
    assert np.array_equal(loaded.predict_proba(TOY.x_source), model.predict_proba(TOY.x_source))


@pytest.mark.parametrize("method", H_SCORES)
def test_sample_is_judged_on_its_own(method):
    model = fitted(method)
    alone = [model.predict(row[None])[0] for row in TOY.x_target[::20]]
    assert alone == model.predict(TOY.x_target)[::20].tolist()


def test_only_the_method_that_weighs_classes_has_a_class_mass():
    mass = fitted("pada").class_mass_
    private = np.array([str(name).startswith("source-") for name in fitted("pada").classes_])
    assert float(mass.sum()) == pytest.approx(1, abs=1e-5)
    # Classes that the target lacks are predicted less.
    assert mass[private].mean() < 0.7 * mass[~private].mean()
    assert fitted("dann").class_mass_ is None
