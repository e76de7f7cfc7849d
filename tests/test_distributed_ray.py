"""`--engine ray` with Ray: a killed worker, a killed command, an interrupted command, and equal answers after each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import make_folders, run_command
from uniot.distributed import predict_shards
from uniot.distributed.engine import Cluster, import_ray

pytestmark = [
    pytest.mark.slow,
    # Ray warns about its own options, in threads too.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

# An image per shard and a pause: what is killed is in the middle of its work.
SCRIPT = """
import sys

import uniot.distributed.inputs as inputs
from uniot.cli import main

inputs.IMAGES_PER_SHARD = 1
sys.argv = ["uniot", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """A run, made of a labelled and an unlabelled folder beside it, and what one process says about the latter."""
    top = tmp_path_factory.mktemp("photos")
    labelled, unlabelled = make_folders(top, each=4)
    assert run_command("adapt", labelled, unlabelled, "--out", top / "run").code == 0
    assert run_command("predict", top / "run", unlabelled, "--out", top / "predictions.parquet").code == 0
    assert run_command("embed", unlabelled, "--out", top / "embeddings.parquet").code == 0
    return top


@pytest.fixture(scope="module")
def address(photos) -> Iterator[str]:
    """The address of a Ray with two cores, which this process has joined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = import_ray(Cluster())
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="CRITICAL")
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


def table(place: Path) -> pa.Table:
    files = sorted(place.glob("part-*.parquet")) if place.is_dir() else [place]
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("path")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def workers_of(process: int) -> list[int]:
    """The workers below a process: Ray names a process by its class."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if is_worker_below(folder, process)]


def is_worker_below(folder: Path, process: int) -> bool:
    try:
        above = int(folder.name) if b"MapWorker(" in (folder / "cmdline").read_bytes() else 0
        while above > 1 and above != process:
            above = parent(above)
    except OSError:  # it has ended
        return False
    return above == process


def parts(out: Path) -> list[Path]:
    return list(out.glob("part-*.parquet"))


def wait_for(condition, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_killed_worker_loses_nothing_and_doubles_nothing(address, photos, tmp_path):
    out, killed = tmp_path / "predictions", []

    def kill_one() -> None:
        wait_for(lambda: len(parts(out)) >= 2)
        # Both workers are busy as long as there are shards.
        killed.append(workers_of(os.getpid())[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    new = f"file://{photos / 'unlabelled'}"
    found = predict_shards(photos / "run", new, f"file://{out}", cluster=Cluster(workers=2), per_shard=1)
    killer.join()
    assert killed
    assert (found.n_shards, found.rows, found.n_computed) == (12, 12, 12)
    # 0 if the worker had sent its answer and was about to take the next shard.
    assert found.n_lost in (0, 1)
    assert table(out).equals(table(photos / "predictions.parquet")), "to the last bit"


def test_command_that_is_killed_continues_with_the_missing_shards(address, photos, tmp_path):
    out = tmp_path / "embeddings"
    command = ("embed", photos / "unlabelled", "--engine", "ray", "--workers", "2", "--out", out)
    driver = subprocess.Popen([sys.executable, "-c", SCRIPT, *map(str, command), "--ray-address", address])
    wait_for(lambda: len(parts(out)) >= 3 or driver.poll() is not None)
    driver.kill()
    driver.wait()
    assert driver.returncode == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in parts(out)}
    assert len(before) < 12
    with mock.patch("uniot.distributed.inputs.IMAGES_PER_SHARD", 1):
        answer = run_command(*command)
    assert answer.code == 0, answer.stderr
    assert "parts of 12 were there before" in answer.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before, "they were not computed again"
    assert table(out).equals(table(photos / "embeddings.parquet"))
    assert not list(out.glob(".*")), "no temporary file is left"


def test_interrupted_command_is_quiet_keeps_its_shards_and_stops_ray(photos, tmp_path, interruptible):
    out = tmp_path / "embeddings"
    command = ("embed", photos / "unlabelled", "--engine", "ray", "--workers", "1", "--out", out)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    driver = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    wait_for(lambda: len(parts(out)) >= 2 or driver.poll() is not None)
    workers = workers_of(driver.pid)
    driver.send_signal(signal.SIGINT)
    stdout, stderr = driver.communicate(timeout=60)
    assert driver.returncode == 130, stderr
    assert len(parts(out)) >= 2
    assert stdout == ""
    lines = [line for line in stderr.splitlines() if line and not line.startswith("Reading ")]
    assert lines == ["Interrupted. Finished work is kept; the same command continues from there."]
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)
