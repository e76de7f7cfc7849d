"""Benchmarks that train the network on images, from the lists of images to the scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot.benchmark.fit_and_score import _load_task, run_job
from uniot.benchmark.image_lists import read_list
from uniot.benchmark.jobs import Job
from uniot.benchmark.local_workers import visible_gpus
from uniot.benchmark.runner import Ended, Started, run_benchmark
from uniot.benchmark.worker import perform
from uniot.config import ImageSettings
from uniot.datasets.catalogue import benchmark_set
from uniot.errors import DataError, SettingsError
from uniot.io.tensor_files import read_tensors, write_tensors
from uniot.training.domains import Domains
from uniot.training.fit import FitContext, fit
from uniot.training.processes import Processes

SHAPES = {"photo": ("circle", "square", "stripes"), "sketch": ("circle", "square", "triangle")}
OPTIONS = """
batch_size = 6
queue_size = 12
checkpoint_every = 2
feature_size = 16
[uniot]
hidden_size = 16
n_clusters = 4
detection_start = 2
"""


class Here:
    """Plans jobs, and runs them in this process."""

    def __init__(self, count: int, gpus: object = ()) -> None:
        self.count = count

    def run(self, folders):
        for folder in folders:
            yield Started(folder)
            perform(folder)
            yield Ended(folder)


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two domains of drawn shapes, one folder per class."""
    from conftest import draw

    top = tmp_path_factory.mktemp("domains")
    for domain, kinds in SHAPES.items():
        for kind in kinds:
            (top / domain / kind).mkdir(parents=True)
            for number in range(6):
                draw(kind, number, dark=domain == "sketch").save(top / domain / kind / f"{number}.png")
    return top


@pytest.fixture(scope="module")
def random_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of timm's smallest network, which need no download."""
    from uniot.images.backbones import load_backbone

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "test_efficientnet.safetensors"
    write_tensors(path, load_backbone("test_efficientnet", pretrained=False).network.state_dict(), {})
    return path


