"""The commands as they are typed, with what they print, write and refuse."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from uniot.datasets import ToyDomains, make_toy_domains
from uniot.io.files import only_one_writer
from uniot.io.predictions import read_predictions
from uniot.io.tensor_files import read_tensors

FILES = {"settings.toml", "model.safetensors", "features.safetensors", "predictions.csv", "contents.txt"}
SETTINGS = 'method = "uniot"\nsteps = 60\nhidden_size = 64\nfeature_size = 32\ndetection_start = 20\nqueue_size = 400\n'


@pytest.fixture(scope="module")
def toy() -> ToyDomains:
    return make_toy_domains(seed=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, toy: ToyDomains) -> Path:
    folder = tmp_path_factory.mktemp("files")
    ids = [f"ünï cödé/{i}, photo.jpg" for i in range(len(toy.x_target))]
    np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(folder / "target.npz", x=toy.x_target, ids=ids)
    np.savez(folder / "truth.npz", y=toy.oracle_y_target)
    np.savez(folder / "new.npz", x=toy.x_target[:5])
    (folder / "small.toml").write_text(SETTINGS)
    return folder


@pytest.fixture(scope="module")
def adapt(uniot: Callable, files: Path) -> Callable:
    """Runs `uniot adapt` on the files; takes the folder of the run, and more options."""
    command = ("adapt", files / "source.npz", files / "target.npz", "--settings", files / "small.toml")
    return lambda out, *more: uniot(*command, "--out", out, *more)


@pytest.fixture(scope="module")
def run(adapt: Callable, files: Path) -> Path:
    done = adapt(files / "run")
    assert done.code == 0, done.stderr
    return files / "run"


def test_help_loads_nothing_heavy_and_names_every_command() -> None:
    heavy = ("torch", "sklearn", "scipy", "pandas", "numpy", "pydantic", "uniot.config")
    program = (
        "import sys; sys.argv = ['uniot', '--help']\nfrom uniot.cli import main\ntry:\n    main()\n"
        f"finally:\n    print([m for m in {heavy} if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert all(name in answer.stdout for name in ("demo", "adapt", "predict", "evaluate"))
    assert answer.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["demo", "adapt", "predict", "evaluate"])
def test_every_command_has_help_with_an_example(uniot: Callable, command: str) -> None:
    answer = uniot(command, "--help")
    assert f"uniot {command}" in answer.stdout
    assert "Example" in answer.stdout


def test_flags_are_shown_without_a_type(uniot: Callable) -> None:
    for arguments in ((), ("adapt",), ("predict",), ("data", "check")):
        told = uniot(*arguments, "--help").stdout
        assert "--help" in told
        assert "<bool>" not in told


@pytest.mark.parametrize("arguments", [("predict", "run"), ("nonsense",), ("predict", "run", "x", "--nonsense")])
def test_wrong_usage_ends_with_two(uniot: Callable, arguments: tuple[str, ...]) -> None:
    answer = uniot(*arguments)
    assert answer.code == 2
    assert "Usage:" in answer.stderr


def test_ctrl_c_outside_of_training_is_told_in_a_sentence(uniot: Callable, tmp_path: Path) -> None:
    with mock.patch("uniot.datasets.catalogue.benchmark_set", side_effect=KeyboardInterrupt):
        answer = uniot("data", "check", "office31", tmp_path)
    assert answer.code == 130
    assert answer.stderr == "\nInterrupted. Finished work is kept; the same command continues from there.\n"


def test_adapt_writes_the_run_folder(run: Path, toy: ToyDomains) -> None:
    names = {path.name for path in run.iterdir()}
    assert names == {*FILES, "history.csv"}
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "label", "known", "confidence", "nearest_class", "group", "group_confidence"]
    assert len(rows) == len(toy.x_target)
    assert rows[3]["path"] == "ünï cödé/3, photo.jpg"
    for row in rows:
        assert (row["label"] == "unknown") == (row["known"] == "false") == (row["group"] != "")
        assert row["known"] == "true" or float(row["confidence"]) >= 0.5
        if row["known"] == "true":
            assert row["label"] == row["nearest_class"]
    history = (run / "history.csv").read_text().splitlines()
    assert history[0].startswith("step,learning_rate,loss,loss_source,loss_common,loss_private")
    assert len(history) == 61


def test_a_run_says_what_it_keeps_of_the_target(uniot: Callable, files: Path, tmp_path: Path) -> None:
    command = ("adapt", files / "source.npz", files / "target.npz", "--out")
    kept, forgot = uniot(*command, tmp_path / "kept"), uniot(*command, tmp_path / "forgot", "--forget-target")
    assert "New samples will be compared with these 150, which the run keeps" in " ".join(kept.stdout.split())
    averages = "averages of at least 5 target samples each"
    assert f"{averages}; no single sample is kept (--forget-target)" in " ".join(forgot.stdout.split())
    assert {path.name for path in (tmp_path / "kept").iterdir()} == FILES
    texts = [" ".join((tmp_path / name / "contents.txt").read_text().split()) for name in ("kept", "forgot")]
    # 150 rows of 32 numbers of two bytes, and a number of four bytes for each of 6 neighbours and the sample itself.
    assert f"{(150 * (32 * 2 + 7 * 4)) / 1000:.3g} kB of that is 150 target samples, 32 numbers each" in texts[0]
    assert "--forget-target (store_target=False in Python) leaves them out" in texts[0]
    assert "of weights and of the rule; no single sample is in it, but " in texts[1]
    assert f"{averages}, and a linear map fitted to all of them" in texts[1]
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("kept", "forgot")]
    assert sizes[0] - sizes[1] > 13_000


def test_names_of_all_rounds_are_gone_on_with(uniot: Callable, files: Path, toy: ToyDomains, tmp_path: Path) -> None:
    np.savez(tmp_path / "target.npz", x=toy.x_target)
    assert uniot("adapt", files / "source.npz", tmp_path / "target.npz", "--out", tmp_path / "run").code == 0
    run, private = tmp_path / "run", sorted(set(toy.oracle_y_target) - set(toy.y_source))
    for name in private:
        rows = np.flatnonzero(toy.oracle_y_target == name)[:8]
        lines = ["path,label,decision", *(f"{row},{name},named" for row in rows)]
        (run / "labels.csv").write_text("\n".join(lines) + "\n")
        done = uniot("adapt", "--continue", run)
        assert done.code == 0, done.stderr
        run = run.with_name(f"{run.name}-continued")
    labels = read_predictions(run / "predictions.csv").labels
    assert set(labels.tolist()) >= set(private)
    assert (labels == toy.oracle_y_target).mean() > 0.95
    assert (run / "names.csv").read_text().count(",named") == 8 * len(private)


def test_few_samples_and_what_forms_no_class_are_told(
    uniot: Callable, files: Path, toy: ToyDomains, tmp_path: Path
) -> None:
    np.savez(tmp_path / "few.npz", x=toy.x_target[::5])
    told = " ".join(
        uniot("adapt", files / "source.npz", tmp_path / "few.npz", "--out", tmp_path / "run").stdout.split()
    )
    assert "Warning: only 30 target samples; results are unreliable below 100." in told
    assert re.search(r"Estimated without labels: \d+ % of the predictions are right", told)


def test_steps_that_are_not_taken_are_told(uniot: Callable, files: Path, tmp_path: Path) -> None:
    command = ("adapt", files / "source.npz", files / "target.npz", "--out")
    told = " ".join(uniot(*command, tmp_path / "run", "--steps", 50).stdout.split())
    assert "Warning: unincm trains nothing but a network, if there is one to train, so that 50 steps" in told
    assert "50 steps" not in uniot(*command, tmp_path / "again").stdout


def test_the_last_lines_of_adapt_say_what_came_out_and_what_is_next(adapt: Callable, tmp_path: Path) -> None:
    printed = adapt(tmp_path / "run").stdout
    assert "known," in printed
    assert "unknown in" in printed
    assert "Next: uniot report" in printed
    assert "uniot predict" in printed


def test_settings_of_a_run_repeat_it(uniot: Callable, files: Path, run: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    command = ("adapt", files / "source.npz", files / "target.npz", "--out", again)
    assert uniot(*command, "--settings", run / "settings.toml").code == 0
    assert (again / "predictions.csv").read_text() == (run / "predictions.csv").read_text()


def test_the_same_command_again_finds_the_finished_run(adapt: Callable, run: Path) -> None:
    before = (run / "model.safetensors").stat().st_mtime_ns, (run / "predictions.csv").read_bytes()
    again = adapt(run)
    assert again.code == 0
    assert f"{run} is already finished; nothing was trained." in again.stdout
    assert "step 60/60" not in again.stderr
    assert (run / "predictions.csv").read_bytes() == before[1]


def test_another_run_in_the_folder_is_kept_unless_told_otherwise(adapt: Callable, tmp_path: Path) -> None:
    out = tmp_path / "run"
    adapt(out)
    refused = adapt(out, "--seed", 5)
    assert refused.code == 1
    assert "contains a finished run of other data or other settings" in refused.stderr
    assert adapt(out, "--seed", 5, "--overwrite").code == 0
    assert "seed = 5" in (out / "settings.toml").read_text()


def test_same_embeddings_under_other_names_are_another_run(
    uniot: Callable, adapt: Callable, files: Path, toy: ToyDomains, tmp_path: Path
) -> None:
    adapt(tmp_path / "run")
    np.savez(tmp_path / "target.npz", x=toy.x_target)
    command = ("adapt", files / "source.npz", tmp_path / "target.npz", "--out", tmp_path / "run")
    refused = uniot(*command, "--settings", files / "small.toml")
    assert refused.code == 1
    assert "of the same samples under other names ('0' was 'ünï cödé/0, photo.jpg')" in refused.stderr


def test_too_few_steps_for_the_detection_are_told(adapt: Callable, tmp_path: Path) -> None:
    words = "detection trains from step 22 on (detection_start = 20), and this run ends with step 21, so it never does"
    assert words in " ".join(adapt(tmp_path / "few", "--steps", 21).stdout.split())
    assert "trains from step" not in adapt(tmp_path / "enough", "--steps", 22).stdout
    history = (tmp_path / "enough" / "history.csv").read_text().splitlines()
    detected = history[0].split(",").index("loss_common")
    assert [float(line.split(",")[detected]) > 0 for line in history[-2:]] == [False, True]


def test_error_leaves_nothing_on_standard_output(uniot: Callable, run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "narrow.npz", x=np.ones((3, 2)))
    answer = uniot("predict", run, tmp_path / "narrow.npz")
    assert answer.code == 1
    assert answer.stdout == ""


@pytest.fixture
def named(run: Path, toy: ToyDomains, tmp_path: Path) -> Path:
    """A copy of the run in which somebody named one group, corrected one sample and discarded another."""
    folder = tmp_path / "named"
    shutil.copytree(run, folder)
    names = read_predictions(folder / "predictions.csv").names
    new = np.flatnonzero(toy.oracle_y_target == "target-0")
    lines = [(names[row], "gadget", "named", 0) for row in new]
    lines += [(names[0], toy.y_source[0], "class", ""), (names[1], "", "discarded", "")]
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("path", "label", "decision", "group"), *lines])
    return folder


def test_continue_takes_the_names_as_classes_and_goes_on(uniot: Callable, named: Path, toy: ToyDomains) -> None:
    done = uniot("adapt", "--continue", named, "--steps", 60)
    assert done.code == 0, done.stderr
    out = named.with_name("named-continued")
    answers = read_predictions(out / "predictions.csv")
    before = read_predictions(named / "predictions.csv").names
    assert answers.names == [before[0], *before[2:]]
    is_gadget = np.delete(toy.oracle_y_target == "target-0", 1)
    assert set(answers.labels[is_gadget]) == {"gadget"}
    n_labelled = int(is_gadget.sum()) + 1
    kept = f"{n_labelled} samples that you labelled keep their labels. 1 sample that you discarded is left out."
    assert kept in done.stdout


def test_a_method_that_cannot_continue_says_so_before_anything_is_read(uniot: Callable, named: Path) -> None:
    done = uniot("adapt", "--continue", named, "--method", "dance")
    assert done.code == 1
    assert "dance cannot continue from the weights of another run" in done.stderr
    assert "Unlabelled:" not in done.stdout
    assert not named.with_name("named-continued").exists()


def test_names_begin_anew_with_new_classes(adapt: Callable, named: Path, tmp_path: Path) -> None:
    done = adapt(tmp_path / "anew", "--names", named / "labels.csv")
    assert done.code == 0, done.stderr
    assert "gadget" in read_tensors(tmp_path / "anew" / "model.safetensors")[1]["classes"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("x.npz",), "--continue takes the collections and the names from the run"),
        (("--names", "labels.csv"), "--continue takes the collections and the names from the run"),
        (("--backbone", "resnet18"), "--continue uses the network and the columns of the run"),
    ],
)
def test_continue_refuses_what_the_run_decides(uniot: Callable, named: Path, more: tuple[str, ...], words: str) -> None:
    done = uniot("adapt", *more, "--continue", named)
    assert done.code == 1
    assert words in done.stderr


def test_continue_without_names_says_how_to_give_them(uniot: Callable, run: Path) -> None:
    done = uniot("adapt", "--continue", run)
    assert done.code == 1
    assert "uniot label" in done.stderr


def test_adapt_without_collections_shows_both_ways(uniot: Callable, tmp_path: Path) -> None:
    done = uniot("adapt", "--out", tmp_path / "run")
    assert done.code == 1
    assert "uniot adapt labelled/ unlabelled/ --out" in done.stderr
    assert "--continue" in done.stderr


def test_predict_prints_a_table_that_pipes(uniot: Callable, files: Path, run: Path) -> None:
    answer = uniot("predict", run, files / "new.npz")
    rows = list(csv.DictReader(answer.stdout.splitlines()))
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        fitted = list(csv.DictReader(file))[:5]
    assert [row["label"] for row in rows] == [row["label"] for row in fitted]
    assert "known" in answer.stderr


def test_predict_writes_a_file(uniot: Callable, files: Path, run: Path, tmp_path: Path) -> None:
    answer = uniot("predict", run, files / "new.npz", "--out", tmp_path / "new.csv")
    assert answer.code == 0
    assert len((tmp_path / "new.csv").read_text().splitlines()) == 6


@pytest.mark.parametrize("form", ["npz", "npy", "csv", "txt"])
def test_evaluate_reads_the_truth_in_several_forms(
    uniot: Callable, run: Path, toy: ToyDomains, tmp_path: Path, form: str
) -> None:
    truth = tmp_path / f"truth.{form}"
    if form == "npz":
        np.savez(truth, y=toy.oracle_y_target)
    elif form == "npy":
        np.save(truth, toy.oracle_y_target)
    elif form == "csv":
        with truth.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "label"])
            names = [f"ünï cödé/{i}, photo.jpg" for i in range(len(toy.x_target))]
            writer.writerows(reversed(list(zip(names, toy.oracle_y_target, strict=True))))
    else:
        truth.write_text("\n".join(toy.oracle_y_target))
    answer = uniot("evaluate", run, "--labels", truth)
    assert answer.code == 0, answer.stderr
    metrics = json.loads((run / "metrics.json").read_text())
    assert sum(sum(given.values()) for given in metrics["confusion"].values()) == metrics["counts"]["rows"]
    assert metrics["h_score"] > 0.8
    assert "h_score" in answer.stdout
    (run / "metrics.json").unlink()


def test_truth_that_is_no_text_is_answered_with_what_to_give(uniot: Callable, run: Path, tmp_path: Path) -> None:
    (tmp_path / "truth.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    answer = uniot("evaluate", run, "--labels", tmp_path / "truth.jpg")
    assert answer.code == 1
    assert "truth.jpg is not UTF-8 text. Give the true labels as an .npz with y, an .npy" in answer.stderr


def test_pulled_run_has_nothing_to_evaluate(uniot: Callable, run: Path, files: Path, tmp_path: Path) -> None:
    assert uniot("push", run, tmp_path / "shared").code == 0
    assert uniot("pull", tmp_path / "shared", "--out", tmp_path / "copy").code == 0
    answer = uniot("evaluate", tmp_path / "copy", "--labels", files / "truth.npz")
    assert answer.code == 1
    assert "copy was shared without its target, so there is nothing to evaluate" in answer.stderr
    assert "photos/ --out new.csv" in answer.stderr


def test_integer_classes_go_through_all_commands(uniot: Callable, toy: ToyDomains, files: Path, tmp_path: Path) -> None:
    every = np.unique(np.concatenate([toy.y_source, toy.oracle_y_target]))
    np.savez(tmp_path / "source.npz", x=toy.x_source, y=np.searchsorted(every, toy.y_source))
    (tmp_path / "truth.txt").write_text("\n".join(map(str, np.searchsorted(every, toy.oracle_y_target))))
    command = ("adapt", tmp_path / "source.npz", files / "target.npz", "--out", tmp_path / "run")
    assert uniot(*command, "--settings", files / "small.toml").code == 0
    assert ",-1,false," in (tmp_path / "run" / "predictions.csv").read_text()
    assert uniot("evaluate", tmp_path / "run", "--labels", tmp_path / "truth.txt").code == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.write_bytes(b"not a zip"), "is not an .npz file"),
        (lambda p: np.savez(p, features=np.ones((3, 2)), z=1), "contains no labels"),
        (lambda p: np.savez(p, z=np.ones(3)), "holds z and no array called x"),
        (lambda p: np.savez(p, x=np.array([{}, 1], dtype=object)), "object array.*never"),
        (lambda p: np.savez(p, x=np.ones((3, 2)), y=[1, 2, 3], ids=["a"]), "1 ids for 3 rows"),
        (lambda p: p.mkdir(), "contains images, but .* embeddings"),
    ],
)
def test_a_wrong_source_file_is_refused_in_a_sentence(
    uniot: Callable, make, words: str, files: Path, tmp_path: Path
) -> None:
    make(tmp_path / "source.npz")
    answer = uniot("adapt", tmp_path / "source.npz", files / "target.npz", "--out", tmp_path / "run")
    assert answer.code == 1
    assert answer.stderr.removeprefix("Loading PyTorch …\n").startswith("Error: ")
    assert "Traceback" not in answer.stderr
    assert re.search(words, answer.stderr.replace("\n", " "))


def test_collection_with_a_similar_name_is_suggested_at_once(uniot: Callable, files: Path) -> None:
    answer = uniot("adapt", files / "sorce.npz", files / "target.npz", "--out", files / "run")
    assert answer.stderr == f"Error: {files / 'sorce.npz'} does not exist. Did you mean {files / 'source.npz'}?\n"


def test_a_cut_off_file_is_refused(uniot: Callable, files: Path, tmp_path: Path) -> None:
    whole = (files / "source.npz").read_bytes()
    (tmp_path / "source.npz").write_bytes(whole[: len(whole) // 2])
    answer = uniot("adapt", tmp_path / "source.npz", files / "target.npz", "--out", tmp_path / "run")
    assert answer.code == 1
    assert "cannot be read as a NumPy file" in answer.stderr


def test_wrong_settings_are_named(uniot: Callable, files: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("stepz = 3\n")
    command = ("adapt", files / "source.npz", files / "target.npz", "--out", tmp_path / "run")
    answer = uniot(*command, "--settings", tmp_path / "wrong.toml")
    assert answer.code == 1
    assert "there is no setting called 'stepz'" in answer.stderr


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda run: (run / "model.safetensors").unlink(), "does not exist"),
        (lambda run: (run / "model.safetensors").write_bytes(b"\0" * 100), "cannot be read"),
        (lambda run: _flip_a_byte(run / "model.safetensors"), "does not match its own checksum"),
        (lambda run: (run / "features.safetensors").unlink(), "does not exist"),
    ],
)
def test_a_damaged_run_folder_is_refused(
    uniot: Callable, harm, words: str, run: Path, files: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in run.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    harm(copy)
    answer = uniot("predict", copy, files / "new.npz")
    assert answer.code == 1
    assert words in answer.stderr.replace("\n", " ")


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(bytes(content))


def test_an_unfinished_run_is_named(uniot: Callable, files: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    answer = uniot("predict", tmp_path / "run", files / "new.npz")
    assert "contains an unfinished run" in answer.stderr


def test_an_output_folder_that_cannot_be_made_is_named(adapt: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = adapt(tmp_path / "file" / "run")
    assert answer.code == 1
    assert f"{tmp_path / 'file'} is a file, so nothing can be written to" in answer.stderr


def test_a_second_process_is_kept_out(adapt: Callable, tmp_path: Path) -> None:
    with only_one_writer(tmp_path / "run"):
        answer = adapt(tmp_path / "run")
    assert answer.code == 1
    assert "another uniot process is writing" in answer.stderr


@pytest.mark.usefixtures("interruptible")
@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_ends_like_an_undisturbed_run(
    uniot: Callable, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "longer.toml").write_text(SETTINGS.replace("steps = 60", "steps = 300"))

    def command(out: Path) -> list[str]:
        names = ["adapt", files / "source.npz", files / "target.npz", "--out", out]
        return [sys.executable, "-m", "uniot", *map(str, [*names, "--settings", tmp_path / "longer.toml"])]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True, env=environment)
    process = subprocess.Popen(command(tmp_path / "cut"), stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    while "Training: step" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    remaining = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "run the same command again to continue" in remaining
    unfinished = uniot("predict", tmp_path / "cut", files / "new.npz")
    assert "contains an unfinished run" in unfinished.stderr
    subprocess.run(command(tmp_path / "cut"), check=True, capture_output=True, env=environment)
    for name in ("predictions.csv", "history.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    cut, whole = (read_tensors(tmp_path / name / "model.safetensors") for name in ("cut", "whole"))
    assert cut[1] == whole[1]
    for name, tensor in whole[0].items():
        torch.testing.assert_close(cut[0][name], tensor, rtol=0, atol=0, equal_nan=True)


def test_wrong_labels_and_copies_are_listed_and_counted_in_the_last_lines(
    uniot: Callable, toy: ToyDomains, tmp_path: Path
) -> None:
    labels, target = toy.y_source.copy(), toy.x_target.copy()
    other = next(name for name in labels if name != labels[5])
    labels[5], target[9] = other, toy.x_source[0]
    np.savez(tmp_path / "source.npz", x=toy.x_source, y=labels, ids=[f"s{row}" for row in range(len(labels))])
    np.savez(tmp_path / "target.npz", x=target)
    out = tmp_path / "run"
    command = ("adapt", tmp_path / "source.npz", tmp_path / "target.npz", "--out", out)
    first, again = uniot(*command), uniot(*command)
    for done in (first, again):
        assert f"1 source label looks wrong, marked clear in {out / 'suspect_labels.csv'}" in done.stdout
        assert "1 pair of samples is nearly the same (1 between the two, 1 of which got the label of" in done.stdout
    with (out / "suspect_labels.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert (line["sample"], line["label"], line["suggested"]) == ("s5", str(other), str(toy.y_source[5]))
    np.savez(tmp_path / "source.npz", x=toy.x_source, y=toy.y_source)
    assert uniot(*command, "--overwrite").code == 0
    assert not (out / "suspect_labels.csv").exists()
