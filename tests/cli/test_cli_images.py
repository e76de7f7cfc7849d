from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file

from uniot.runs.loading import load_model

QUICK = """\
method = "uniot"
steps = 60
batch_size = 6
queue_size = 12
n_clusters = 4
hidden_size = 64
feature_size = 32
detection_start = 20
checkpoint_every = 5
"""


@pytest.fixture(scope="session")
def uniot(uniot: Callable) -> Callable:
    """Runs a command in a folder, with a store of embeddings there, and looks at how it ends."""

    def run(*arguments: object, folder: Path, code: int = 0):
        before = Path.cwd()
        os.chdir(folder)
        try:
            with mock.patch.dict(os.environ, UNIOT_CACHE=str(folder / "cache")):
                answer = uniot(*arguments)
        finally:
            os.chdir(before)
        assert answer.code == code, answer.stderr
        return answer

    return run


def started(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """The same in a process of its own, which can be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "uniot", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "UNIOT_CACHE": str(folder / "cache")},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def answers(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def place(tmp_path_factory, shape_folders) -> Path:
    """A folder with two collections and settings for a run of a second."""
    folder = tmp_path_factory.mktemp("place")
    for collection in shape_folders:
        shutil.copytree(collection, folder / collection.name)
    (folder / "unlabelled" / "broken.jpg").write_bytes(b"no image at all")
    (folder / "quick.toml").write_text(QUICK, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def adapted(uniot, place) -> str:
    """What the command prints."""
    command = ("adapt", "labelled", "unlabelled", "--out", "run", "--settings", "quick.toml")
    return uniot(*command, folder=place).stdout


def test_two_folders_in_predictions_out(place, adapted):
    rows = answers(place / "run" / "predictions.csv")
    assert len(rows) == 24
    assert {row["label"] for row in rows} <= {"circle", "square", "stripes", "unknown"}
    assert rows[0]["path"] == "circle/00 é.png"
    (skipped,) = answers(place / "run" / "skipped.csv")
    assert skipped["path"] == "broken.jpg"
    assert skipped["reason"].startswith("not an image")
    assert "1 file could not be read: broken.jpg (not an image" in adapted
    assert "Next: uniot report run" in adapted
    assert "uniot predict run photo.jpg" in adapted


def test_scores_need_labels_and_only_scores_do(uniot, place, adapted):
    rows = answers(place / "run" / "predictions.csv")
    true = [(row["path"], row["path"].partition("/")[0]) for row in rows] + [("broken.jpg", "circle")]
    wrong = [(path, random.Random(path).choice(["circle", "triangle"])) for path, _ in true]
    made = []
    for name, labels in (("true", true), ("wrong", wrong)):
        lines = "".join(f"{path},{label}\n" for path, label in labels)
        (place / f"{name}.csv").write_text(f"path,label\n{lines}", encoding="utf-8")
        command = ("adapt", "labelled", "unlabelled", "--out", name, "--settings", "quick.toml")
        told = uniot(*command, "--target-labels", f"{name}.csv", folder=place).stdout
        assert "h_score" in told
        assert told.rstrip().endswith(f"uniot predict {name} photo.jpg  # label another")
        made.append(load_file(place / name / "model.safetensors"))
    for name, weights in load_file(place / "run" / "model.safetensors").items():
        if name == "history":  # has columns for the truth, which the test of the weights would not notice
            continue
        for other in made:
            torch.testing.assert_close(other[name], weights, rtol=0, atol=0, equal_nan=True)
    scores = [json.loads((place / name / "metrics.json").read_text())["h_score"] for name in ("true", "wrong")]
    assert scores[0] != scores[1]
    assert not (place / "run" / "metrics.json").exists()


def test_labels_from_folders_must_be_there_for_every_image(uniot, place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "other", "--target-labels", "folders")
    refused = uniot(*command, folder=place, code=1).stderr
    assert "1 of 25 images lie in no folder that could be their label, the first is 'broken.jpg'" in refused


@pytest.fixture
def with_unreadable_class(place, tmp_path) -> Path:
    """A folder whose only image of a class cannot be read, beside two other classes, and one that has one other."""
    for name, classes in (("two left", ["circle", "square"]), ("one left", ["circle"])):
        for one in classes:
            shutil.copytree(place / "labelled" / one, tmp_path / name / one)
        (tmp_path / name / "empty").mkdir()
        (tmp_path / name / "empty" / "a.jpg").write_bytes(b"no image at all")
    return tmp_path


def test_class_without_a_readable_image_is_named_with_the_file_that_was_skipped(uniot, place, with_unreadable_class):
    command = ("adapt", with_unreadable_class / "two left", "unlabelled", "--out", "lost", "--settings", "quick.toml")
    told = uniot(*command, folder=place).stdout
    assert "Warning: no image of 'empty' could be read, so the class is left out: empty/a.jpg (not an image" in told
    assert load_model(place / "lost").classes.tolist() == ["circle", "square"]


@pytest.mark.parametrize("command", ["adapt", "train-source"])
def test_single_class_that_can_be_read_is_refused_with_the_file_that_was_skipped(
    uniot, place, with_unreadable_class, command
):
    labelled = with_unreadable_class / "one left"
    arguments = ("adapt", labelled, "unlabelled", "--out", "o")
    if command == "train-source":
        arguments = (command, labelled, "--out", "o.safetensors")
    refused = uniot(*arguments, folder=place, code=1).stderr
    assert "Error: only one class has images that can be read, 'circle'." in refused
    assert "No image can be read of 'empty', such as empty/a.jpg (not an image" in refused
    assert "Reading unlabelled" not in refused


def test_every_stage_is_announced_before_it_begins(uniot, place):
    told = uniot("adapt", "labelled", "unlabelled", "--out", "stages", "--settings", "quick.toml", folder=place)
    lines = [line for line in told.stderr.splitlines() if line.endswith(" …")]
    assert lines == [
        "Loading PyTorch …",
        "Loading the network efficientnet_lite0 …",
        "Reading labelled: 24 images …",
        "Reading unlabelled: 25 images …",
        "Fitting UniOT …",
        "Looking for wrong labels and near-duplicates …",
        "Describing the groups …",
    ]
    assert told.stdout.splitlines()[1:3] == [
        "Labelled: 24 images of 3 classes in labelled.",
        "Unlabelled: 25 images in unlabelled.",
    ]


def test_strict_stops_at_an_unreadable_file(uniot, place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "strict", "--strict", "--settings", "quick.toml")
    assert "broken.jpg cannot be used (not an image" in uniot(*command, folder=place, code=1).stderr


def test_photograph_gets_one_line(uniot, place, adapted):
    row = answers(place / "run" / "predictions.csv")[0]
    line = uniot("predict", "run", "unlabelled/circle/00 é.png", folder=place).stdout
    said = f"{row['label']}, confidence {float(row['confidence']):.2f}"
    if row["known"] == "false":
        said += f"; group {row['group']}, group confidence {float(row['group_confidence']):.2f}"
        said += f"; nearest class {row['nearest_class']}"
    assert line == f"unlabelled/circle/00 é.png: {said}\n"


def test_photographs_get_a_line_each_and_what_is_none_is_told_apart(uniot, place, adapted):
    photographs = ("unlabelled/circle/00 é.png", "unlabelled/broken.jpg", "unlabelled/square/01 é.png")
    told = uniot("predict", "run", *photographs, folder=place)
    assert [line.partition(":")[0] for line in told.stdout.splitlines()] == [photographs[0], photographs[2]]
    assert "1 file could not be read: unlabelled/broken.jpg (not an image" in told.stderr


def test_photographs_are_written_to_a_table_as_they_were_given(uniot, place, adapted):
    photographs = ["unlabelled/circle/00 é.png", "unlabelled/square/00 é.png"]
    uniot("predict", "run", *photographs, "--out", "two.csv", folder=place)
    rows, fitted = answers(place / "two.csv"), {row["path"]: row for row in answers(place / "run" / "predictions.csv")}
    assert [row["path"] for row in rows] == photographs
    assert [row["label"] for row in rows] == [fitted[name.partition("/")[2]]["label"] for name in photographs]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("unlabelled/circle/00 é.png", "unlabelled"), "unlabelled is a folder. Several samples at a time must all be"),
        (("unlabelled/circle/00 é.png", "quick.toml"), "quick.toml is a file of another kind. Several samples"),
        (("nowhere.jpg",), "nowhere.jpg does not exist. Give images, a folder of images, a list file, or a file of em"),
        (("unlabelled/broken.jpg",), "unlabelled/broken.jpg cannot be used (not an image: none of JPEG, PNG, WebP, GI"),
        (
            ("lists/wrong.txt",),
            "the first is lists/circle/00 é.png (no such file or directory). Check that they are images",
        ),
        (("unlabelled", "--copy-to", "unlabelled/sorted"), "unlabelled/sorted lies in unlabelled, so that copies"),
        (("unlabelled/circle/00 é.png", "--copy-to", "labelled"), "labelled is the collection /"),
        (("unlabelled/circle/00 é.png", "--copy-to", "."), ". contains /"),
        (("unlabelled/circle/00 é.png", "--copy-to", "unlabelled/circle"), "unlabelled/circle lies in /"),
    ],
)
def test_what_cannot_be_predicted_is_told_and_leaves_standard_output_empty(uniot, place, adapted, arguments, words):
    (place / "lists").mkdir(exist_ok=True)
    (place / "lists" / "wrong.txt").write_text("circle/00 é.png\ncircle/01 é.png\n", encoding="utf-8")
    told = uniot("predict", "run", *arguments, folder=place, code=1)
    assert words in told.stderr
    assert "strict" not in told.stderr
    assert told.stdout == ""


def test_folder_of_new_photographs_is_answered_and_sorted(uniot, place, adapted):
    command = ("predict", "run", "unlabelled", "--out", "new.csv", "--copy-to", "sorted")
    told = uniot(*command, folder=place).stdout
    assert "1 file could not be read: broken.jpg (not an image" in told
    assert "See new.skipped.csv" in told
    assert [row["path"] for row in answers(place / "new.skipped.csv")] == ["broken.jpg"]
    assert "was not empty" not in told
    by_path = {row["path"]: row for row in answers(place / "run" / "predictions.csv")}
    again = {row["path"]: row for row in answers(place / "new.csv")}
    assert {path: row["label"] for path, row in again.items()} == {path: row["label"] for path, row in by_path.items()}
    assert len([path for path in (place / "sorted").rglob("*") if path.is_file()]) == 24
    again = uniot(*command, folder=place).stdout
    assert "sorted was not empty. Its files were kept" in again
    assert len([path for path in (place / "sorted").rglob("*") if path.is_file()]) == 24


def test_photograph_may_be_copied_to_a_folder_beside_it(uniot, place, adapted):
    photograph = next((place / "unlabelled" / "circle").iterdir())
    shutil.copy(photograph, place / "photo.png")
    told = uniot("predict", "run", "photo.png", "--copy-to", "beside", folder=place)
    assert "The images are sorted into folders in beside." in told.stderr
    (copy,) = (path for path in (place / "beside").rglob("*") if path.is_file())
    assert copy.read_bytes() == photograph.read_bytes()


def test_second_command_trains_nothing_and_other_names_are_another_run(uniot, place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "run", "--settings", "quick.toml")
    before = (place / "run" / "predictions.csv").read_bytes()
    again = uniot(*command, folder=place)
    assert "run is already finished; nothing was trained." in again.stdout
    assert "step" not in again.stderr
    (place / "lists").mkdir(exist_ok=True)
    names = [row["path"] for row in answers(place / "run" / "predictions.csv")]
    lines = "".join(f"../unlabelled/{name}\n" for name in names)
    (place / "lists" / "same.txt").write_text(lines, encoding="utf-8")
    command = ("adapt", "labelled", "lists/same.txt", "--out", "run", "--settings", "quick.toml")
    refused = uniot(*command, folder=place, code=1).stderr
    assert "the same samples under other names ('../unlabelled/circle/00 é.png' was 'circle/00 é.png')" in refused
    assert "Give another folder, or --overwrite to replace it." in refused
    assert (place / "run" / "predictions.csv").read_bytes() == before


def test_named_images_are_classes_of_the_next_run_which_knows_that_they_are_of_the_target(uniot, place):
    uniot("adapt", "labelled", "unlabelled", "--out", "first", folder=place)
    named = [row["path"] for row in answers(place / "first" / "predictions.csv") if row["path"].startswith("triangle")]
    assert len(named) > 3
    lines = ["path,label,decision", *(f"{path},triangle,named" for path in named)]
    (place / "first" / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = uniot("adapt", "--continue", "first", folder=place).stdout
    assert f"{len(named)} samples that you labelled keep their labels." in told
    model = load_model(place / "first-continued")
    assert model.method.fitted.get().metric.from_target.tolist() == (model.classes == "triangle").tolist()
    assert model.method.fitted.get().named is not None
    assert len(model.method.fitted.get().rejection.presence) == len(model.classes) - 1


def test_embeddings_of_images_give_the_same_answers(uniot, place, adapted):
    uniot("embed", "labelled", "--labelled", "--out", "labelled.npz", folder=place)
    told = uniot("embed", "unlabelled", "--out", "unlabelled.npz", folder=place).stdout
    assert "unlabelled.npz contains 24 embeddings of 1280 numbers by efficientnet_lite0." in told
    assert told.rstrip().endswith("none of JPEG, PNG, WebP, GIF, TIFF, BMP). See unlabelled.skipped.csv.")
    with np.load(place / "unlabelled.npz") as file:
        assert file["x"].shape == (24, 1280)
    command = ("adapt", "labelled.npz", "unlabelled.npz", "--out", "arrays", "--settings", "quick.toml")
    uniot(*command, folder=place)
    assert answers(place / "arrays" / "predictions.csv") == answers(place / "run" / "predictions.csv")


@pytest.mark.slow
def test_flip_averages_with_the_mirrored_images(uniot, place, tmp_path):
    for name in ("straight", "mirrored"):
        (tmp_path / name).mkdir()
    for path in (place / "labelled" / "stripes").iterdir():
        # A square, because the middle of other images may lie between two pixels.
        image = Image.open(path).crop((0, 0, 80, 80))
        image.save(tmp_path / "straight" / path.name)
        ImageOps.mirror(image).save(tmp_path / "mirrored" / path.name)
    told = uniot("embed", "straight", "--flip", "--out", "flipped.npz", folder=tmp_path).stdout
    assert "numbers by efficientnet_lite0, averaged with the mirrored images." in told
    for name in ("straight", "mirrored"):
        uniot("embed", name, "--out", f"{name}.npz", folder=tmp_path)
    flipped, straight, mirrored = (
        np.load(tmp_path / f"{name}.npz")["x"] for name in ("flipped", "straight", "mirrored")
    )
    np.testing.assert_allclose(flipped, (straight + mirrored) / 2, atol=0.02)
    assert np.abs(flipped - straight).max() > 0.1


@pytest.mark.slow
def test_run_with_flip_predicts_with_it(uniot, place):
    uniot("adapt", "labelled", "unlabelled", "--flip", "--out", "with-flip", folder=place)
    assert "\nflip = true\n" in (place / "with-flip" / "settings.toml").read_text(encoding="utf-8")
    uniot("predict", "with-flip", "unlabelled", "--out", "with-flip.csv", folder=place)
    columns = ("path", "label", "confidence", "group")
    first, again = (
        [tuple(row[name] for name in columns) for row in answers(place / path)]
        for path in ("with-flip/predictions.csv", "with-flip.csv")
    )
    assert first == again
    assert "--continue uses the network and the columns of the run" in uniot(
        "adapt", "--continue", "with-flip", "--no-flip", folder=place, code=1
    ).stderr.replace("\n", " ")
    settings = ("--settings", "with-flip/settings.toml")
    uniot("adapt", "labelled", "unlabelled", *settings, "--no-flip", "--out", "without-flip", folder=place)
    assert not load_model(place / "without-flip").reader.settings.flip


@pytest.mark.slow
def test_two_processes_end_with_the_answers_of_one(place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "two", "--settings", "quick.toml", "--devices", "2")
    process = started(*command, folder=place)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert told.count("Every prediction is in") == 1
    one, two = (answers(place / name / "predictions.csv") for name in ("run", "two"))
    for first, second in zip(one, two, strict=True):
        assert (first["path"], first["label"], first["nearest_class"]) == (
            second["path"],
            second["label"],
            second["nearest_class"],
        )
        # The rule magnifies differences of the cosines a hundredfold (1 / ε).
        assert float(first["confidence"]) == pytest.approx(float(second["confidence"]), abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("labelled", "nowhere"), "nowhere does not exist. Give a folder of images"),
        (("labelled", "quick.toml"), "labelled contains images, but quick.toml embeddings"),
        (("labelled", "unlabelled", "--devices", "none"), "--devices is 'none'. Give a number of processes"),
        (
            ("labelled", "unlabelled", "--backbone", "resnet5"),
            "there is no backbone called 'resnet5'. Similar names are",
        ),
        (
            ("labelled", "unlabelled", "--flip", "--fine-tune", "last"),
            "flip averages the embeddings of a frozen",
        ),
        (("labelled", "unlabelled", "--resume"), "contains no interrupted run. Leave --resume out to start one"),
        (("labelled", "unlabelled", "--precision", "bf16-mixed"), "precision is 'bf16-mixed' and there is no GPU"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(uniot, place, arguments, words):
    assert words in uniot("adapt", *arguments, "--out", "refused", folder=place, code=1).stderr.replace("\n", " ")
    assert not (place / "refused").exists()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.slow
def test_ctrl_c_while_images_are_read_is_told_and_what_was_computed_is_kept(place, tmp_path):
    image = next((place / "labelled" / "circle").iterdir()).read_bytes()
    for number in range(150):
        (tmp_path / f"{number}.png").write_bytes(image + str(number).encode())
    command = [sys.executable, "-m", "uniot", "embed", ".", "--out", "new/x.npz"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "UNIOT_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    # A line that names a speed: the first batch is back.
    while "images/s" not in (line := process.stderr.readline()):
        assert line.endswith(" …\n") or line.startswith("Reading .: image ")
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert told.endswith("\nInterrupted. Finished work is kept; the same command continues from there.\n")
    assert "Traceback" not in told
    assert not (tmp_path / "new").exists()
    (store,) = (tmp_path / "cache").rglob("*.sqlite")
    with closing(sqlite3.connect(store)) as kept:
        assert 0 < kept.execute("SELECT count(*) FROM rows").fetchone()[0] < 150


@pytest.mark.slow
def test_killed_at_any_moment_goes_on_to_the_same_predictions(uniot, place, adapted, tmp_path):
    moments = random.Random(0)
    expected = (place / "run" / "predictions.csv").read_bytes()
    folder = tmp_path / "again"
    folder.mkdir()
    for name in ("labelled", "unlabelled"):
        (folder / name).symlink_to(place / name)
    shutil.copy(place / "quick.toml", folder)
    command = ("adapt", "labelled", "unlabelled", "--out", "run", "--settings", "quick.toml")
    for _ in range(4):
        with started(*command, folder=folder) as process:
            time.sleep(moments.uniform(1, 6))
            process.send_signal(signal.SIGKILL)
    uniot(*command, folder=folder)
    assert (folder / "run" / "predictions.csv").read_bytes() == expected
    assert [path.name for path in (folder / "run").iterdir() if path.name.endswith(".partial")] == []


IMPORTS = """
import sys

from uniot.cli import main

sys.argv = ["uniot", *sys.argv[1:]]
try:
    main()
finally:
    heavy = {"timm", "torchvision", "scipy", "sklearn", "onnx", "torch", "onnxruntime"}
    print("imported:", *sorted(heavy & set(sys.modules)))
"""


@pytest.mark.slow
def test_predicting_builds_no_network_once_its_graph_is_cached(uniot, place, adapted):
    photograph = next((place / "unlabelled").rglob("*.png"))
    expected = uniot("predict", "run", photograph, folder=place).stdout
    environment = os.environ | {"OMP_NUM_THREADS": "1", "UNIOT_CACHE": str(place / "cache")}
    command = [sys.executable, "-c", IMPORTS, "predict", "run", str(photograph)]
    # The first fills the cache, if this process has not.
    for _ in range(2):
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}imported: onnxruntime torch\n"


def test_wrong_label_and_resized_copy_are_listed(uniot, place, tmp_path):
    for name in ("labelled", "unlabelled"):
        shutil.copytree(place / name, tmp_path / name)
    with Image.open(tmp_path / "labelled" / "circle" / "00 é.png") as picture:
        picture.resize((192, 160)).save(tmp_path / "unlabelled" / "copy.png")
    (tmp_path / "labelled" / "stripes" / "03 é.png").rename(tmp_path / "labelled" / "square" / "moved.png")
    uniot("adapt", "labelled", "unlabelled", "--out", "run", folder=tmp_path)
    pairs = answers(tmp_path / "run" / "near_duplicates.csv")
    between = [(one["first"], one["second"]) for one in pairs if one["where"] == "both"]
    assert between == [("circle/00 é.png", "copy.png")]
    suspects = answers(tmp_path / "run" / "suspect_labels.csv")
    assert (suspects[0]["sample"], suspects[0]["suggested"]) == ("square/moved.png", "stripes")
