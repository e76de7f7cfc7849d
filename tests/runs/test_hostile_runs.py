"""A run folder that somebody made to do harm, or that is damaged: refused in a sentence, in little memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier, UniNCM
from uniot.config import ImageSettings
from uniot.datasets import make_toy_domains
from uniot.errors import NumericalError, RunFolderError, UniotError
from uniot.export.hub import pull, push
from uniot.io.tensor_files import read_tensors, write_tensors
from uniot.runs.loading import load_model
from uniot.runs.saving import save_model

PAPER = {"method": "uniot", "steps": 2, "hidden_size": 16, "feature_size": 8, "queue_size": 40, "n_clusters": 4}


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy = make_toy_domains(seed=1)
    folder = tmp_path_factory.mktemp("runs") / "paper"
    save_model(UniDAClassifier(random_state=0, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target).model_, folder)
    return folder


@pytest.fixture(scope="module")
def universal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy = make_toy_domains(seed=1)
    folder = tmp_path_factory.mktemp("runs") / "universal"
    save_model(UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target).model_, folder)
    return folder


@pytest.fixture(scope="module")
def of_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("timm") is None:
        pytest.skip("pip install 'uniot[images]'")
    from uniot.images.backbones import ImageReader, load_backbone

    backbone = load_backbone("test_resnet", pretrained=False)
    reader = ImageReader(ImageSettings(backbone="test_resnet"), backbone, backbone.split("none"))
    rows = np.random.default_rng(0).normal(size=(20, backbone.width))
    fitted = UniDAClassifier(random_state=0, **(PAPER | {"queue_size": 20})).fit(
        rows, np.repeat(["a", "b"], 10), rows + 0.1
    )
    folder = tmp_path_factory.mktemp("runs") / "images"
    save_model(replace(fitted.model_, reader=reader), folder)
    return folder


def changed(run: Path, to: Path, change: Callable[[dict, dict], None], file: str = "model.safetensors") -> Path:
    """A copy of a run with other tensors or another description, under a checksum that is right."""
    shutil.copytree(run, to)
    tensors, about = read_tensors(to / file)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(tensors, about)
    write_tensors(to / file, tensors, about)
    return to


@pytest.mark.medium
def test_runs_that_nobody_changed_load_in_little_memory(paper, universal, of_images, tmp_path, little_memory):
    load_model(paper)
    with little_memory():
        for run in (paper, universal, of_images):
            assert len(load_model(run).classes)
            push(run, str(tmp_path / run.name))
            assert len(pull(str(tmp_path / run.name), tmp_path / f"{run.name}-copy").target) == 0


@pytest.mark.parametrize(
    "sizes",
    [{"queue_size": 10_000_000, "n_clusters": 100_000}, {"hidden_size": 1_000_000}, {"feature_size": 1_000_000}],
    ids="-".join,
)
@pytest.mark.parametrize("shared", [True, False], ids=["pulled", "loaded"])
def test_settings_that_ask_for_more_than_the_file_holds_allocate_nothing(paper, tmp_path, sizes, shared, little_memory):
    folder = changed(paper, tmp_path / "run", lambda _, about: about["settings"].update(sizes))
    with little_memory(), pytest.raises(RunFolderError, match="model.safetensors does not fit its settings"):
        pull(str(folder), tmp_path / "copy") if shared else load_model(folder)
    assert not (tmp_path / "copy").exists()


@pytest.mark.medium
def test_giant_backbone_beside_a_small_file_allocates_nothing(of_images, tmp_path, little_memory):
    def giant(_: dict, about: dict) -> None:
        about["images"]["backbone"] = "vit_giant_patch14_dinov2"

    folder = changed(of_images, tmp_path / "run", giant, "backbone.safetensors")
    with little_memory(), pytest.raises(RunFolderError, match="backbone.safetensors does not fit its settings"):
        load_model(folder)


def test_giant_backbone_that_is_fine_tuned_allocates_nothing(of_images, tmp_path, little_memory):
    def giant(tensors: dict, about: dict) -> None:
        tensors.clear()
        about["images"] |= {"backbone": "vit_giant_patch14_dinov2", "fine_tune": "all"}

    folder = changed(of_images, tmp_path / "run", giant, "backbone.safetensors")
    with little_memory(), pytest.raises(RunFolderError, match="model.safetensors does not fit its settings"):
        load_model(folder)


def _set(name: str, value: torch.Tensor) -> Callable[[dict, dict], None]:
    return lambda tensors, _: tensors.__setitem__(name, value)


def _fill(name: str, value: float) -> Callable[[dict, dict], None]:
    return lambda tensors, _: tensors[name].fill_(value)


def _say(name: str, value: object) -> Callable[[dict, dict], None]:
    return lambda _, about: about.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            _set("method.fitted.metric.prototypes", torch.zeros(4, 32)),
            r"'prototypes' of 4 × 32 .* 5 × 32",
        ),
        (
            _set("method.fitted.metric.basis", torch.zeros(32, 32, dtype=torch.int64)),
            r"'basis' .* int64; .* float32",
        ),
        (_set("method.fitted.metric.basis", torch.zeros(31, 32)), r"'basis' of 31 × 32 .* 32 × any"),
        (_set("method.fitted.metric.target_centre", torch.zeros(31)), r"'target_centre' of 31 .* 32 "),
        (_set("groups.centres", torch.zeros(2, 31)), r"'groups.centres' of 2 × 31 .* any × 32"),
        (_fill("method.fitted.neighbours.nearest", 10**9), r"holds 1e\+09 in 'nearest'; .* from 0 to 149"),
        (_fill("method.fitted.neighbours.nearest", -1), r"holds -1 in 'nearest'"),
        (_fill("method.fitted.metric.prototypes", float("nan")), r"holds NaN in 'method.fitted.metric.prototypes'"),
        (_fill("method.fitted.rejection.level", float("inf")), "holds an infinite number in 'method.fitted.rej"),
        (_fill("method.fitted.rejection.presence", 7), r"holds 7 in 'presence'; .* from 0 to 1"),
        (_fill("method.fitted.rejection.level", 0), r"holds 0 in 'level'; .* from 0.001 to 1"),
        (_set("method.fitted.landmarks.linear", torch.zeros(32, 31).half()), r"'linear' of 32 × 31"),
        (_fill("target.nearest", 5), r"holds 5 in 'nearest'; .* from 0 to 4"),
        (_fill("target.group", 2), r"holds 2 in 'group'; .* from -1 to 1"),
        (_fill("target.confidence", 2), r"holds 2 in 'confidence'"),
        (_fill("target.known_score", 2), r"holds 2 in 'known_score'"),
        (_fill("target.shares", -1), r"holds -1 in 'target.shares'"),
        (_set("target.known", torch.ones(3, dtype=torch.bool)), r"'known' of 3 numbers"),
        (_set("absence", torch.zeros(4, dtype=torch.float64)), r"'absence' of 4 numbers"),
        (lambda tensors, _: tensors.pop("absence"), r"has no tensor 'absence'"),
        (lambda tensors, _: tensors.pop("history"), r"has no history"),
        (lambda tensors, _: tensors.pop("method.fitted.rejection.level"), r"has no tensor 'level'"),
        (_say("classes", [["a"], ["b"], ["c"], ["d"], ["e"]]), r"as classes.list.*0 of its run: input should be a "),
        (_say("classes", ["a", 1, "b", "c", "d"]), r"as classes"),
        (_say("classes", ["a"] * 5), r"gives two classes the same name"),
        (_say("classes", [f"{number}" for number in range(10**6)]), r"'prototypes' of 5 × 32 numbers .* 1000000 × 32"),
        (_say("classes", ["a" * 10**6, *(f"{n}" for n in range(10**4))]), r"10001 class names of up to 1000000 let"),
        (_say("classes", []), r"as classes"),
        (_say("unknown", ["unknown"]), r"as unknown"),
        (_say("input_shape", [10**9]), r"as input_shape.0 of its run"),
        (_say("input_shape", [10**4, 10**4]), r"samples of 100000000 numbers"),
        (_say("number", {"estimate": 10**12, "interval": [0, 10**12]}), r"1000000000000 private classes"),
        (_say("number", {"estimate": "many", "interval": [0, 1]}), r"as number.estimate"),
        (_say("threshold", {"value": -1.0, "rejects": "some"}), r"has the threshold -1.0"),
        (_say("threshold", {"value": 1.0, "rejects": "most"}), r"as threshold.rejects"),
        (_say("calibration", {"known": -1.0, "unknown": 1.0}), r"has the exponents \(-1.0, 1.0\) of probabilities"),
        (
            _say("reliability", {"accuracy": 0.5, "known_accuracy": None, "unknown_accuracy": 5}),
            r"estimated accuracies",
        ),
        (_say("settings", {"method": "none such"}), r"no method called 'none such'"),
        (_say("settings", {"steps": [0] * 10**5}), r"setting steps is \[0, 0"),
    ],
)
def test_what_does_not_fit_together_is_named(universal, tmp_path, change, words, little_memory):
    folder = changed(universal, tmp_path / "run", change)
    with little_memory(), pytest.raises(UniotError, match=words) as caught:
        load_model(folder)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("method.solved.class_potential", torch.zeros(4, dtype=torch.float64)), r"'class_potential' of 4 numbers"),
        (_fill("method.solved.total_mass", -1.0), r"holds -1 in 'total_mass'"),
        (_fill("method.solved.n_rows", 0), r"holds 0 in 'n_rows'"),
        (lambda tensors, _: tensors.pop("method.solved.epsilon"), r"has no tensor 'epsilon'"),
        (_fill("method.projection.hidden.weight", float("nan")), r"holds NaN in 'method.projection.hidden.weight'"),
        (
            _set("method.loss.classes.weight", torch.zeros(5, 8, dtype=torch.int64)),
            r"classes.weight is of type int64; expected float32",
        ),
        (_set("method.extra", torch.zeros(1)), r"Unexpected key"),
    ],
)
def test_weights_and_rule_of_a_trained_method_are_checked(paper, tmp_path, change, words):
    folder = changed(paper, tmp_path / "run", change)
    with pytest.raises(UniotError, match=words):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("target", torch.zeros(3, 32).half()), r"features.safetensors .* 'target' of 3 × 32 .* 150 × 32"),
        (_fill("source", float("nan")), r"holds NaN in 'source'"),
        (_fill("source.classes", 9), r"holds 9 in 'source.classes'"),
        (_fill("source.rows", -4), r"holds -4 in 'source.rows'"),
        (_say("fingerprint", "another"), r"mixes files of two runs"),
        (lambda _, about: about.clear(), r"mixes files of two runs"),
    ],
)
def test_features_are_checked(universal, tmp_path, change, words):
    folder = changed(universal, tmp_path / "run", change, "features.safetensors")
    with pytest.raises(RunFolderError, match=words):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, about: about["preparation"].update(crop=100_000, resize=100_000), r"cropping to 100000 pixels"),
        (lambda _, about: about["preparation"].update(std=[0.0, 1.0, 1.0]), r"deviation \(0.0, 1.0, 1.0\)"),
        (lambda _, about: about["preparation"].update(interpolation="magic"), r"\(interpolation: input should be"),
        (lambda _, about: about.pop("images"), r"does not name its network"),
        (lambda _, about: about["images"].update(backbone="hf-hub:me/evil"), r"no backbone called 'hf-hub:me/evil'"),
        (lambda _, about: about["images"].update(backbone="/tmp/evil"), r"setting backbone is '/tmp/evil'"),
        (_fill("network.layer1.0.conv1.weight", float("nan")), r"holds NaN in 'network.layer1.0.conv1.weight'"),
    ],
)
def test_backbone_is_checked(of_images, tmp_path, change, words, little_memory):
    folder = changed(of_images, tmp_path / "run", change, "backbone.safetensors")
    with little_memory(), pytest.raises(UniotError, match=words):
        load_model(folder)


def test_weights_that_overflow_are_no_answers(paper, tmp_path):
    folder = changed(paper, tmp_path / "run", _fill("method.projection.hidden.weight", 3e38))
    with pytest.raises(NumericalError, match=r"gives no numbers for 3 of 3 samples. Its weights are damaged"):
        load_model(folder).predict(torch.ones(3, 32))


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ("[" * 100_000, r"description that is not JSON \(nested too deeply\)"),
        ('{"classes": ' + "9" * 100_000 + "}", r"not JSON \(a number of 100000 digits\)"),
        ("[]", r"description that is not a JSON object: \[\]"),
        ("3", r"not a JSON object"),
        ("{", r"not JSON"),
        ("", r"not JSON"),
    ],
)
def test_description_that_is_no_object_is_refused(tmp_path, described, words, monkeypatch):
    monkeypatch.setattr("uniot.io.tensor_files.json.dumps", lambda _: described)
    write_tensors(tmp_path / "model.safetensors", {"x": torch.zeros(1)}, {})
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match=words):
        load_model(tmp_path)


def test_links_of_a_shared_folder_are_not_followed(paper, tmp_path):
    push(paper, str(tmp_path / "shared"))
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (tmp_path / "shared" / "README.md").unlink()
    (tmp_path / "shared" / "README.md").symlink_to(tmp_path / "secret")
    with pytest.raises(RunFolderError, match=r"README.md of .*shared is a link to another file, which is not followed"):
        pull(str(tmp_path / "shared"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_scores_that_are_no_object_are_refused(paper, tmp_path):
    shutil.copytree(paper, tmp_path / "run")
    for text in ("[]", "[" * 100_000, json.dumps({"h_score": "high"})):
        (tmp_path / "run" / "metrics.json").write_text(text, encoding="utf-8")
        with pytest.raises(RunFolderError, match=r"metrics.json cannot be read"):
            push(tmp_path / "run", str(tmp_path / "shared"))
