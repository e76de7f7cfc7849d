"""Jobs run, fail, are killed and go on; what they come to does not depend on any of it."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from uniot.benchmark import slurm
from uniot.benchmark.features import read_domain
from uniot.benchmark.fit_and_score import fit, load_data, run_job
from uniot.benchmark.job_files import read_failure, read_result
from uniot.benchmark.jobs import Job, Options, plan_jobs
from uniot.benchmark.local_workers import LocalWorkers
from uniot.benchmark.results import Result, read_results
from uniot.benchmark.runner import Ended, Event, FinishedBenchmark, Started, run_benchmark
from uniot.benchmark.slurm import SlurmArrays
from uniot.benchmark.splits import custom_split
from uniot.benchmark.tasks import TaskSet
from uniot.benchmark.worker import main as work
from uniot.benchmark.worker import perform
from uniot.cli.benchmark_screen import LiveTable, PlainLines, watching
from uniot.cli.screen import Screen
from uniot.errors import MissingPackageError, RunFolderError, SettingsError
from uniot.methods.base import Batch, Losses
from uniot.methods.source_only import SourceOnly
from uniot.methods.uniot import UniOTMethod

SPLIT = custom_split(("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar"))
QUICK = {"steps": 40, "hidden_size": 64, "feature_size": 32, "batch_size": 24, "queue_size": 48, "detection_start": 10}
on_linux = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to find processes")


def plan(features: Path, tasks: Sequence[str] = ("photo2sketch", "sketch2photo"), **changes) -> list[Job]:
    values = {"methods": ["uniot", "source-only"], "n_seeds": 2, "backbone": "toy", "options": Options(QUICK)}
    own = TaskSet.of_domains("toys", ("photo", "sketch", "one"))
    return plan_jobs(own, features, {"mine": SPLIT}, **(values | {"task_names": tasks} | changes))


def scores(results: Sequence[Result]) -> list[Result]:
    """Results without what differs from run to run."""
    return [dataclasses.replace(result, seconds=0.0, cpu_seconds=None) for result in results]


class Here:
    """Runs jobs in this process, one after the other; stops before the job of number `stop`."""

    count = 1

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.ran: list[Path] = []

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        for number, folder in enumerate(folders):
            if number == self.stop:
                raise KeyboardInterrupt
            self.ran.append(folder)
            yield Started(folder)
            perform(folder)
            yield Ended(folder)


@pytest.fixture(scope="module")
def done(features: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FinishedBenchmark]:
    """Two methods, two tasks and two seeds, run by two processes."""
    out = tmp_path_factory.mktemp("benchmark")
    return out, run_benchmark(plan(features), out, LocalWorkers(2))


def test_a_benchmark_runs_every_job_and_writes_one_line_of_each(
    done: tuple[Path, FinishedBenchmark], features: Path
) -> None:
    out, summary = done
    assert (len(summary.results), summary.failures, summary.n_kept) == (8, [], 0)
    assert read_results(out / "results.csv") == summary.results
    named = [(result.method, result.setting, result.task, result.seed) for result in summary.results]
    assert named == [(job.method, job.setting, job.task, job.seed) for job in plan(features)]
    assert {(result.steps, result.backbone) for result in summary.results} == {(40, "toy")}
    assert all(result.auroc > 0.7 for result in summary.results), "a coin would give 0.5"
    assert not list(out.rglob("error.txt"))
    assert not list(out.rglob("log.txt")), "a job that says nothing leaves no log"


def test_a_job_gives_the_same_numbers_whatever_process_runs_it_and_whatever_ran_before(
    done: tuple[Path, FinishedBenchmark], features: Path
) -> None:
    jobs = plan(features)
    again = [run_job(job).result for job in (jobs[3], jobs[0], jobs[3])]
    _, summary = done
    assert scores(again) == scores([summary.results[3], summary.results[0], summary.results[3]])


def test_finished_jobs_are_not_run_again(done: tuple[Path, FinishedBenchmark], features: Path) -> None:
    out, summary = done
    launcher = Here()
    again = run_benchmark(plan(features, backbone="renamed"), out, launcher)
    assert (launcher.ran, again.n_kept) == ([], 8)
    assert [result.h for result in again.results] == [result.h for result in summary.results]
    assert {result.backbone for result in again.results} == {"renamed"}, "tables call it what this benchmark does"


def test_a_job_whose_digest_changed_is_run_again(features: Path, tmp_path: Path) -> None:
    first = plan(features, methods=["source-only"], n_seeds=1)
    run_benchmark(first, tmp_path, Here())
    launcher = Here()
    # The option of one method changes nothing for the others.
    changed = plan(features, n_seeds=1, options=Options(QUICK, {"source-only": {"learning_rate": 0.02}}))
    summary = run_benchmark([job for job in changed if job.method == "source-only"], tmp_path, launcher)
    assert (len(launcher.ran), summary.n_kept) == (2, 0)
    assert [read_result(job.folder(tmp_path), job) for job in first] == [None, None]


@pytest.mark.parametrize("damage", ["", "{", '{"digest": 1}', "[]"])
def test_a_result_that_cannot_be_read_is_made_again(features: Path, tmp_path: Path, damage: str) -> None:
    job = plan(features, methods=["source-only"], n_seeds=1)[0]
    folder = job.folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(damage, encoding="utf-8")
    assert read_result(folder, job) is None


def test_labels_of_the_target_never_reach_the_training(features: Path, tmp_path: Path) -> None:
    with np.load(features) as file:
        arrays = dict(file)
    # Among the samples that the split gives to the target, so that it has the same ones.
    of_target = np.flatnonzero(np.isin(arrays["classes"][arrays["sketch_y"]], SPLIT.target))
    arrays["sketch_y"] = arrays["sketch_y"].copy()
    arrays["sketch_y"][of_target] = np.random.default_rng(0).permutation(arrays["sketch_y"][of_target])
    np.savez(tmp_path / "shuffled.npz", **arrays)
    for method in ("uniot", "source-only"):
        jobs = [plan(where, methods=[method], n_seeds=1)[0] for where in (features, tmp_path / "shuffled.npz")]
        models = []
        for job in jobs:
            data = load_data(job)
            models.append(fit(job, data.source, data.source_labels, data.target))
        for part in ("nearest", "known", "confidence", "group"):
            np.testing.assert_array_equal(getattr(models[0].target, part), getattr(models[1].target, part))
        assert repr(models[0].history.rows) == repr(models[1].history.rows)  # NaN is written as NaN, unlike compared
    first, second = (run_job(job).result for job in jobs)
    assert first.oscr > second.oscr + 0.2, "the scores do see them"


def test_oracle_selection_adds_a_column_and_changes_no_score(features: Path) -> None:
    for method in ("uniot", "source-only"):
        plain, looked = (plan(features, methods=[method], n_seeds=1, oracle_selection=times)[0] for times in (0, 8))
        assert plain.digest != looked.digest
        without, with_oracle = run_job(plain).result, run_job(looked).result
        assert scores([without]) == scores([dataclasses.replace(with_oracle, h_oracle_selection=None)])
        assert without.h_oracle_selection is None
        assert with_oracle.h <= with_oracle.h_oracle_selection <= 1


def test_every_method_sees_the_same_embeddings_in_the_same_batches(
    features: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[type, list[tuple[object, ...]]] = {}

    def noting(kind: type, step: Callable[..., Losses]) -> Callable[..., Losses]:
        def noted(self: object, batch: Batch) -> Losses:
            inputs = (batch.source.numpy().tobytes(), batch.target.numpy().tobytes())
            ids = (batch.source_labels.tolist(), batch.target_ids.tolist(), batch.step)
            seen.setdefault(kind, []).append((*inputs, *ids))
            return step(self, batch)

        return noted

    for kind in (UniOTMethod, SourceOnly):
        monkeypatch.setattr(kind, "step", noting(kind, kind.step))
    for job in plan(features, ["photo2sketch"], n_seeds=1):
        run_job(job)
    assert len(seen[UniOTMethod]) == QUICK["steps"]
    assert seen[UniOTMethod] == seen[SourceOnly]


def test_a_job_that_fails_does_not_stop_the_others_and_is_run_again(features: Path, tmp_path: Path) -> None:
    # The domain `one` has a single sample, to which nothing can be adapted.
    jobs = plan(features, ("photo2one", "photo2sketch"), methods=["source-only"], n_seeds=1)
    summary = run_benchmark(jobs, tmp_path, Here())
    (failure,) = summary.failures
    assert failure.job.task == "photo2one"
    assert failure.folder == tmp_path / "jobs/source-only/mine/photo2one/0"
    assert failure.reason.startswith("the target has a single sample")
    text = (failure.folder / "error.txt").read_text(encoding="utf-8")
    assert text.splitlines()[0] == failure.reason
    assert "Traceback" in text
    failed, succeeded = read_results(tmp_path / "results.csv")
    assert (failed.h, failed.failure) == (None, failure.reason)
    assert succeeded.h is not None
    launcher = Here()
    again = run_benchmark(jobs, tmp_path, launcher)
    assert launcher.ran == [failure.folder]
    assert (again.n_kept, len(again.failures)) == (1, 1)


def test_an_error_that_nobody_foresaw_is_told_with_its_kind(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: Job, folder: Path) -> None:
        raise ZeroDivisionError("one line\nand another")

    monkeypatch.setattr("uniot.benchmark.worker.run_job", broken)
    summary = run_benchmark(plan(features, n_seeds=1)[:1], tmp_path, Here())
    assert [failure.reason for failure in summary.failures] == ["ZeroDivisionError: one line and another"]


def test_features_that_change_under_way_fail_the_job(tmp_path: Path, write_features: Callable[..., Path]) -> None:
    path = write_features(tmp_path / "x.npz")
    job = plan(path, n_seeds=1)[0]
    job.write(tmp_path)
    write_features(path, seed=1)
    assert not perform(tmp_path)
    assert "has changed since the benchmark was planned" in (read_failure(tmp_path) or "")


def test_what_was_finished_before_an_interrupt_is_kept(features: Path, tmp_path: Path) -> None:
    jobs = plan(features, methods=["source-only"], n_seeds=2)
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(jobs, tmp_path, Here(stop=3))
    assert len(read_results(tmp_path / "results.csv")) == 3
    launcher = Here()
    summary = run_benchmark(jobs, tmp_path, launcher)
    assert (summary.n_kept, len(launcher.ran), len(summary.results)) == (3, 1, 4)


def test_two_benchmarks_do_not_write_to_one_folder(features: Path, tmp_path: Path) -> None:
    jobs = plan(features, methods=["source-only"], n_seeds=1)

    class Second(Here):
        def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
            with pytest.raises(RunFolderError, match="another uniot process is writing to"):
                run_benchmark(jobs, tmp_path, Here())
            yield from super().run(folders)

    assert len(run_benchmark(jobs, tmp_path, Second()).results) == 2


def test_one_job_can_be_run_by_hand(features: Path, tmp_path: Path) -> None:
    jobs = plan(features, ("photo2one", "photo2sketch"), methods=["source-only"], n_seeds=1)
    for job in jobs:
        job.write(job.folder(tmp_path))
    assert work([str(jobs[1].folder(tmp_path))]) == 0
    assert work([str(job.folder(tmp_path)) for job in jobs]) == 1
    assert read_result(jobs[1].folder(tmp_path), jobs[1]) is not None
    assert work([str(tmp_path)]) == 1
    assert "cannot be read as a job" in (read_failure(tmp_path) or "")


def children(process: int) -> set[int]:
    """Processes that a process has started; those that have ended and nobody asked for are none."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return {int(child) for text in lists for child in _read(text).split() if is_alive(int(child))}


