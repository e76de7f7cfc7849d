"""`Run` as a user has it: predictions, scores and a report from a folder; and its writer."""

from __future__ import annotations

import ast
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import uniot
from uniot import Run, UniOT, evaluate
from uniot.config import ImageSettings
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.export.hub import pull, push
from uniot.io.files import file_lock, write_text
from uniot.io.predictions import COLUMNS
from uniot.runs import RunFiles

PACKAGE = Path(uniot.__file__).parent


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(seed=1)


@pytest.fixture(scope="module")
def fitted(toy):
    model = UniOT(steps=20, hidden_size=16, n_private_classes=2, random_state=0)
    return model.fit(toy.x_source, toy.y_source, toy.x_target)


@pytest.fixture
def folder(fitted, tmp_path):
    names = [f"{row:03d}.jpg" for row in range(len(fitted.labels_))]
    with Run.writer(tmp_path / "run") as writer:
        writer.save(fitted.model_, names, {"source": "/data/a.npz"})
    return tmp_path / "run"


# --- reading ----------------------------------------------------------------------------------------------


def test_run_has_predictions_settings_and_a_model(folder, fitted, toy):
    run = Run.open(str(folder))
    assert run.predictions.labels.tolist() == fitted.labels_.astype(str).tolist()
    assert run.predictions.names[:2] == ["000.jpg", "001.jpg"]
    assert len(run.predictions) == run.n_target == len(toy.x_target)
    assert run.settings == fitted.settings_
    assert run.inputs == {"source": "/data/a.npz"}
    assert run.image_settings is None
    assert (run.model.labels(run.model.target) == fitted.labels_).all()
    assert run.files.predictions == folder / "predictions.csv"


def test_predictions_become_a_data_frame(folder):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(Run.open(folder).predictions.to_dict())
    read = pandas.read_csv(folder / "predictions.csv")
    assert tuple(table.columns) == COLUMNS
    assert table["label"].tolist() == read["label"].astype(str).tolist()


def test_model_is_not_loaded_before_it_is_used(folder, monkeypatch):
    monkeypatch.setattr("uniot.runs.run.load_model", lambda _: pytest.fail("the model was loaded"))
    run = Run.open(folder)
    assert len(run.predictions)
    assert run.settings.method == "uniot"


def test_preference_changes_predictions_and_model_but_not_the_folder(folder):
    run = Run.open(folder, private_prior=0.8)
    assert (~run.predictions.known).mean() == pytest.approx(0.8, abs=0.02)
    assert run.predictions.known.tolist() == run.model.target.known.tolist()
    assert Run.open(folder).predictions.known.mean() != run.predictions.known.mean()
    with pytest.raises(SettingsError, match="private_prior is 0.5 and prefer is 'known'"):
        Run.open(folder, private_prior=0.5, prefer="known")


def test_evaluate_gives_the_scores_of_the_metrics(folder, fitted, toy, tmp_path):
    run, truth = Run.open(folder), toy.oracle_y_target
    scores = run.evaluate(truth)
    expected = evaluate(truth, fitted.labels_, source_classes=fitted.classes_)
    assert scores.h_score == expected.h_score
    assert run.evaluate(truth.tolist(), average="instance").common_accuracy is not None
    lines = [f"{name},{label}" for name, label in zip(run.predictions.names, truth, strict=True)]
    (tmp_path / "truth.csv").write_text("\n".join(["path,label", *reversed(lines)]), encoding="utf-8")
    assert run.evaluate(tmp_path / "truth.csv").h_score == scores.h_score
    with pytest.raises(DataError, match=r"there are 3 labels for 150 samples"):
        run.evaluate(truth[:3])


def test_evaluate_can_leave_samples_out(folder, toy):
    run, first = Run.open(folder), np.arange(150) < 75
    expected = evaluate(
        toy.oracle_y_target[first], run.model.labels(run.model.target)[first], source_classes=run.model.classes
    )
    assert run.evaluate(toy.oracle_y_target, rows=first).h_score == expected.h_score


