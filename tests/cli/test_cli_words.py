"""What commands refuse before any work, and what they say of their results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from uniot.cli.methods import methods
from uniot.config import Settings
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.io.predictions import read_predictions
from uniot.methods.registry import METHODS
from uniot.runs.loading import load_model


@pytest.fixture(scope="module")
def toy() -> ToyDomains:
    return make_toy_domains(seed=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, toy: ToyDomains) -> Path:
    folder = tmp_path_factory.mktemp("files")
    np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(folder / "target.npz", x=toy.x_target)
    np.savez(folder / "truth.npz", y=toy.oracle_y_target)
    (folder / "a file").write_text("in the way")
    (folder / "one.csv").write_text("path,label\nlabelled/mug/a.png,mug\n")
    (folder / "notes.txt").write_text(f"Buy milk\n{'and so on ' * 100}\n")
    places = ("labelled/mug", "labelled/pen", "unlabelled", "nest/all/mug", "nest/all/pen", "one/mug")
    for name in (*places, "with unknown/mug", "with unknown/unknown"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.png").write_bytes(b"not an image, and nobody looks")
    return folder


@pytest.fixture
def here(uniot: Callable, files: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Runs a command in the folder of the files, which has to end with this code."""
    monkeypatch.chdir(files)

    def run(*arguments: str, code: int = 0):
        answer = uniot(*arguments)
        assert answer.code == code, answer.stderr
        return answer

    return run


@pytest.fixture
def nothing_is_read():
    """Fails where a command reads samples or loads a model before it has looked at its options."""
    with (
        mock.patch("uniot.adaptation.collections.read_embeddings", side_effect=AssertionError("embeddings were read")),
        mock.patch("uniot.images.embedding.extract", side_effect=AssertionError("images were read")),
        mock.patch("uniot.runs.run.load_model", side_effect=AssertionError("a model was loaded")),
    ):
        yield


@pytest.mark.parametrize("kind", ["images", "embeddings"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "dence"), "there is no method called 'dence'. Did you mean 'dance'?"),
        (("--settings", "options.toml"), "there is no setting called 'nonsense'; known ones are "),
        (("--private-prior", "0.3", "--prefer", "known"), "private_prior is 0.3 and prefer is 'known'"),
        (("--resume", "--overwrite"), "--resume continues the run in the folder, and --overwrite replaces it."),
        (("--devices", "none"), "--devices is 'none'. Give a number of processes"),
        (("--steps", "-1"), "setting steps is -1"),
        (("--out", "a file/run"), "a file is a file, so nothing can be written to a file/run"),
    ],
)
def test_settings_are_refused_before_any_sample_is_read(
    here: Callable, files: Path, nothing_is_read: None, kind: str, options: tuple[str, ...], words: str
) -> None:
    (files / "options.toml").write_text("method_options = { nonsense = 1 }\n")
    collections = ("labelled", "unlabelled") if kind == "images" else ("source.npz", "target.npz")
    out = () if "--out" in options else ("--out", "run")
    refused = here("adapt", *collections, *out, *options, code=1)
    assert words in refused.stderr
    assert not (files / "run").exists()


def test_backbone_that_does_not_exist_is_refused_before_any_image_is_read(
    here: Callable, files: Path, nothing_is_read: None
) -> None:
    for command in (("adapt", "labelled", "unlabelled", "--out", "run"), ("embed", "labelled", "--out", "x.npz")):
        refused = here(*command, "--backbone", "no_such_net", code=1)
        assert "no_such_net" in refused.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("embed", "labelled", "--out", "x.txt"), "x.txt ends with '.txt'. Give a file that ends with .npz, .npy"),
        (("embed", "labelled", "--out", "a file/x.npz"), "a file is a file, so nothing can be written to"),
        (("predict", "run", "unlabelled", "--out", "new.txt"), "new.txt ends with '.txt'. Give a file that ends with"),
        (("predict", "run", "unlabelled", "--copy-to", "a file/x"), "a file is a file, so nothing can be written"),
        (("predict", "run", "target.npz", "--store", "s"), "--store is for images, and target.npz is a file of embed"),
        (("export", "run", "--out", "labelled"), "labelled is a folder. Give the name of a file."),
        (("report", "run", "--out", "a file/r.html"), "a file is a file, so nothing can be written to"),
        (("adapt", "--continue", "run", "--out", "./run"), "--out is the run that is continued; give another folder."),
        (("adapt", "labelled", "labelled/", "--out", "o"), "source and target are the same folder, labelled."),
        (("adapt", "source.npz", "./source.npz", "--out", "o"), "source and target are the same file, source.npz."),
        (("adapt", "nest", "unlabelled", "--out", "o"), "nest has only one class, 'all'. Did you mean nest/all?"),
        (
            ("adapt", "one", "unlabelled", "--out", "o"),
            "one has only one class, 'mug'. Give a folder that has one folder of images per class, at least two.",
        ),
        (("adapt", "one.csv", "unlabelled", "--out", "o"), "one.csv has only one class, 'mug'. Give at least two"),
        (("train-source", "one", "--out", "o.safetensors"), "one has only one class, 'mug'. Give a folder that has"),
        (("adapt", "with unknown", "unlabelled", "--out", "o"), "with unknown has a class called 'unknown', which is"),
        (
            ("adapt", "unlabelled", "labelled", "--out", "o"),
            "labelled has a folder for each of 2 classes: did you swap the two? The labelled images come first.",
        ),
        (("predict", "run", "notes.txt"), "notes.txt is read as a list of images, and none of its lines is the path"),
        (
            ("adapt", "source.npz", "target.npz", "--out", "o", "--strict"),
            "--strict is for images, and the collections",
        ),
    ],
)
def test_places_and_options_are_refused_before_any_work(
    here: Callable, files: Path, nothing_is_read: None, command: tuple[str, ...], words: str
) -> None:
    network = mock.patch("uniot.images.backbones.ImageReader.open", side_effect=AssertionError("a network was loaded"))
    with network:
        assert words in here(*command, code=1).stderr
    assert not (files / "o").exists()


