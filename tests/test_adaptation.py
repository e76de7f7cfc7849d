"""Going on from another run: its weights and prototypes are there from the start, and new classes have a place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot import UniOT
from uniot.data.samples import TensorSamples
from uniot.data.toy import make_toy_domains
from uniot.method_building import build_method, carry_over

FAST = {"steps": 30, "hidden_size": 16, "feature_size": 8, "batch_size": 16, "n_clusters": 6, "detection_start": 5}


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(seed=0)


@pytest.fixture(scope="module")
def fitted(toy):
    return UniOT(random_state=0, **FAST).fit(toy.x_source, toy.y_source, toy.x_target)


def test_weights_and_prototypes_of_old_classes_are_carried_over(toy, fitted):
    model = fitted.model_
    labels = np.concatenate([toy.y_source.astype(str), np.full(20, "new")])
    inputs = fitted._inputs(np.concatenate([toy.x_source, toy.x_target[:20]]))
    classes, index = np.unique(labels, return_inverse=True)
    method = build_method(inputs.shape[1:], len(classes), model.settings)
    carry_over(method, model, classes, TensorSamples(inputs), torch.from_numpy(index))
    old, new = model.method.state_dict(), method.state_dict()
    assert all(torch.equal(old[name], new[name]) for name in old if name.startswith(("projection", "clusters")))
    for place, name in enumerate(model.classes.tolist()):
        assert torch.equal(new["classes.weight"][classes.tolist().index(str(name))], old["classes.weight"][place])
    mean = model.features(inputs[-20:]).mean(axis=0)
    at_new = new["classes.weight"][classes.tolist().index("new")].numpy()
    np.testing.assert_allclose(at_new, mean / np.linalg.norm(mean), atol=1e-5)
    assert float(new["class_mass"].sum()) == pytest.approx(1)
    assert not method.is_prepared()


def test_going_on_begins_with_a_lower_loss_than_beginning_anew(toy, fitted):
    anew = UniOT(random_state=1, **FAST).fit(toy.x_source, toy.y_source, toy.x_target)
    on = UniOT(random_state=1, **FAST).fit(toy.x_source, toy.y_source, toy.x_target, start=fitted)
    assert on.history_["loss_source"][0] < 0.7 * anew.history_["loss_source"][0]
    assert on.model_.fingerprint != anew.model_.fingerprint