@pytest.mark.medium
def test_report_is_written_beside_the_run_or_elsewhere(folder, tmp_path):
    pytest.importorskip("jinja2")
    assert Run.open(folder).report() == folder / "report.html"
    assert Run.open(folder).report(tmp_path / "page.html").read_bytes() == (folder / "report.html").read_bytes()


def test_metrics_are_those_of_the_run_itself(folder):
    with Run.writer(folder) as writer:
        writer.write_metrics({"h_score": 0.5})
    assert Run.open(folder).metrics == {"h_score": 0.5}
    assert Run.open(folder, prefer="known").metrics is None


def test_run_without_its_target_says_so(folder, tmp_path):
    push(folder, str(tmp_path / "shared"))
    pull(str(tmp_path / "shared"), tmp_path / "copy")
    run = Run.open(tmp_path / "copy")
    assert run.n_target == 0
    for ask in (lambda: run.predictions, lambda: run.evaluate([]), run.report):
        with pytest.raises(RunFolderError, match=r"was shared without its target, so there is nothing to "):
            ask()


def test_files_of_two_runs_are_not_mixed(folder):
    lines = (folder / "predictions.csv").read_text(encoding="utf-8").splitlines()
    (folder / "predictions.csv").write_text("\n".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"the model has 150 target samples, predictions.csv 149"):
        _ = Run.open(folder).predictions


def test_unfinished_run_is_resumed_by_the_same_command(tmp_path):
    with Run.writer(tmp_path / "run") as writer:
        assert writer.checkpoints.load() is None
        writer.checkpoints.save({"x": torch.ones(2)}, {"step": 3})
    assert Run.has_checkpoint(tmp_path / "run")
    assert not Run.is_finished(tmp_path / "run")
    tensors, about = Run.writer(tmp_path / "run").checkpoints.load()
    assert (tensors["x"].tolist(), about) == ([1, 1], {"step": 3})
    with pytest.raises(RunFolderError, match="contains an unfinished run. Run the same command again to resume it"):
        Run.open(tmp_path / "run")


# --- writing ----------------------------------------------------------------------------------------------


def test_finished_run_is_recognised_by_its_fingerprint(folder, fitted, tmp_path):
    with Run.writer(folder) as writer:
        assert writer.finished(fitted.model_.fingerprint).fingerprint == fitted.model_.fingerprint
        with pytest.raises(RunFolderError, match="contains a finished run of other data or other settings"):
            writer.finished("another")
    assert Run.writer(tmp_path / "new").finished("another") is None
    assert not (tmp_path / "new").exists()


def test_saving_ends_the_checkpoints(folder, fitted):
    with Run.writer(folder) as writer:
        writer.checkpoints.save({}, {})
        writer.save(fitted.model_)
    assert not (folder / "checkpoints").exists()


def test_clear_removes_the_run_and_keeps_what_people_made(folder):
    kept = ("labels.csv", "labels.sqlite", "notes.txt")
    for name in kept:
        (folder / name).touch()
    with Run.writer(folder) as writer:
        writer.write_metrics({})
        writer.write_names([("a.jpg", "cup", "named", 3)])
        writer.write_report("<html>")
        writer.clear()
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept)


def test_names_of_samples_may_not_change(folder):
    Run.writer(folder).check_names([f"{row:03d}.jpg" for row in range(150)])
    with pytest.raises(RunFolderError, match=r"under other names \('x.jpg' was '000.jpg'\)"):
        Run.writer(folder).check_names(["x.jpg"])


def test_carriage_return_in_a_name_survives_a_table(tmp_path):
    from uniot.labelling.names import read_names

    with Run.writer(tmp_path / "run") as writer:
        writer.write_labels([("a\r.jpg", "a, b", "named", 1), ("b.jpg", "", "discarded", None)])
    read = read_names(RunFiles(tmp_path / "run").labels)
    assert (read.names, read.labels.tolist()) == (["a\r.jpg", "b.jpg"], ["a, b", ""])


# --- the lock ---------------------------------------------------------------------------------------------