def test_single_class_of_embeddings_is_refused_before_the_target_is_read(here: Callable, files: Path) -> None:
    np.savez(files / "one.npz", x=np.eye(3), y=["mug"] * 3)
    (files / "broken.npz").write_bytes(b"not an array")
    refused = here("adapt", "one.npz", "broken.npz", "--out", "o", code=1)
    assert "one.npz has only one class, 'mug'. Give at least two classes." in refused.stderr


def test_it_is_said_that_torch_is_loaded_before_it_is(files: Path) -> None:
    commands = (
        ("adapt", "labelled", "unlabelled", "--out", "o"),
        ("train-source", "labelled", "--out", "o.safetensors"),
        ("embed", "labelled", "--out", "o.npz"),
        ("demo", "--out", "o"),
    )
    for command in commands:
        code = (
            f"import sys; sys.modules['torch'] = None; sys.argv[1:] = {command!r}; from uniot.cli import main; main()"
        )
        ended = subprocess.run([sys.executable, "-c", code], cwd=files, capture_output=True, text=True, check=False)
        assert ended.stderr.startswith("Loading PyTorch …\n"), ended.stderr


def test_methods_marks_the_default_and_shows_variants_only_on_request(uniot: Callable) -> None:
    short, whole = uniot("methods").stdout, uniot("methods", "--all").stdout
    assert short.startswith("Keep the default unless you compare methods.\n")
    assert "docs/" not in whole
    assert f"{Settings.checked().method} (default)" in short
    variants = [name for name, info in METHODS.items() if info.variant_of is not None]
    assert f"{len(variants)} variants of these" in short
    for name, info in METHODS.items():
        line = f"\n{name} "
        assert line in whole
        assert (line in short) == (info.variant_of is None)


def test_methods_says_which_see_the_source_only_through_a_trained_classifier(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    # Wide enough that no row is folded.
    monkeypatch.setenv("COLUMNS", "400")
    methods(show_all=True)
    words = "(source-free: sees the source only through a trained classifier)"
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if words in line]
    assert rows == [name for name, info in METHODS.items() if info.is_source_free] == ["glc", "glc-plus", "lead"]


def test_continued_run_is_scored_with_and_without_what_a_person_labelled(
    here: Callable, files: Path, toy: ToyDomains
) -> None:
    here("adapt", "source.npz", "target.npz", "--out", "first")
    answers = read_predictions(files / "first" / "predictions.csv")
    private = np.unique(toy.oracle_y_target[~np.isin(toy.oracle_y_target, toy.y_source)])
    rows = [row for row in range(len(answers.names)) if toy.oracle_y_target[row] == private[0]][:5]
    lines = ["path,label,decision", *(f"{answers.names[row]},{private[0]},named" for row in rows)]
    (files / "first" / "labels.csv").write_text("\n".join(lines) + "\n")
    here("adapt", "--continue", "first", "--out", "second")
    told = here("evaluate", "second", "--labels", "truth.npz").stdout
    assert "People labelled 5 samples before this run, which learned from them." in told
    assert "source_classes" not in told
    assert re.search(r"with the samples\s+score +value +you labelled", told)
    metrics = json.loads((files / "second" / "metrics.json").read_text())
    others = metrics["without_labelled_by_people"]
    assert metrics["n_labelled_by_people"] == 5
    assert others["counts"]["rows"] == metrics["counts"]["rows"] - 5
    first = json.loads(_scored(here, files).read_text())
    assert "without_labelled_by_people" not in first


def _scored(here: Callable, files: Path) -> Path:
    assert "People labelled" not in here("evaluate", "first", "--labels", "truth.npz").stdout
    return files / "first" / "metrics.json"


def test_oracle_clusters_with_the_same_seed_in_a_benchmark_and_in_evaluate(here: Callable, files: Path) -> None:
    from uniot.benchmark import fit_and_score

    here("adapt", "source.npz", "target.npz", "--out", "third", "--seed", "3")
    module = sys.modules["uniot.metrics.evaluate"]
    seeds = []
    with mock.patch.object(module, "oracle_nmi", side_effect=lambda *_, seed: seeds.append(seed)):
        here("evaluate", "third", "--labels", "truth.npz")
        model = load_model(files / "third")
        job = mock.Mock(setting="open-partial", backbone="none", method="unincm", task="S2T", seed=3, dataset="")
        fit_and_score.score_model(job, model, np.load(files / "truth.npz")["y"], (1.0, 1.0))
    assert seeds == [0, 0]


@pytest.mark.parametrize("command", ["adapt", "predict", "embed"])
def test_workers_are_called_threads(uniot: Callable, command: str) -> None:
    told = " ".join(uniot(command, "--help").stdout.replace("│", " ").split())
    assert "Threads that read and decode images" in told


def test_unknown_without_a_group_are_offered_for_labelling(here: Callable) -> None:
    told = here("adapt", "source.npz", "target.npz", "--out", "ungrouped", "--private-classes", "0").stdout
    assert re.search(r"uniot label ungrouped +# look at the unknown, and name them\n", told)


def test_report_looks_at_the_run_before_it_says_that_it_draws(here: Callable) -> None:
    assert here("report", "nothere", code=1).stderr.startswith("Error: nothere is not a folder.")
