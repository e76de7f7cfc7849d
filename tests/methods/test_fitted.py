"""The state that a method fits: part of the state_dict, and checked when loaded."""

from __future__ import annotations

import pytest
import torch

import uniot
from uniot.datasets import make_toy_domains
from uniot.errors import RunFolderError
from uniot.runs.loading import load_model

TOY = make_toy_domains(3, 1, 2, samples_per_class=10, dimensions=8, seed=1)


@pytest.fixture
def uniot_run(tmp_path):
    """The folder of a run of UniOT."""
    model = uniot.UniOT(random_state=0, steps=4, batch_size=8, hidden_size=8, feature_size=8, queue_size=16)
    model.fit(TOY.x_source, TOY.y_source, TOY.x_target).save(tmp_path / "uniot")
    return tmp_path / "uniot"


@pytest.fixture
def unincm(tmp_path):
    """The folder of a run of UniNCM."""
    uniot.UniNCM(random_state=0).fit(TOY.x_source, TOY.y_source, TOY.x_target).save(tmp_path / "unincm")
    return tmp_path / "unincm"


@pytest.mark.parametrize("method", ["uniot", "unincm"])
def test_state_dict_alone_restores_the_rule(method, request):
    folder = request.getfixturevalue("uniot_run" if method == "uniot" else method)
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
