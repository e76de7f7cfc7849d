"""A source model: trained where the source is, adapted where it is not, with nothing of a single sample in its file."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import uniot
from uniot import UniDAClassifier
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.io.tensor_files import read_tensors, write_tensors
from uniot.training.source_model import SourceModel

TOY = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, seed=1)
# Few steps are enough if a test does not ask for accuracy.
QUICK = {"steps": 20, "feature_size": 16, "n_private_classes": 2, "random_state": 0}
SMALL = {"steps": 200, "feature_size": 16, "n_private_classes": 2, "random_state": 0}


@pytest.fixture(scope="module")
def source_model() -> SourceModel:
    return UniDAClassifier("glc", **SMALL).fit_source(TOY.x_source, TOY.y_source)


def test_target_is_adapted_to_without_the_source(source_model, tmp_path):
    source_model.save(tmp_path / "source.safetensors")
    model = UniDAClassifier("glc", **SMALL).fit_target(TOY.x_target, tmp_path / "source.safetensors")
    is_common = np.isin(TOY.oracle_y_target, model.classes_)
    right = model.labels_ == np.where(is_common, TOY.oracle_y_target, "unknown")
    assert right[is_common].mean() > 0.8
    assert right[~is_common].mean() > 0.8
    # A run like any other.
    model.save(tmp_path / "run")
    assert np.array_equal(uniot.load(tmp_path / "run").predict(TOY.x_target), model.labels_)
    assert not any("fewer than 3 labelled" in words for words in model.reliability_.warnings)


def test_classifier_is_that_of_the_source_model(source_model):
    model = UniDAClassifier("glc", **SMALL).fit_target(TOY.x_target, source_model)
    adapted = model.model_.method.state_dict()
    assert all(torch.equal(adapted[name], source_model.weights[name]) for name in adapted if "classifier" in name)
    assert not torch.equal(adapted["bottleneck.weight"], source_model.weights["bottleneck.weight"])


def test_file_holds_averages_and_no_sample(source_model, tmp_path):
    source_model.save(tmp_path / "source.safetensors")
    tensors, about = read_tensors(tmp_path / "source.safetensors")
    assert about["classes"] == sorted(set(TOY.y_source.tolist()))
    assert max(len(tensor) for tensor in tensors.values() if tensor.ndim) <= max(TOY.x_source.shape[1], 16)
    rows = TOY.x_source / np.linalg.norm(TOY.x_source, axis=1, keepdims=True) * source_model.settings.input_norm
    expected = [rows[TOY.y_source == name].mean(axis=0) for name in about["classes"]]
    np.testing.assert_allclose(tensors["class_means"].numpy(), expected, atol=1e-3)
    assert tensors["class_sizes"].tolist() == [int((TOY.y_source == name).sum()) for name in about["classes"]]


def test_loaded_source_model_adapts_to_the_same_bits(source_model, tmp_path):
    source_model.save(tmp_path / "source.safetensors")
    loaded = SourceModel.load(tmp_path / "source.safetensors")
    first, second = (UniDAClassifier("glc", **QUICK).fit_target(TOY.x_target, one) for one in (source_model, loaded))
    assert np.array_equal(first.predict_proba(TOY.x_target), second.predict_proba(TOY.x_target))
    assert first.model_.fingerprint == second.model_.fingerprint


@pytest.mark.parametrize("method", ["glc-plus", "lead"])
def test_source_model_of_one_method_serves_the_others(source_model, method):
    model = UniDAClassifier(method, **QUICK).fit_target(TOY.x_target, source_model)
    assert set(model.labels_) <= {*model.classes_, "unknown"}
    assert len(set(model.labels_)) > 2


def test_what_does_not_fit_is_refused_in_words(source_model, tmp_path):
    with pytest.raises(SettingsError, match="dance needs the labelled samples when it adapts. Methods that adapt a so"):
        UniDAClassifier("dance").fit_source(TOY.x_source, TOY.y_source)
    with pytest.raises(SettingsError, match="uniot needs the labelled samples"):
        UniDAClassifier("uniot").fit_target(TOY.x_target, source_model)
    with pytest.raises(DataError, match="X_target has 5 features, and the source model was trained on 32"):
        UniDAClassifier("glc", **SMALL).fit_target(TOY.x_target[:, :5], source_model)
    with pytest.raises(SettingsError, match="feature_size"):
        UniDAClassifier("glc", **(SMALL | {"feature_size": 8})).fit_target(TOY.x_target, source_model)
    with pytest.raises(SettingsError, match="input_norm is 3, and the source model was trained with 30"):
        UniDAClassifier("glc", **SMALL, input_norm=3.0).fit_target(TOY.x_target, source_model)
    write_tensors(tmp_path / "other.safetensors", {"x": torch.zeros(2)}, {"classes": ["a", "b"]})
    with pytest.raises(RunFolderError, match="is not a source model"):
        SourceModel.load(tmp_path / "other.safetensors")
    write_tensors(tmp_path / "damaged.safetensors", {"x": torch.zeros(2)}, {"kind": "source-model", "classes": ["a"]})
    with pytest.raises(RunFolderError, match="cannot be read as a source model"):
        SourceModel.load(tmp_path / "damaged.safetensors")


def changed(source_model, path, tensors=None, **about):
    """Write a source model with some tensors and parts of its description replaced, under a right checksum."""
    source_model.save(path)
    stored, described = read_tensors(path)
    write_tensors(path, stored | (tensors or {}), described | about)
    return path


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"classes": ["a", "a", "b", "c", "d"]}, "gives two classes the same name"),
        ({"classes": ["b", "a", "c", "d", "e"]}, "class names that are not in order"),
        ({"classes": ["a"]}, "fewer than two classes"),
        ({"classes": 7}, "TypeError"),
        ({"classes": [str(one) for one in range(1 << 14)] + ["x" * (1 << 14)]}, "exceeds the limit"),
        ({"settings": {"method": "glc", "feature_size": 1_000_000}}, r"the source model has .* expected"),
        ({"settings": {"method": "uniot"}}, "uniot needs the labelled samples"),
        ({"settings": {"method": "__import__('os')"}}, "there is no method called"),
        ({"settings": ["glc"]}, "TypeError"),
        ({"reader": {"images": {"backbone": "resnet50"}}}, "does not name its network"),
        ({"reader": 7}, "cannot be read as a source model"),
    ],
)
def test_hostile_description_is_refused_before_anything_is_allocated(
    source_model, tmp_path, little_memory, about, words
):
    path = changed(source_model, tmp_path / "hostile.safetensors", **about)
    with little_memory(), pytest.raises(RunFolderError, match=words):
        SourceModel.load(path)


def test_hostile_tensors_are_refused(source_model, tmp_path):
    path = tmp_path / "hostile.safetensors"
    changed(source_model, path, {"class_means": torch.full_like(source_model.class_means, torch.nan)})
    with pytest.raises(RunFolderError, match="holds NaN in 'class_means'"):
        SourceModel.load(path)
    changed(source_model, path, {"class_means": torch.zeros(5, 32, 2)})
    with pytest.raises(RunFolderError, match="has a tensor 'class_means' of 5 × 32 × 2 numbers"):
        SourceModel.load(path)
    changed(source_model, path, {"class_sizes": torch.tensor([3, 0, 3, 3, 3])})
    with pytest.raises(RunFolderError, match="holds 0 in 'class_sizes'"):
        SourceModel.load(path)
    source_model.save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RunFolderError, match="does not match its own checksum"):
        SourceModel.load(path)
    path.write_bytes(bytes(content[: len(content) // 2]))
    with pytest.raises(RunFolderError, match="cannot be read"):
        SourceModel.load(path)
