"""Going on from another run: its weights and prototypes are there from the start, and new classes have a place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier, UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import SettingsError
from uniot.training.fit import build_method, warm_start
from uniot.training.samples import TensorSamples

FAST = {"steps": 30, "hidden_size": 16, "feature_size": 8, "batch_size": 16, "n_clusters": 6, "detection_start": 5}
PAPER = {"method": "uniot", **FAST}


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(seed=0)


@pytest.fixture(scope="module")
def fitted(toy):
    return UniDAClassifier(random_state=0, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target)


def test_weights_and_prototypes_of_old_classes_are_carried_over(toy, fitted):
    model = fitted.model_
    labels = np.concatenate([toy.y_source.astype(str), np.full(20, "new")])
    inputs = fitted._inputs(np.concatenate([toy.x_source, toy.x_target[:20]]))
    classes, index = np.unique(labels, return_inverse=True)
    method = build_method(inputs.shape[1:], len(classes), model.settings)
    warm_start(method, model, classes, TensorSamples(inputs), torch.from_numpy(index))
    old, new = model.method.state_dict(), method.state_dict()
    assert all(torch.equal(old[name], new[name]) for name in old if name.startswith(("projection", "clusters")))
    for place, name in enumerate(model.classes.tolist()):
        assert torch.equal(
            new["loss.classes.weight"][classes.tolist().index(str(name))], old["loss.classes.weight"][place]
        )
    mean = model.features(inputs[-20:]).mean(axis=0)
    at_new = new["loss.classes.weight"][classes.tolist().index("new")].numpy()
    np.testing.assert_allclose(at_new, mean / np.linalg.norm(mean), atol=1e-5)
    assert float(new["loss.common.class_mass"].sum()) == pytest.approx(1)
    assert not method.is_prepared()


def test_going_on_begins_with_a_lower_loss_than_beginning_anew(toy, fitted):
    anew = UniDAClassifier(random_state=1, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target)
    on = UniDAClassifier(random_state=1, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target, start=fitted)
    assert on.history_["loss_source"][0] < 0.7 * anew.history_["loss_source"][0]
    assert on.model_.fingerprint != anew.model_.fingerprint


def test_the_universal_variant_carries_over_the_network_that_it_trained():
    random = np.random.default_rng(0)
    images = random.random((40, 12, 12)).astype(np.float32) / 2
    images[::2, 4:9] += 0.5
    settings = {"network": "small-cnn", "random_state": 1, **FAST}
    first = UniDAClassifier(**settings).fit(images, np.arange(40) % 2, images)
    anew = UniDAClassifier(**settings).fit(images, np.arange(40) % 2, images)
    on = UniDAClassifier(**settings).fit(images, np.arange(40) % 2, images, start=first)
    assert on.settings_.method == "unincm"
    assert on.history_["loss_source"][0] < 0.7 * anew.history_["loss_source"][0]


def test_where_nothing_is_trained_going_on_is_beginning_anew(toy, fitted):
    data = toy.x_source, toy.y_source, toy.x_target
    anew = UniNCM(random_state=0).fit(*data)
    for start in (anew, fitted):
        on = UniNCM(random_state=0).fit(*data, start=start)
        np.testing.assert_array_equal(on.predict_proba(toy.x_target), anew.predict_proba(toy.x_target))


def test_weights_of_another_method_are_not_gone_on_from(toy, fitted):
    data = toy.x_source, toy.y_source, toy.x_target
    with pytest.raises(SettingsError, match="continue from weights that UniOT trained, and this run is of unincm"):
        UniDAClassifier(**PAPER).fit(*data, start=UniNCM().fit(*data))
    with pytest.raises(SettingsError, match="source-only cannot continue from the weights of another run"):
        UniDAClassifier("source-only", steps=5).fit(*data, start=fitted)
