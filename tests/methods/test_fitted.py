"""The state that a method fits: part of the state_dict, checked when loaded, read from runs of earlier versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import uniot
from uniot.datasets.digits import make_toy_domains
from uniot.errors import DataError, RunFolderError
from uniot.io.tensor_files import read_tensors
from uniot.methods.fitted import upgraded_tensors
from uniot.runs.loading import load_model

# Written by a version whose runs had the format uniot-3.
OLD = Path(__file__).parent.parent / "runs" / "old" / "toy" / "uniot"
TOY = make_toy_domains(3, 1, 2, samples_per_class=10, dimensions=8, seed=1)


def test_run_of_format_3_gives_the_answers_that_it_stored():
    model = uniot.load(OLD)
    stored = model.model_.target
    assert np.array_equal(model.predict(TOY.x_target), model.labels_)
    # Another processor adds in another order, and the features are in single precision.
    np.testing.assert_allclose(model.predict_proba(TOY.x_target).max(axis=1), stored.confidence, rtol=0, atol=1e-5)


def test_run_of_format_3_is_saved_in_the_present_one(tmp_path):
    model = uniot.load(OLD)
    model.save(tmp_path / "run")
    tensors, about = read_tensors(tmp_path / "run" / "model.safetensors")
    assert "rule" not in about
    assert not any(name.startswith("rule.") for name in tensors)
    again = uniot.load(tmp_path / "run")
    assert np.array_equal(again.predict_proba(TOY.x_target), model.predict_proba(TOY.x_target))


def test_numbers_of_an_old_rule_must_be_numbers():
    with pytest.raises(DataError, match="has 'many' for n_rows; expected a number"):
        upgraded_tensors({}, {"n_rows": "many"})


@pytest.fixture
def unincm(tmp_path):
    """The folder of a run of UniNCM."""
    uniot.UniNCM(random_state=0).fit(TOY.x_source, TOY.y_source, TOY.x_target).save(tmp_path / "unincm")
    return tmp_path / "unincm"


@pytest.mark.parametrize("method", ["uniot", "unincm"])
def test_state_dict_alone_restores_the_rule(method, unincm):
    folder = OLD if method == "uniot" else unincm
    fitted, other = load_model(folder).method, load_model(folder).method
    state = {name: value.clone() for name, value in fitted.state_dict().items()}
    inputs = torch.from_numpy(TOY.x_target).float()
    before = fitted.decide(fitted.transform(fitted.features(inputs))).odds
    place = "solved." if method == "uniot" else "fitted."
    other.load_state_dict({name: value for name, value in state.items() if not name.startswith(place)})
    assert not other.is_finalized()
    other.load_state_dict(state)
    assert other.is_finalized()
    assert torch.equal(
        other.decide(other.transform(other.features(torch.from_numpy(TOY.x_target).float()))).odds, before
    )


def test_damaged_state_is_refused(unincm):
    method = load_model(unincm).method
    state = dict(method.state_dict())
    state["fitted.metric.from_target"] = ~state["fitted.metric.from_target"]
    with pytest.raises(RunFolderError, match="does not have one rejection rule per class"):
        method.load_state_dict(state)
