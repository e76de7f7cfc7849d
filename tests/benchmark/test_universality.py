"""The universality study: jobs of every data set, what is written of them, and the command as it is typed."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from uniot.benchmark.features import DataSet, write_digits
from uniot.benchmark.fit_and_score import load_data, run_job
from uniot.benchmark.job_files import read_result
from uniot.benchmark.jobs import Job, Options
from uniot.benchmark.results import Result, read_results
from uniot.benchmark.runner import Ended, Event, Started
from uniot.benchmark.scenarios import family_of
from uniot.benchmark.universality import (
    ALL,
    DEFAULT_METHODS,
    PURPOSES,
    ScenarioScore,
    plan_universality,
    summarise,
    write_universality,
)
from uniot.benchmark.worker import perform
from uniot.cli.benchmark_screen import LiveTable
from uniot.datasets.digits import load_digit_archives
from uniot.errors import DataError, SettingsError
from uniot.methods.registry import METHODS as ALL_METHODS

QUICK = {"steps": 5, "hidden_size": 16, "feature_size": 8, "batch_size": 12, "queue_size": 24}


class Here:
    """Runs jobs in this process in place of workers; stops before job number `stop`."""

    stop: int | None = None

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        for number, folder in enumerate(folders):
            if number == self.stop:
                raise KeyboardInterrupt
            yield Started(folder)
            perform(folder)
            yield Ended(folder)


@pytest.fixture
def options(tmp_path: Path) -> Path:
    path = tmp_path / "options.toml"
    path.write_text("\n".join(f"{name} = {value}" for name, value in QUICK.items()), encoding="utf-8")
    return path


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten digits of eight samples each in place of the archives, which take seconds to read."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 8)
    images = [rng.random((10, 4, 4))[labels] + 0.1 * rng.random((80, 4, 4)) for _ in range(2)]
    archives = (images[0].astype(np.float32), labels, images[1].astype(np.float32), labels)
    monkeypatch.setattr("uniot.benchmark.features.load_digit_archives", lambda: archives)


def plan(features: Path, name: str = "toys", **changes) -> list[Job]:
    values = {"methods": ["source-only"], "n_splits": 1, "options": Options(QUICK)} | changes
    return plan_universality([DataSet.read(name, features)], **values)


def test_there_is_a_job_for_every_split_pair_scenario_and_method(features: Path) -> None:
    jobs = plan(features, n_splits=2, methods=["source-only", "unincm"])
    assert {job.task for job in jobs} == {"photo2sketch", "sketch2photo"}, "the domain `one` shares one class alone"
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs), "stopped early, all pairs were seen"
    assert {job.seed for job in jobs} == set(PURPOSES["choice"][:2])
    found = {(job.seed, job.task, job.setting, job.method) for job in jobs}
    assert len(found) == len(jobs)
    assert {("open-partial", "source-only"), ("private-prior=1", "unincm")} <= {one[2:] for one in found}
    assert {job.dataset for job in jobs} == {"toys"}
    folder = jobs[0].folder(Path("out"))
    assert folder == Path("out/jobs/toys/source-only/open-partial/photo2sketch/300")


def test_the_study_runs_methods_that_exist() -> None:
    assert set(DEFAULT_METHODS) <= set(ALL_METHODS)


def test_check_has_splits_of_its_own(features: Path) -> None:
    choice, check = ({job.split for job in plan(features, purpose=purpose)} for purpose in ("choice", "check"))
    assert {job.seed for job in plan(features, purpose="check", n_splits=6)} == set(PURPOSES["check"])
    assert len(choice & check) < min(len(choice), len(check)) / 4, "seven classes have few closed splits"


def test_two_backbones_of_a_data_set_get_the_same_scenarios(
    features: Path, tmp_path: Path, write_features: Callable[..., Path]
) -> None:
    other = write_features(tmp_path / "other.npz", seed=1)
    first, second = plan(features, "toys-resnet50"), plan(other, "toys-vit")
    assert [(job.setting, job.split, job.draw) for job in first] == [
        (job.setting, job.split, job.draw) for job in second
    ]


def test_class_names_of_two_domains_may_differ_in_case_and_punctuation(features: Path, tmp_path: Path) -> None:
    with np.load(features) as file:
        names = file["classes"]
        arrays = {f"{name}_x": file[f"{name}_x"] for name in ("photo", "sketch")}
        arrays |= {"photo_y": names[file["photo_y"]], "sketch_y": np.char.upper(names[file["sketch_y"]])}
    np.savez(tmp_path / "upper.npz", **arrays)
    jobs = plan(tmp_path / "upper.npz")
    assert [(job.setting, job.draw.n_samples) for job in jobs] == [
        (job.setting, job.draw.n_samples) for job in plan(features)
    ]
    data = load_data(jobs[0])
    assert len(data.target) == jobs[0].draw.n_samples
    assert set(data.oracle_target_labels) <= set(jobs[0].split.target)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"purpose": "test"}, SettingsError, "there is no purpose called 'test'. Take one of: choice, check"),
        ({"n_splits": 7}, SettingsError, "the number of splits is 7. Give 1 to 6"),
        ({"task_names": ["A2W"]}, DataError, "no data set has a task called A2W. Take some of: photo2sketch"),
        ({"methods": ["unoit"]}, SettingsError, "there is no method called 'unoit'"),
    ],
)
def test_what_cannot_be_planned_is_refused(features: Path, changes: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        plan(features, **changes)


def test_domains_without_common_classes_are_refused(tmp_path: Path) -> None:
    x = np.ones((4, 3))
    np.savez(tmp_path / "x.npz", a_x=x, a_y=["cup", "pen"] * 2, b_x=x, b_y=["hat", "jar"] * 2)
    with pytest.raises(DataError, match="no two domains have two classes in common"):
        plan(tmp_path / "x.npz")


def test_a_quick_study_has_one_split_and_two_pairs(tmp_path: Path) -> None:
    x, labels = np.random.default_rng(0).normal(size=(60, 3)), np.repeat(["cup", "pen", "hat"], 20)
    arrays = {f"{name}_{part}": value for name in "abc" for part, value in (("x", x), ("y", labels))}
    np.savez(tmp_path / "x.npz", **arrays)
    jobs = plan(tmp_path / "x.npz", n_splits=3, quick=True)
    assert {(job.seed, job.task) for job in jobs} == {(300, "a2b"), (300, "c2a")}


def test_a_job_is_read_as_it_was_written_and_its_digest_knows_the_draw(features: Path, tmp_path: Path) -> None:
    job = next(job for job in plan(features) if job.setting == "private-prior=0.5")
    job.write(tmp_path)
    assert Job.read(tmp_path) == job
    fewer = replace(job.draw, counts=tuple((name, count - 1) for name, count in job.draw.counts))
    others = [replace(job, draw=fewer), replace(job, draw=replace(job.draw, seed=1)), replace(job, draw=None)]
    assert len({job.digest, *(other.digest for other in others)}) == 4
    assert replace(job, dataset="renamed").digest == job.digest


def scored(features: Path, scenario: str) -> tuple[Result, dict]:
    job = next(job for job in plan(features, methods=["unincm"]) if job.setting == scenario)
    outcome = run_job(job)
    return outcome.result, outcome.evaluation.counts


def test_with_common_and_private_samples_the_oracle_is_a_threshold(features: Path) -> None:
    result, counts = scored(features, "open-partial")
    assert counts["common"]
    assert counts["private"]
    assert result.h <= result.h_oracle
    assert result.nothing_rejected >= result.common_accuracy
    assert 0 < result.true_accuracy <= 1
    assert result.n_private_true == 2
    assert 0 < result.estimated_accuracy < 1
    assert result.warned is not None


def test_with_nothing_private_the_oracle_rejects_nothing(features: Path) -> None:
    result, counts = scored(features, "closed")
    assert counts["private"] == 0
    assert result.h == result.common_accuracy
    assert result.h_oracle == pytest.approx(result.nothing_rejected)
    assert result.n_private_true == 0


def test_with_nothing_common_the_oracle_rejects_everything(features: Path) -> None:
    result, counts = scored(features, "private-prior=1")
    assert counts["common"] == 0
    assert (result.h, result.h_oracle, result.nothing_rejected) == (result.unknown_recall, 1, None)


def test_columns_of_the_live_table_are_data_sets(features: Path) -> None:
    table = LiveTable([*plan(features), *plan(features, "more")], at_once=2)
    screen = Console(file=io.StringIO(), width=100)
    screen.print(table.render())
    assert screen.file.getvalue().splitlines()[0].split() == ["method", "toys", "more"]


@pytest.mark.slow
def test_digits_of_the_install_are_features_of_two_domains(tmp_path: Path) -> None:
    path = write_digits(tmp_path)
    written = path.stat().st_mtime_ns
    assert write_digits(tmp_path) == path
    assert path.stat().st_mtime_ns == written, "a file that is right stays"
    jobs = plan(path, "digits")
    assert {job.task for job in jobs} == {"sklearn2mnist", "mnist2sklearn"}
    assert {job.backbone for job in jobs} == {"pixels"}
    assert max(job.draw.n_samples for job in jobs) == 1500
    small, *_ = load_digit_archives()
    with np.load(path) as file:
        np.testing.assert_array_equal(file["sklearn_x"], small.reshape(len(small), -1))


def score(scenario: str, dataset: str, value: float | None, oracle: float = 80.0, **changes) -> ScenarioScore:
    empty = dict.fromkeys(ScenarioScore.__annotations__)
    values = {"dataset": dataset, "task": "a2b", "family": family_of(scenario), "scenario": scenario, "split": 300}
    values |= {"method": "unincm", "seconds": 1.5, "failure": "", "n_target": 60, "n_source_classes": 5}
    found = {"score": value, "oracle": oracle, "regret": None if value is None else oracle - value}
    return ScenarioScore(**empty | values | found | changes)


def test_a_summary_has_means_the_worst_job_and_what_is_below_half_of_the_oracle() -> None:
    scores = [
        score("open", "toys", 70.0),
        score("closed", "toys", 40.0),
        score("partial", "toys", 39.9, task="b2a"),
        score("private-prior=1", "toys", 60.0, 100.0),
        score("open", "pacs", 10.0, 20.0),
        score("open", "pacs", None, 0.0, failure="no memory"),
    ]
    settings, prior, toys, of_pacs, pacs, everything = summarise(scores)
    assert (settings.dataset, settings.family, settings.n_jobs, settings.n_below_half) == ("toys", "settings", 3, 1)
    assert settings.score == pytest.approx(149.9 / 3)
    assert settings.regret == pytest.approx((10 + 40 + 40.1) / 3)
    assert (settings.worst_regret, settings.worst) == (pytest.approx(40.1), "partial, b2a")
    assert (prior.family, prior.regret) == ("private-class prior", 40)
    assert (toys.family, toys.n_jobs) == (ALL, 4)
    assert (of_pacs.n_jobs, of_pacs.n_failed) == (1, 1)
    assert (everything.dataset, everything.n_jobs, everything.n_failed) == (ALL, 5, 1)
    assert everything.score == pytest.approx((toys.score + pacs.score) / 2), "a data set of many pairs counts no more"
    assert everything.worst == "toys, partial, b2a"


def test_files_hold_every_job_a_table_and_a_heat_map(tmp_path: Path) -> None:
    scores = [score("open", "toys", 70.0), score("long-tail", "a|b", 20.0, n_private_found=3)]
    scores.append(score("long-tail", "a|b", None, failure="no\nmemory"))
    written = write_universality(tmp_path, scores, purpose="check")
    assert [path.name for path in written] == [f"universality.{ending}" for ending in ("csv", "md", "pdf", "svg")]
    first, second, third = csv.DictReader((tmp_path / "universality.csv").read_text(encoding="utf-8").splitlines())
    assert (first["score"], first["oracle"], first["regret"], first["n_private_found"]) == (
        "70.00",
        "80.00",
        "10.00",
        "",
    )
    assert (first["estimated_accuracy"], first["warned"], second["n_private_found"]) == ("", "", "3")
    assert (third["score"], third["failure"]) == ("", "no memory")
    text = (tmp_path / "universality.md").read_text(encoding="utf-8")
    assert text.startswith("Splits: check (300). Score: H-score if")
    assert r"| a\|b | long tail | 1 (1 failed) | 20.0 | 80.0 | 60.0 | 60.0 (long-tail, a2b) | 1 |" in text
    drawn = (tmp_path / "figures/universality.svg").read_text(encoding="utf-8")
    for words in ("long-tail", "10 (10)", "60 (60)", "UniNCM", "regret in points: mean (worst)"):
        assert words in drawn


def test_a_study_whose_jobs_all_failed_has_no_picture(tmp_path: Path) -> None:
    written = write_universality(tmp_path, [score("open", "toys", None, failure="no")], purpose="choice")
    assert [path.name for path in written] == ["universality.csv", "universality.md"]


def test_the_study_as_it_is_typed_and_interrupted_and_gone_on_with(
    uniot: Callable,
    features: Path,
    write_features: Callable[..., Path],
    options: Path,
    tmp_path: Path,
    few_digits: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("uniot.benchmark.local_workers.LocalWorkers", Here)
    out, few = tmp_path / "suite", write_features(tmp_path / "few.npz", each=5)
    command = (
        *("benchmark", "--study", "universality", "--features", f"toys={features}", "--features", f"few={few}"),
        *("--methods", "source-only", "--quick", "--tasks", "photo2sketch,sklearn2mnist"),
        *("--settings", "open-partial,open,partial,closed,private-prior=1,dominant-private=1"),
        *("--options", options, "--out", out),
    )
    monkeypatch.setattr(Here, "stop", 3)
    assert uniot(*command).code != 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(before) == 3
    monkeypatch.setattr(Here, "stop", None)
    answer = uniot(*command)
    assert answer.code == 0, answer.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before, "what was finished is not run again"
    with (out / "universality.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["dataset"] for row in rows} == {"toys", "few", "digits"}
    assert {row["task"] for row in rows} == {"photo2sketch", "sklearn2mnist"}
    assert {row["split"] for row in rows} == {"300"}
    for row in rows:
        assert float(row["regret"]) == pytest.approx(float(row["oracle"]) - float(row["score"]), abs=0.011)
        assert float(row["regret"]) >= 0
        assert row["nothing_rejected"] or row["scenario"] in ("private-prior=1", "dominant-private=1")
    results = read_results(out / "results.csv")
    assert [(one.dataset, one.setting) for one in results] == [(row["dataset"], row["scenario"]) for row in rows]
    assert f"{len(rows)} of {len(rows)} jobs finished, 3 of them before." in answer.stdout
    assert "universality.csv, universality.md, figures/ beside it." in answer.stdout
    assert re.search(r"^toys +settings +4 +\d", answer.stdout, re.MULTILINE)
    assert re.search(rf"^all +all +{len(rows)} ", answer.stdout, re.MULTILINE)
    assert (out / "figures/universality.svg").is_file()
    assert (out / "embeddings/digits.npz").is_file()


def test_one_data_set_alone_needs_no_digits(
    uniot: Callable,
    write_features: Callable[..., Path],
    options: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("uniot.benchmark.local_workers.LocalWorkers", Here)
    features = write_features(tmp_path / "few.npz", each=5)
    more = ("--methods", "source-only", "--tasks", "photo2sketch", "--options", options, "--seeds", 1)
    command = ("benchmark", "toys", "--study", "universality", "--features", features, "--purpose", "check", *more)
    answer = uniot(*command, "--out", tmp_path / "out")
    assert answer.code == 0, answer.stderr
    results = read_results(tmp_path / "out/results.csv")
    assert {(one.dataset, one.task, one.seed) for one in results} == {("toys", "photo2sketch", 900)}
    assert not (tmp_path / "out/embeddings").exists()
    jobs = plan(features, task_names=["photo2sketch"], purpose="check")
    assert all(read_result(job.folder(tmp_path / "out"), job) is not None for job in jobs)
    text = (tmp_path / "out/universality.md").read_text(encoding="utf-8")
    assert text.startswith("Splits: check (900).")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--features", "x.npz"), "--features is 'x.npz'. Give NAME=FILE, such as office31=features.npz"),
        (("toys", "--features", "x=x.npz", "--features", "y.npz"), "--features is 'y.npz'. Give NAME=FILE"),
        (("--features", "digits=x.npz"), "digits come with the install"),
        (("--features", "x=x.npz", "--features", "x=y.npz"), "--features has two files for x"),
        (("toys", "--features", "x=x.npz"), "there are no features of toys. Give --features toys=FILE"),
        (("--features", "x=none.npz"), "none.npz does not exist"),
        (("--features", "../x=x.npz"), "the name of a data set is '../x', which cannot be the name of a folder"),
        (
            ("--features", "x=x.npz", "--settings", "mine"),
            "there is no scenario called 'mine'",
        ),
        (("--features", "x=x.npz", "--source-private", "a"), "--source-private is not for --study universality"),
        (("--features", "x=x.npz", "--incomplete"), "--incomplete is not for --study universality"),
        (("--features", "x=x.npz", "--methods", "unoit"), "there is no method called 'unoit'"),
        (("x", "--features", "x=x.npz", "--purpose", "test"), "there is no purpose called 'test'"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    uniot: Callable,
    features: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.npz").write_bytes(features.read_bytes())
    answer = uniot("benchmark", "--study", "universality", "--out", tmp_path / "out", *arguments)
    assert answer.code == 1
    assert words in answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("office31", "--features", "x.npz", "--quick"), "--purpose and --quick are for --study universality"),
        (("office31", "--features", "x.npz", "--features", "y.npz"), "--features is given more than once"),
        (("--features", "x.npz"), "no data set is named. Give one, such as `uniot benchmark office31"),
        (("office31", "--features", "x.npz", "--study", "universal"), "beyond, universality, answers."),
    ],
)
def test_what_is_of_this_study_alone_is_refused_elsewhere(
    uniot: Callable, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    answer = uniot("benchmark", *arguments, "--out", tmp_path / "out")
    assert answer.code == 1
    assert words in answer.stderr