@pytest.fixture(scope="module")
def command(collections: Path, random_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    options = tmp_path_factory.mktemp("options") / "options.toml"
    options.write_text(OPTIONS, encoding="utf-8")
    return (
        *("benchmark", "shapes", "--images", collections, "--backbone", "test_efficientnet"),
        *("--weights", random_weights, "--fine-tune", "all", "--methods", "uniot", "--tasks", "photo2sketch"),
        *("--common", "circle,square", "--source-private", "stripes", "--target-private", "triangle"),
        *("--seeds", 1, "--options", options),
    )


@pytest.fixture(scope="module")
def finished(command: tuple[object, ...], uniot: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a benchmark of one job of four steps."""
    out = tmp_path_factory.mktemp("benchmark") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uniot.benchmark.local_workers.LocalWorkers", Here)
        answer = uniot(*command, "--steps", 4, "--out", out)
    assert answer.code == 0, answer.stderr
    return out


def job_of(out: Path) -> Job:
    return Job.read(out / "jobs/uniot/custom/photo2sketch/0")


def test_the_whole_network_is_trained_by_the_published_recipe(finished: Path) -> None:
    images = job_of(finished).image_settings()
    assert images is not None
    assert (images.fine_tune, images.batch_norm, images.scaled) == ("all", "trained", False)
    (line,) = (finished / "results.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert 'uniot,photo2sketch,0,custom,"test_efficientnet, fine-tuned",4,' in line
    table = (finished / "tables.md").read_text(encoding="utf-8")
    assert r"Backbone: test\_efficientnet, fine-tuned; 4 steps." in table


def test_a_finished_job_leaves_no_state_of_its_training(finished: Path) -> None:
    folder = finished / "jobs/uniot/custom/photo2sketch/0"
    assert (folder / "result.json").is_file()
    assert not (folder / "checkpoints").exists()


def test_labels_of_the_target_images_reach_the_scores_only(finished: Path) -> None:
    task = _load_task(job_of(finished))
    assert task.domains.images is not None
    assert {file.label for file in task.domains.images.target.files} == {None}
    assert sorted(set(task.oracle_target_labels.tolist())) == ["circle", "square", "triangle"]
    assert set(task.domains.labels.tolist()) == {"circle", "square", "stripes"}


def test_an_image_that_changes_after_the_plan_stops_the_job(finished: Path, collections: Path) -> None:
    path = collections / "sketch/circle/0.png"
    os.utime(path, ns=(before := path.stat().st_mtime_ns, before + 1))
    try:
        with pytest.raises(DataError, match=r"0\.png has changed since the benchmark was planned"):
            run_job(job_of(finished))
    finally:
        os.utime(path, ns=(before, before))


def test_the_same_command_reads_no_image_again_and_keeps_the_result(
    command: tuple[object, ...], finished: Path, uniot: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uniot.images.embedding.embed_images", None)
    answer = uniot(*command, "--steps", 4, "--out", finished)
    assert answer.code == 0, answer.stderr
    assert "1 of 1 job finished, 1 of them before" in answer.stdout


def test_a_list_of_images_comes_back_from_its_file(finished: Path) -> None:
    found = read_list(finished / "images", "photo")
    assert len(found.files) == len(set(found.contents)) == 18
    assert found.of_classes(["circle"]).labels == ["circle"] * 6
    with pytest.raises(DataError, match="no image is of dog or another class of the split"):
        found.of_classes(["dog"])


def test_state_of_other_settings_is_not_continued(finished: Path, tmp_path: Path) -> None:
    job = job_of(finished)
    folder = job.folder(tmp_path)
    (folder / "checkpoints").mkdir(parents=True)
    job.write(folder)
    states = []

    class Watching(Here):
        def run(self, folders):
            states.append((folder / "checkpoints").is_dir())
            for one in folders:
                yield Started(one)
                yield Ended(one, "stopped")

    run_benchmark([job], tmp_path, Watching(1))
    run_benchmark([replace(job, settings={**job.settings, "steps": 3})], tmp_path, Watching(1))
    assert states == [True, False]


@pytest.mark.slow
def test_a_training_that_is_killed_continues_bit_for_bit(finished: Path, tmp_path: Path) -> None:
    job = replace(job_of(finished), settings={**job_of(finished).settings, "steps": 40})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    uninterrupted = run_job(job, whole)
    killed.mkdir()
    job.write(killed)
    process = subprocess.Popen([sys.executable, "-m", "uniot.benchmark.worker", str(killed)])
    state = killed / "checkpoints/last.safetensors"
    while process.poll() is None and not state.is_file():
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    step = read_tensors(state)[1]["step"]
    assert 0 < step < 40
    continued = run_job(job, killed)
    # An undefined score is NaN, which equals nothing.
    np.testing.assert_equal(continued.evaluation.to_dict(), uninterrupted.evaluation.to_dict())
    (one, _), (other, _) = (read_tensors(folder / "checkpoints/last.safetensors") for folder in (whole, killed))
    assert one.keys() == other.keys()
    assert any("running_mean" in name for name in one)
    assert any(name.startswith("momentum.") for name in one)
    for name, value in one.items():
        np.testing.assert_array_equal(value.numpy(), other[name].numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--features", "f.npz", "--fine-tune", "all"), "--features are embeddings. Give --images."),
        (("--images", ".", "--batch-norm", "frozen"), "--batch-norm and --precision are for a network that is trained"),
        (("--features", "f.npz", "--precision", "bf16-mixed"), "Give --fine-tune last or all as well"),
    ],
)
def test_options_of_a_trained_network_need_one(
    uniot: Callable, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    answer = uniot("benchmark", "office31", *arguments, "--out", tmp_path)
    assert answer.code == 1
    assert words in " ".join(answer.stderr.split())


def test_hyper_parameters_of_uniot_belong_to_the_data_set() -> None:
    found = {name: benchmark_set(name).protocols["reference"] for name in ("office31", "office-home", "visda")}
    assert {name: tuple(values.values()) for name, values in found.items()} == {
        "office31": (50, 2000, 0.7),
        "office-home": (150, 4000, 1.0),
        "visda": (500, 5000, 0.7),
    }
    domainnet = benchmark_set("domainnet").protocols
    assert tuple(domainnet["reference"].values()) == (1000, 5000, 1.0)
    assert tuple(domainnet["paper"].values()) == (1000, 10_000, 0.7)


def test_a_trained_normalisation_needs_whole_batches_and_something_to_train() -> None:
    with pytest.raises(SettingsError, match="the statistics of a part are not those of the batch"):
        ImageSettings.checked(fine_tune="all", batch_norm="trained", accumulate=2)
    with pytest.raises(SettingsError, match="batch_norm and scaled are settings of a trained network"):
        ImageSettings.checked(batch_norm="trained")
    with pytest.raises(SettingsError, match="batch_norm and scaled are settings of a trained network"):
        ImageSettings.checked(scaled=False)


def test_settings_that_older_runs_did_not_have_change_no_fingerprint() -> None:
    assert ImageSettings.checked().outside_fingerprint == {"weights", "batch_norm", "scaled"}
    trained = ImageSettings.checked(fine_tune="all", batch_norm="trained", scaled=False)
    assert trained.outside_fingerprint == {"weights"}


def test_several_processes_do_not_share_a_trained_normalisation(finished: Path) -> None:
    class Two(Processes):
        count = 2

    job = job_of(finished)
    domains: Domains = _load_task(job).domains
    with pytest.raises(SettingsError, match="batch_norm is 'trained', and 2 processes share each batch"):
        fit(domains, job.full_settings(), FitContext(processes=Two()))


@pytest.mark.parametrize(
    ("variable", "count", "names"), [("", 2, ["0", "1"]), ("3,5", 2, ["3", "5"]), ("3,5", 1, ["3"]), ("", 0, [])]
)
def test_each_worker_gets_one_of_the_gpus_that_are_visible(
    monkeypatch: pytest.MonkeyPatch, variable: str, count: int, names: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    assert visible_gpus() == names


def test_the_job_on_images_has_another_digest_than_that_on_embeddings(finished: Path) -> None:
    job = job_of(finished)
    assert job.digest == replace(job, store="elsewhere").digest
    assert job.digest == replace(job, images={**job.images, "weights": "elsewhere"}).digest
    assert len({one.digest for one in (job, replace(job, images={}))}) == 2
    frozen = replace(job, images={**job.images, "batch_norm": "frozen"})
    assert frozen.digest != job.digest
    assert json.loads(json.dumps(dict(job.images))) == dict(job.images)