def is_alive(process: int) -> bool:
    return re.search(r"^State:\s+[^ZX]", _read(Path(f"/proc/{process}/status")), re.MULTILINE) is not None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


@on_linux
@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_job_alone(features: Path, tmp_path: Path) -> None:
    before = children(os.getpid())

    class Killer(LocalWorkers):
        def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
            with closing(super().run(folders)) as events:
                for number, event in enumerate(events):
                    yield event
                    if number == 0:
                        wait_for(lambda: children(os.getpid()) - before)
                        for worker in children(os.getpid()) - before:
                            os.kill(worker, signal.SIGKILL)

    jobs = plan(features, methods=["source-only"], n_seeds=1)
    summary = run_benchmark(jobs, tmp_path, Killer(1))
    assert [failure.job.task for failure in summary.failures] == ["photo2sketch"]
    assert summary.failures[0].reason == "its process was ended by SIGKILL, often for want of memory"
    assert [result.h is None for result in summary.results] == [True, False]
    assert children(os.getpid()) == before


def test_a_worker_that_cannot_start_says_why(features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "path"), *sys.path]))
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "torch.py").write_text("raise ImportError('torch is not well')", encoding="utf-8")
    jobs = plan(features, methods=["source-only"], n_seeds=1)[:1]
    (failure,) = run_benchmark(jobs, tmp_path, LocalWorkers(1)).failures
    assert failure.reason == "its process ended with exit code 1"
    assert "torch is not well" in (failure.folder / "error.txt").read_text(encoding="utf-8")


