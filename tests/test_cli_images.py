from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from uniot.cli import main

QUICK = """\
steps = 60
batch_size = 6
queue_size = 12
n_clusters = 4
hidden_size = 64
feature_size = 32
detection_start = 20
checkpoint_every = 5
"""


@dataclass(frozen=True)
class Answer:
    stdout: str
    stderr: str


def uniot(*arguments: object, folder: Path, code: int = 0) -> Answer:
    """Runs a command in a folder, in this process: importing torch and timm anew takes seconds."""
    out, err, left, before = io.StringIO(), io.StringIO(), 0, Path.cwd()
    environment = {"COLUMNS": "200", "UNIOT_CACHE": str(folder / "cache")}
    os.chdir(folder)
    try:
        with (
            mock.patch.object(sys, "argv", ["uniot", *map(str, arguments)]),
            mock.patch.dict(os.environ, environment),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            main()
    except SystemExit as stop:
        left = int(stop.code or 0)
    finally:
        os.chdir(before)
    assert left == code, err.getvalue()
    return Answer(out.getvalue(), err.getvalue())


def started(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """The same in a process of its own."""
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
def adapted(place) -> str:
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
    assert "1 file could not be read, broken.jpg first (not an image" in adapted
    assert "Next: uniot predict run photo.jpg" in adapted


def test_scores_need_labels_and_only_scores_do(place, adapted):
    rows = answers(place / "run" / "predictions.csv")
    true = [(row["path"], row["path"].partition("/")[0]) for row in rows] + [("broken.jpg", "circle")]
    wrong = [(path, random.Random(path).choice(["circle", "triangle"])) for path, _ in true]
    made = []
    for name, labels in (("true", true), ("wrong", wrong)):
        lines = "".join(f"{path},{label}\n" for path, label in labels)
        (place / f"{name}.csv").write_text(f"path,label\n{lines}", encoding="utf-8")
        command = ("adapt", "labelled", "unlabelled", "--out", name, "--settings", "quick.toml")
        assert "h_score" in uniot(*command, "--target-labels", f"{name}.csv", folder=place).stdout
        made.append(load_file(place / name / "model.safetensors"))
    for name, weights in load_file(place / "run" / "model.safetensors").items():
        for other in made:
            torch.testing.assert_close(other[name], weights, rtol=0, atol=0, equal_nan=True)
    scores = [json.loads((place / name / "metrics.json").read_text())["h_score"] for name in ("true", "wrong")]
    assert scores[0] != scores[1]
    assert not (place / "run" / "metrics.json").exists()


def test_labels_from_folders_must_be_there_for_every_image(place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "other", "--target-labels", "folders")
    refused = uniot(*command, folder=place, code=1).stderr
    assert "1 of 25 images lie in no folder that could be their label, 'broken.jpg' first" in refused


def test_strict_stops_at_an_unreadable_file(place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "strict", "--strict", "--settings", "quick.toml")
    assert "broken.jpg cannot be used (not an image" in uniot(*command, folder=place, code=1).stderr


def test_photograph_gets_one_line(place, adapted):
    line = uniot("predict", "run", "unlabelled/circle/00 é.png", folder=place).stdout
    row = answers(place / "run" / "predictions.csv")[0]
    assert line.count("\n") == 1
    assert line.startswith(f"unlabelled/circle/00 é.png: {row['label']}")


def test_folder_of_new_photographs_is_answered_and_sorted(place, adapted):
    command = ("predict", "run", "unlabelled", "--out", "new.csv", "--copy-to", "sorted")
    told = uniot(*command, folder=place).stdout
    assert "1 could not be read, broken.jpg first (not an image" in told
    by_path = {row["path"]: row for row in answers(place / "run" / "predictions.csv")}
    again = {row["path"]: row for row in answers(place / "new.csv")}
    assert {path: row["label"] for path, row in again.items()} == {path: row["label"] for path, row in by_path.items()}
    assert len([path for path in (place / "sorted").rglob("*") if path.is_file()]) == 24


def test_embeddings_of_images_give_the_same_answers(place, adapted):
    uniot("embed", "labelled", "--labelled", "--out", "labelled.npz", folder=place)
    told = uniot("embed", "unlabelled", "--out", "unlabelled.npz", folder=place).stdout
    assert "24 embeddings of 1280 numbers by efficientnet_lite0 are in unlabelled.npz." in told
    assert "1 file could not be read: see unlabelled.skipped.csv" in told
    with np.load(place / "unlabelled.npz") as file:
        assert file["x"].shape == (24, 1280)
    command = ("adapt", "labelled.npz", "unlabelled.npz", "--out", "arrays", "--settings", "quick.toml")
    uniot(*command, folder=place)
    assert answers(place / "arrays" / "predictions.csv") == answers(place / "run" / "predictions.csv")


@pytest.mark.slow
def test_two_processes_end_with_the_answers_of_one(place, adapted):
    command = ("adapt", "labelled", "unlabelled", "--out", "two", "--settings", "quick.toml", "--devices", "2")
    process = started(*command, folder=place)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert told.count("Every answer is in") == 1
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
        (("labelled", "quick.toml"), "labelled holds images and quick.toml embeddings"),
        (("labelled", "unlabelled", "--devices", "none"), "--devices is 'none'. Give how many processes"),
        (("labelled", "unlabelled", "--backbone", "resnet5"), "there is no backbone called 'resnet5'. Near it are"),
        (("labelled", "unlabelled", "--resume"), "holds no interrupted run. Leave --resume out to begin one"),
        (("labelled", "unlabelled", "--precision", "bf16-mixed"), "precision is 'bf16-mixed' and there is no GPU"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(place, arguments, words):
    assert words in uniot("adapt", *arguments, "--out", "refused", folder=place, code=1).stderr.replace("\n", " ")


@pytest.mark.slow
def test_killed_at_any_moment_goes_on_to_the_same_predictions(place, adapted, tmp_path):
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