def test_second_writer_is_kept_out_and_a_short_one_waits(tmp_path, monkeypatch):
    with Run.writer(tmp_path), pytest.raises(RunFolderError, match="another uniot process is writing to"):
        Run.writer(tmp_path).__enter__()
    monkeypatch.setattr("uniot.runs.saving._SECONDS_TO_WAIT", 0.05)
    with Run.writer(tmp_path), pytest.raises(RunFolderError, match="another uniot process is writing to"):
        Run.writer(tmp_path, wait=True).__enter__()
    monkeypatch.undo()
    first = Run.writer(tmp_path)
    first.__enter__()
    threading.Timer(0.2, first.__exit__, (None, None, None)).start()
    with Run.writer(tmp_path, wait=True) as writer:
        writer.write_metrics({"h_score": 1})
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"h_score": 1}


def test_short_writer_leaves_the_temporary_files_of_others_alone(tmp_path):
    partial = tmp_path / ".page.html.1-2.partial"
    partial.touch()
    with Run.writer(tmp_path, wait=True):
        assert partial.exists()
    with Run.writer(tmp_path):
        assert not partial.exists()


def test_threads_write_the_same_file_without_a_lock(tmp_path):
    # The labelling page exports labels.csv while its publisher writes it.
    path, texts = tmp_path / "labels.csv", {letter * 10_000 for letter in "abcd"}

    def work(text):
        for _ in range(20):
            write_text(path, text)

    with ThreadPoolExecutor(len(texts)) as pool:
        for written in [pool.submit(work, text) for text in texts]:
            written.result()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_lock_is_held_by_one_thread_at_a_time(tmp_path):
    held, most = [], []

    def work():
        for _ in range(20):
            with file_lock(tmp_path / "lock", wait_seconds=30):
                held.append(1)
                most.append(len(held))
                held.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1
    assert not (tmp_path / "lock").exists()


# --- nobody else names the files --------------------------------------------------------------------------

# Files outside of a run folder that have the same names: of other programs, and beside the table of `uniot predict`.
OTHERS = {
    "images/weights.py": {"model.safetensors", "checkpoints"},
    "images/embedding.py": {"skipped.csv"},
    "distributed/shards.py": {"skipped.csv"},
    "text/packaged.py": {"model.safetensors"},
}


def run_file_names() -> set[str]:
    files = {path for path in vars(RunFiles(Path("run"))).values() if path != Path("run")}
    # A logger has the name of its folder, and every repository a README.md.
    return {path.name for path in files} - {"tensorboard", "README.md"}


def literals(file: Path) -> list[str]:
    """Every string constant of a file but its docstrings, and but sentences, which may mention a file to people."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documentation]
    return [node.value for node in constants if isinstance(node.value, str) and " " not in node.value.strip()]


def test_only_runs_names_the_files_of_a_run():
    names = run_file_names()
    assert {"predictions.csv", "model.safetensors", "labels.sqlite", "checkpoints"} <= names
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE)
        if place.parts[0] == "runs":
            continue
        texts = [text.strip("/'\"{}()") for text in literals(file)]
        found = {name for name in names for text in texts if text.endswith(name)}
        found -= OTHERS.get(place.as_posix(), set())
        assert not found, f"{place} names {sorted(found)}: take the path from RunFiles"


def test_file_names_are_found_in_code_and_not_in_sentences(tmp_path):
    file = tmp_path / "example.py"
    file.write_text(
        '"""Writes metrics.json."""\nx = run / "metrics.json"\ny = f"{run}/names.csv"\nz = "see labels.csv."\n'
    )
    assert literals(file) == ["metrics.json", "/names.csv"]


def test_image_settings_are_those_of_the_reader(folder, fitted, tmp_path):
    settings = tmp_path / "run" / "settings.toml"
    settings.write_text(fitted.settings_.to_toml(ImageSettings(flip=True)), encoding="utf-8")
    run = Run.open(folder)
    run._description = run._description.model_copy(update={"from_images": True})
    assert run.image_settings == ImageSettings(flip=True)