PROGRAM = """
import sys
from pathlib import Path
from uniot.benchmark.jobs import Job
from uniot.benchmark.local_workers import LocalWorkers
from uniot.benchmark.runner import run_benchmark
out = Path(sys.argv[1])
jobs = [Job.read(folder) for folder in map(Path, sys.argv[2:])]
try:
    run_benchmark(jobs, out, LocalWorkers(2))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.usefixtures("interruptible")
@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL], ids=lambda blow: blow.name)
def test_a_benchmark_that_is_stopped_leaves_no_process_and_goes_on(
    features: Path, tmp_path: Path, blow: signal.Signals
) -> None:
    jobs = plan(features, methods=["source-only"], n_seeds=2, options=Options({**QUICK, "steps": 600}))
    for number, job in enumerate(jobs):
        job.write(tmp_path / "given" / str(number))
    out = tmp_path / "out"
    given = sorted((tmp_path / "given").iterdir(), key=lambda folder: int(folder.name))
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, out, *given])
    try:
        wait_for(lambda: len(list(out.rglob("result.json"))) > 0)
        workers = children(process.pid)
        process.send_signal(blow)
        code = process.wait(30)
    finally:
        process.kill()
        process.wait()
    assert code == {signal.SIGINT: 130}.get(blow, -blow)
    assert len(workers) == 2
    wait_for(lambda: not any(map(is_alive, workers)), seconds=10)
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert 0 < len(kept) < len(jobs)
    # What a kill leaves in the moment in which a result is written.
    unfinished = next(folder for folder in out.glob("jobs/*/*/*/*") if not (folder / "result.json").exists())
    (unfinished / ".result.json.1-1.partial").write_text("{")
    summary = run_benchmark(jobs, out, Here())
    assert (summary.n_kept, len(summary.results), summary.failures) == (len(kept), 4, [])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert not list(out.rglob("*.partial"))


@pytest.mark.slow
def test_jobs_run_through_submitit(features: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    jobs = plan(features, ("photo2one", "photo2sketch"), methods=["source-only"], n_seeds=1)
    here = run_benchmark(jobs, tmp_path / "here", Here())
    there = run_benchmark(jobs, tmp_path / "there", SlurmArrays(tmp_path / "there", 2, "local"))
    assert scores(there.results) == scores(here.results)
    assert [failure.job.task for failure in there.failures] == ["photo2one"]


def test_a_job_that_ends_without_a_word_on_the_cluster_is_told(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setattr(slurm, "_perform", len)  # a path has no length
    jobs = plan(features, methods=["source-only"], n_seeds=1)[:1]
    (failure,) = run_benchmark(jobs, tmp_path, SlurmArrays(tmp_path, 1, "local")).failures
    assert re.fullmatch(r"job \d+ of the cluster has the state FINISHED and no outcome", failure.reason)
    assert "has no len()" in (failure.folder / "error.txt").read_text(encoding="utf-8")


SBATCH = """#!/bin/bash
# What sbatch does with an array, on this machine, one task after the other.
last=$(grep -oP '(?<=--array=0-)\\d+' "$1")
( for task in $(seq 0 "$last"); do
    SLURM_JOB_ID=$((7 + task)) SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 \\
      SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 bash "$1"
done ) > /dev/null 2>&1 &
echo "Submitted batch job 7"
"""
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in --output|--error) shift 2;; *) shift;; esac; done
exec "$@"
"""
SACCT = """#!/bin/bash
echo 'JobID|State|NodeList'
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs bash")
def test_jobs_are_an_array_on_slurm(features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT), ("scancel", "#!/bin/bash\n")):
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    out = tmp_path / "out"
    jobs = plan(features, methods=["source-only"], n_seeds=1)
    launcher = SlurmArrays(out, 5, "slurm", {"slurm_partition": "cheap", "timeout_min": 9})
    summary = run_benchmark(jobs, out, launcher)
    assert scores(summary.results) == scores([run_job(job).result for job in jobs])
    (script,) = out.glob("cluster/*_submission.sh")
    text = script.read_text(encoding="utf-8")
    for line in ("--array=0-1%2", "--partition=cheap", "--time=9", "--job-name=uniot-benchmark"):
        assert f"#SBATCH {line}\n" in text


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("local", {"local_moon": "x"}, "(?s)submitit does not take this .*moon.*update_parameters"),
        ("moon", {}, "there is no cluster called 'moon'. Take slurm, or local"),
        ("slurm", {}, "on a machine that has `sbatch`"),
    ],
)
def test_a_cluster_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, parameters: dict[str, str], words: str
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=words):
        SlurmArrays(tmp_path, 1, kind, parameters)


def test_without_submitit_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingPackageError, match="pip install 'uniot\\[benchmark\\]'"):
        SlurmArrays(tmp_path, 1)


def result_of(job: Job, h: float | None, failure: str = "") -> Result:
    names = {"method": job.method, "task": job.task, "seed": job.seed, "setting": job.setting}
    return Result(**names, backbone="toy", steps=1, seconds=60.0, h=h, failure=failure)


def test_the_live_table_counts_what_is_done_failed_and_running(features: Path) -> None:
    jobs = plan(features)
    table = LiveTable(jobs, at_once=2)
    table.kept(jobs[0], result_of(jobs[0], 0.5))
    for job in jobs[1:4]:
        table.started(job)
    table.ended(jobs[1], result_of(jobs[1], None, "no memory"))
    table.ended(jobs[2], result_of(jobs[2], 0.7))
    screen = Screen(file=io.StringIO(), highlight=False, markup=False, width=100)
    screen.print(table.render())
    lines = screen.file.getvalue().splitlines()
    assert re.fullmatch(r"uniot +2/4  H 60.0 *", lines[1])
    assert re.fullmatch(r"source-only +0/4  1 failed *", lines[2])
    assert lines[3].strip() == "3 of 8 jobs done, 1 failed, 1 running, about 2 min left"
    assert re.fullmatch(r" +source-only, mine, sketch2photo, seed 0 \(\d+ s\) *", lines[4])


def test_somebody_who_watches_sees_the_table(features: Path) -> None:
    jobs = plan(features)
    screen = Screen(file=io.StringIO(), highlight=False, markup=False, width=100, height=30, force_terminal=True)
    with watching(jobs, 2, screen) as watcher:
        watcher.kept(jobs[0], result_of(jobs[0], 0.5))
    shown = screen.file.getvalue()
    assert "1/4  H 50.0" in shown
    assert "1 of 8 jobs done, 0 running" in shown


def test_where_nobody_watches_there_is_a_line_a_job(features: Path) -> None:
    jobs = plan(features)
    screen = Screen(file=io.StringIO(), highlight=False, markup=False, soft_wrap=True, width=40)
    with watching(jobs, 2, screen) as watcher:
        assert isinstance(watcher, PlainLines)
        for job in jobs[:2]:
            watcher.kept(job, result_of(job, 0.5))
        for job in jobs[2:4]:
            watcher.started(job)
        watcher.ended(jobs[2], result_of(jobs[2], 0.512))
        watcher.ended(jobs[3], result_of(jobs[3], None, "no [bold] memory"))
    assert screen.file.getvalue().splitlines() == [
        "2 of 8 jobs were finished before",
        "[3/8] uniot, mine, sketch2photo, seed 0: H 51.2, 60.0 s",
        "[4/8] source-only, mine, sketch2photo, seed 0: failed: no [bold] memory",
    ]


def test_a_result_holds_every_score_and_how_it_was_made(done: tuple[Path, FinishedBenchmark], features: Path) -> None:
    out, _ = done
    job = plan(features)[0]
    about = json.loads((job.folder(out) / "result.json").read_text(encoding="utf-8"))
    assert about["digest"] == job.digest
    assert about["threads"] == 1
    assert about["evaluation"]["counts"]["rows"] == len(load_data(job).target)
    assert about["evaluation"]["h_score"] == about["result"]["h"]
    assert read_domain(Path(job.features), job.source).digest == job.source_digest
