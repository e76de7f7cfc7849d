"""`uniot train-source` where the labelled samples are, then `uniot adapt --source-model` where they are not."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from uniot import Run, UniDAClassifier
from uniot.datasets import make_toy_domains
from uniot.io.tensor_files import read_tensors
from uniot.runs.loading import load_model
from uniot.training.source_model import SourceModel

TOY = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, seed=1)
SMALL = {"steps": 200, "feature_size": 16, "n_private_classes": 2}
SETTINGS = "".join(f"{name} = {value}\n" for name, value in SMALL.items())
SOURCE = "source.safetensors"
ADAPT = ("adapt", "--source-model", SOURCE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, shape_folders: tuple[Path, Path]) -> Path:
    folder = tmp_path_factory.mktemp("place")
    np.savez(folder / "labelled.npz", x=TOY.x_source, y=TOY.y_source)
    np.savez(folder / "unlabelled.npz", x=TOY.x_target)
    np.savez(folder / "narrow.npz", x=TOY.x_target[:, :5])
    for images in shape_folders:
        shutil.copytree(images, folder / images.name)
    (folder / "small.toml").write_text(SETTINGS)
    return folder


@pytest.fixture(scope="module")
def in_place(uniot: Callable, place: Path) -> Callable:
    """Runs a command in the folder, which has to end with this code."""

    def run(*arguments: object, code: int = 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            patch.setenv("UNIOT_CACHE", str(place / "cache"))
            answer = uniot(*arguments)
        assert answer.code == code, answer.stderr
        return answer

    return run


@pytest.fixture(scope="module")
def trained(in_place: Callable) -> str:
    """What training on embeddings prints."""
    return in_place("train-source", "labelled.npz", "--out", SOURCE, "--settings", "small.toml").stdout


@pytest.fixture(scope="module")
def adapted(in_place: Callable, trained: str) -> str:
    """What adapting to embeddings prints."""
    return in_place(*ADAPT, "unlabelled.npz", "--out", "run", "--settings", "small.toml").stdout


@pytest.fixture(scope="module")
def trained_on_images(in_place: Callable, place: Path) -> str:
    command = ("train-source", "labelled", "--method", "lead", "--flip", "--settings", "small.toml")
    return in_place(*command, "--out", "images.safetensors").stdout


@pytest.fixture(scope="module")
def adapted_to_images(in_place: Callable, trained_on_images: str) -> str:
    command = ("adapt", "--source-model", "images.safetensors", "unlabelled", "--settings", "small.toml")
    return in_place(*command, "--out", "shapes").stdout


def labels(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


def test_file_and_run_are_those_of_the_estimator(place: Path, trained: str, adapted: str, tmp_path: Path) -> None:
    estimator = UniDAClassifier("glc", **SMALL, random_state=0)
    estimator.fit_source(TOY.x_source, TOY.y_source).save(tmp_path / SOURCE)
    (tensors, about), (own_tensors, own_about) = (read_tensors(folder / SOURCE) for folder in (place, tmp_path))
    assert about == own_about
    assert tensors.keys() == own_tensors.keys()
    assert all(torch.equal(value, own_tensors[name]) for name, value in tensors.items())
    estimator.fit_target(TOY.x_target, tmp_path / SOURCE)
    model = load_model(place / "run")
    assert model.fingerprint == estimator.model_.fingerprint
    assert labels(place / "run" / "predictions.csv") == estimator.labels_.tolist()
    own = estimator.model_.method.state_dict()
    assert all(torch.equal(value, own[name]) for name, value in model.method.state_dict().items())


def test_both_commands_say_what_is_next(trained: str, adapted: str) -> None:
    assert "a model of 5 classes, trained on 150 samples. It contains class names" in trained
    assert trained.splitlines()[-1] == (
        "Next: uniot adapt --source-model source.safetensors unlabelled.npz --out run/  # where the unlabelled samples "
        "are"
    )
    assert adapted.startswith("Method: GLC (Qu et al.")
    assert "Next: uniot report run" in adapted
    assert "not checked" not in adapted


def test_run_is_a_run_like_any_other(in_place: Callable, place: Path, adapted: str) -> None:
    in_place("predict", "run", "unlabelled.npz", "--out", "new.csv")
    assert labels(place / "new.csv") == labels(place / "run" / "predictions.csv")
    in_place("report", "run")
    in_place("export", "run", "--out", "model.onnx")
    assert "5 class means of the source model" in " ".join((place / "run" / "contents.txt").read_text().split())
    again = in_place(*ADAPT, "unlabelled.npz", "--out", "run", "--settings", "small.toml")
    assert "run is already finished; nothing was trained." in again.stdout
    in_place(*ADAPT, "unlabelled.npz", "--out", "repeated", "--settings", "run/settings.toml")
    assert labels(place / "repeated" / "predictions.csv") == labels(place / "run" / "predictions.csv")


def test_names_are_used_but_the_run_cannot_be_continued(in_place: Callable, place: Path, adapted: str) -> None:
    words = "run adapted a source model, so names cannot become classes. Start a new run where the labelled"
    assert words in in_place("adapt", "--continue", "run", code=1).stderr
    shutil.copytree(place / "run", place / "named")
    unknown = next(row for row, label in enumerate(labels(place / "named" / "predictions.csv")) if label == "unknown")
    (place / "names.csv").write_text(f"path,label\n{unknown},spoon\n")
    in_place("label", "named", "--import", "names.csv")
    told = in_place("label", "named", "--out", "out.csv").stdout
    assert told.rstrip().endswith("Next: uniot report named")
    assert "spoon" in labels(place / "named" / "predictions.csv")
    assert words.replace("run", "named", 1) in in_place("adapt", "--continue", "named", code=1).stderr


def test_labelling_page_offers_what_can_be_done(place: Path, adapted: str) -> None:
    from uniot.labelling.app import next_commands
    from uniot.labelling.samples import TargetSamples

    assert [command for _, command in next_commands(place / "run")] == [f"uniot report {place / 'run'}"]
    assert len(next_commands(place)) == 2
    # There is no labelled picture to show a class by.
    assert (TargetSamples.of_run(Run.open(place / "run")).class_faces == -1).all()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("train-source", "labelled.npz", "--out", SOURCE), f"{SOURCE} exists already. Give another file, or --overw"),
        (("train-source", "labelled.npz", "--out", "a.npz"), "a.npz ends with '.npz'. Give a file that ends with .sa"),
        (("train-source", "unlabelled.npz", "--out", "a.safetensors"), "unlabelled.npz contains no labels. Save them"),
        (("train-source", "nothing", "--out", "a.safetensors"), "nothing does not exist. Give a folder of images"),
        (
            ("train-source", "labelled.npz", "--out", "a.safetensors", "--method", "dance"),
            "dance needs the labelled samples when it adapts. Methods that adapt a source model are glc, glc-plus, lea",
        ),
        (
            ("train-source", "labelled.npz", "--out", "a.safetensors", "--flip"),
            "--flip is for images, and labelled.npz is a file of embeddings. Leave it out.",
        ),
        ((*ADAPT, "--out", "new"), f"expected unlabelled images and --out: uniot adapt --source-model {SOURCE} unlab"),
        ((*ADAPT, "unlabelled.npz"), "expected unlabelled images and --out: uniot adapt --source-model"),
        (
            (*ADAPT, "labelled.npz", "unlabelled.npz", "--out", "new"),
            "--source-model stands in place of the labelled samples, and labelled.npz and unlabelled.npz are given. "
            "Give only the unlabelled samples, or leave --source-model out.",
        ),
        (
            (*ADAPT, "unlabelled.npz", "--out", "new", "--method", "lead"),
            f"method is lead, and {SOURCE} was trained with method glc. Leave it out, or train another source model",
        ),
        ((*ADAPT, "unlabelled.npz", "--out", "new", "--method", "dance"), f"method is dance, and {SOURCE} was trained"),
        (
            (*ADAPT, "unlabelled.npz", "--out", "new", "--settings", "wide.toml"),
            f"feature_size is 32, and {SOURCE} was trained with feature_size 16.",
        ),
        ((*ADAPT, "unlabelled.npz", "--out", "new", "--names", "n.csv"), "--names adds labelled samples, and a sourc"),
        ((*ADAPT, "narrow.npz", "--out", "new"), "X_target has 5 features, and the source model was trained on 32."),
        (
            (*ADAPT, "unlabelled", "--out", "new"),
            f"{SOURCE} was trained on embeddings, but unlabelled contains images. Give embeddings, or train the source",
        ),
        ((*ADAPT, "unlabelled.npz", "--out", "new", "--backbone", "resnet50"), "--backbone is for images, and the col"),
        ((*ADAPT, "unlabelled.npz", "--out", "run", "--seed", "3"), "run contains a finished run of other data or ot"),
        (("adapt", "--source-model", "cut.safetensors", "unlabelled.npz", "--out", "new"), "cut.safetensors cannot be"),
        (("adapt", "--source-model", "labelled.npz", "unlabelled.npz", "--out", "new"), "labelled.npz cannot be read"),
        (("adapt", "--source-model", "nothing", "unlabelled.npz", "--out", "new"), "nothing is not a file. Give one t"),
        (
            ("adapt", "--source-model", "run/model.safetensors", "unlabelled.npz", "--out", "new"),
            "run/model.safetensors is not a source model. Give a file that `uniot train-source`, or",
        ),
        (("adapt", "--continue", "run", "--source-model", SOURCE), "--continue takes the collections and the names"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(
    in_place: Callable, place: Path, adapted: str, command: tuple[str, ...], words: str
) -> None:
    (place / "cut.safetensors").write_bytes((place / SOURCE).read_bytes()[:-100])
    (place / "wide.toml").write_text("feature_size = 32\n")
    assert words in in_place(*command, code=1).stderr
    assert not (place / "new").exists()
    assert not (place / "a.safetensors").exists()


def test_samples_are_not_overwritten_by_their_model(in_place: Callable, place: Path, trained: str) -> None:
    before = (place / SOURCE).read_bytes()
    refused = in_place("train-source", SOURCE, "--out", SOURCE, "--overwrite", code=1)
    assert f"--out is the file of the labelled samples, {SOURCE}. Give another file." in refused.stderr
    assert (place / SOURCE).read_bytes() == before


def test_classes_that_cannot_be_adapted_to_or_hidden_are_reported(in_place: Callable, place: Path) -> None:
    y = np.where(np.arange(len(TOY.y_source)) == 0, "only one", TOY.y_source)
    np.savez(place / "single.npz", x=TOY.x_source, y=y)
    told = in_place("train-source", "single.npz", "--out", "b.safetensors", "--settings", "small.toml").stdout
    words = "Warning: 1 class has a single sample, whose embedding is the average in the file: only one."
    assert words in " ".join(told.split())
    np.savez(place / "single.npz", x=TOY.x_source, y=np.where(y == "only one", "unknown", y))
    refused = in_place("train-source", "single.npz", "--out", "c.safetensors", code=1).stderr
    assert "single.npz has a class called 'unknown', which is the label of samples that fit no class" in refused
    np.savez(place / "single.npz", x=TOY.x_source, y=np.zeros(len(y), np.int64))
    assert (
        "single.npz has only one class, 0. Give at least two classes."
        in in_place("train-source", "single.npz", "--out", "c.safetensors", code=1)[2]
    )


@pytest.mark.slow
def test_images_are_read_by_the_network_in_the_file(
    in_place: Callable, place: Path, trained_on_images: str, adapted_to_images: str
) -> None:
    assert "a model of 3 classes, trained on 24 images." in trained_on_images
    assert "Next: uniot adapt --source-model images.safetensors unlabelled/ --out run/" in trained_on_images
    run = Run.open(place / "shapes")
    assert run.settings.method == "lead"
    assert run.image_settings.flip
    in_file = load_file(place / "images.safetensors")
    trunk = load_file(place / "shapes" / "backbone.safetensors")
    assert trunk
    assert all(torch.equal(value, in_file[f"backbone.{name}"]) for name, value in trunk.items())
    assert run.inputs == {
        "source_model": str(place / "images.safetensors"),
        "target": str(place / "unlabelled"),
    }
    in_place("predict", "shapes", "unlabelled", "--out", "again.csv")
    assert labels(place / "again.csv") == labels(place / "shapes" / "predictions.csv")
    assert "shapes/report.html is written" in in_place("report", "shapes").stdout


def test_images_give_the_result_of_their_embeddings(
    in_place: Callable, place: Path, adapted_to_images: str, tmp_path: Path
) -> None:
    for name, more in (("labelled", ("--labelled",)), ("unlabelled", ())):
        in_place("embed", name, *more, "--flip", "--out", tmp_path / f"{name}.npz")
    labelled, target = (np.load(tmp_path / f"{name}.npz") for name in ("labelled", "unlabelled"))
    estimator = UniDAClassifier("lead", **SMALL, random_state=0)
    source = estimator.fit_source(labelled["x"], labelled["y"])
    own = SourceModel.load(place / "images.safetensors")
    assert all(torch.equal(value, source.weights[name]) for name, value in own.weights.items())
    estimator.fit_target(target["x"], source)
    assert labels(place / "shapes" / "predictions.csv") == estimator.labels_.tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("unlabelled", "--backbone", "resnet50"), "backbone is resnet50, and images.safetensors was trained with bac"),
        (("unlabelled", "--no-flip"), "flip is False, and images.safetensors was trained with flip True."),
        (("unlabelled", "--weights", "w.pt"), "images.safetensors was trained with the weights that it contains."),
        (("unlabelled", "--fine-tune", "last"), "fine_tune is last, and images.safetensors was trained with fine_tune"),
        (("unlabelled.npz",), "images.safetensors was trained on images, but unlabelled.npz contains embeddings."),
    ],
)
def test_images_are_read_in_no_other_way(
    in_place: Callable, place: Path, trained_on_images: str, options: tuple[str, ...], words: str
) -> None:
    refused = in_place("adapt", "--source-model", "images.safetensors", *options, "--out", "other", code=1)
    assert words in refused.stderr
    assert not (place / "other").exists()


def test_file_names_no_place_and_unreadable_images_are_listed(in_place: Callable, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "labelled", tmp_path / "labelled")
    (tmp_path / "labelled" / "circle" / "broken.jpg").write_bytes(b"no image at all")
    from uniot.images.backbones import load_backbone

    torch.save(load_backbone().network.state_dict(), tmp_path / "weights.pt")
    command = ("train-source", tmp_path / "labelled", "--weights", tmp_path / "weights.pt", "--settings", "small.toml")
    told = in_place(*command, "--out", tmp_path / "m.safetensors").stdout
    assert "1 file could not be read: circle/broken.jpg (not an image" in " ".join(told.split())
    assert "circle/broken.jpg" in (tmp_path / "m.skipped.csv").read_text()
    assert str(tmp_path) not in str(read_tensors(tmp_path / "m.safetensors")[1])
