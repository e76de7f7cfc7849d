"""`--engine ray` with Ray: a killed worker, a killed command, an interrupted command, and equal answers after each.

What a Ray that the command starts itself does to the machine: what it asks of the network, and what it leaves behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import make_folders, run_command
from uniot.distributed import predict_shards
from uniot.distributed.engine import Cluster, _end_threads, import_ray

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

# Ray waits two seconds for the thread in which it executes. Here it takes longer, as on a busy machine, and the process
# stays until the thread has ended.
SLOW_THREAD = """
import atexit, threading, time

from ray.data._internal.execution.streaming_executor import StreamingExecutor

update = StreamingExecutor._update_stats_metrics


def slow_update(self, *arguments, **options):
    if threading.current_thread() is self and self._shutdown:
        time.sleep(8)
    update(self, *arguments, **options)


def wait_for_threads():
    for thread in threading.enumerate():
        if isinstance(thread, StreamingExecutor):
            thread.join()


StreamingExecutor._update_stats_metrics = slow_update
atexit.register(wait_for_threads)
"""
# The interrupt comes while the command does something with an answer of Ray, which therefore does not see it. What
# yields the answers lives on in the traceback, until the command has ended Ray.
SLOW_COMMAND = """
import time

import uniot.distributed.engine as engine

answers = engine._answers


def slow_answers(*arguments, **options):
    made = answers(*arguments, **options)
    for answer in made:
        yield answer
        time.sleep(60)


engine._answers = slow_answers
"""
# The processes of Ray that report on a machine. If they are left behind, they try for a minute to tell so.
AGENTS = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}


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


def table(location: Path) -> pa.Table:
    files = sorted(location.glob("part-*.parquet")) if location.is_dir() else [location]
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("path")


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def processes_below(process: int) -> dict[int, str]:
    """The processes below one, with what they are called: Ray names a process by its class."""
    found = {int(folder.name): name_below(folder, process) for folder in Path("/proc").glob("[0-9]*")}
    return {number: name for number, name in found.items() if name}


def name_below(folder: Path, process: int) -> str:
    try:
        name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        above = parent(int(folder.name))
        while above > 1 and above != process:
            above = parent(above)
    except OSError:  # it has ended
        return ""
    return name if above == process else ""


def workers_of(process: int) -> list[int]:
    return [number for number, name in processes_below(process).items() if "MapWorker(" in name]


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def parts(out: Path) -> list[Path]:
    return list(out.glob("part-*.parquet"))


def wait_for(condition, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@dataclass(frozen=True)
class Killed:
    """A command that was killed with the Ray that it had started."""

    time: float
    processes: dict[int, str]
    asked: list[str]

    def left(self) -> set[str]:
        return {name.split()[0] for number, name in self.processes.items() if is_running(number)}


@pytest.fixture(scope="module")
def killed(photos, tmp_path_factory) -> Iterator[Killed]:
    """A command that was killed in the middle of its work; its requests to other machines went to this process."""
    asked: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_) -> None:
            pass

    out = tmp_path_factory.mktemp("killed") / "embeddings"
    command = ("embed", photos / "unlabelled", "--engine", "ray", "--workers", "1", "--out", out)
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = f"http://127.0.0.1:{server.server_port}"
        environment = without_address() | {"http_proxy": proxy, "no_proxy": "127.0.0.1,localhost"}
        with started(SCRIPT, command, env=environment) as driver:
            wait_for(lambda: len(parts(out)) >= 2 or driver.poll() is not None)
            processes = processes_below(driver.pid)
            driver.kill()
        yield Killed(time.monotonic(), processes, asked)
        server.shutdown()


@contextmanager
def started(script: str, command: Iterable[object], **options) -> Iterator[subprocess.Popen]:
    """A command in a process of its own, which does not outlive the block."""
    driver = subprocess.Popen([sys.executable, "-c", script, *map(str, command)], **options)
    try:
        yield driver
    finally:
        if driver.poll() is None:
            driver.kill()
        driver.wait()


def without_address() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}


def test_ray_does_not_ask_a_cloud_where_it_runs(killed):
    assert any("gcs_server" in name for name in killed.processes.values())
    assert killed.asked == []


def test_killed_command_takes_its_ray_along_except_for_two_agents(killed):
    assert {name.split()[0] for name in killed.processes.values()} > AGENTS
    wait_for(lambda: killed.left() <= AGENTS, 30)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ((), "Error: expected Ray to start on this machine, but it did not (The node timed out). Its log files are"),
        (
            ("--ray-address", "10.1.2.3:6379"),
            "Error: expected a Ray cluster at 10.1.2.3:6379, but it cannot be reached (The node timed out). Check",
        ),
    ],
)
def test_ray_that_does_not_start_is_one_sentence(photos, tmp_path, address, expected):
    with (
        mock.patch("ray.is_initialized", return_value=False),
        mock.patch("ray.init", side_effect=Exception("The node timed out\nlines of a log")),
        mock.patch.dict(os.environ, without_address(), clear=True),
    ):
        answer = run_command(
            "embed", photos / "unlabelled", "--engine", "ray", *address, "--out", tmp_path / "embeddings"
        )
    assert answer.code == 1
    assert " ".join(answer.stderr.split()).startswith(expected)
    assert "lines of a log" not in answer.stderr
    assert "Traceback" not in answer.stderr


def test_ray_without_a_place_for_its_files_is_one_sentence(photos, tmp_path):
    command = ("embed", photos / "unlabelled", "--engine", "ray", "--out", tmp_path / "embeddings")
    environment = without_address() | {"RAY_TMPDIR": "/proc/none"}
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, command)], env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert "expected Ray to start on this machine, but it did not ([Errno 2]" in answer.stderr
    assert "Traceback" not in answer.stderr


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
    with started(SCRIPT, (*command, "--ray-address", address)) as driver:
        wait_for(lambda: len(parts(out)) >= 3 or driver.poll() is not None)
        driver.kill()
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


@pytest.mark.parametrize("before", ["", SLOW_THREAD, SLOW_COMMAND], ids=["in Ray", "busy machine", "in the command"])
def test_interrupted_command_is_quiet_keeps_its_shards_and_stops_ray(photos, tmp_path, interruptible, before):
    out = tmp_path / "embeddings"
    command = ("embed", photos / "unlabelled", "--engine", "ray", "--workers", "1", "--out", out)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(before + SCRIPT, command, env=without_address(), **pipes) as driver:
        wait_for(lambda: len(parts(out)) >= 2 or driver.poll() is not None)
        workers = workers_of(driver.pid)
        driver.send_signal(signal.SIGINT)
        stdout, stderr = driver.communicate(timeout=180)
    assert driver.returncode == 130, stderr
    assert len(parts(out)) >= 2
    assert stdout == ""
    lines = [line for line in stderr.splitlines() if line and not line.startswith("Reading ")]
    assert lines == ["Interrupted. Finished work is kept; the same command continues from there."]
    wait_for(lambda: not any(is_running(worker) for worker in workers), 20)


def test_threads_that_fetch_results_end_before_ray():
    """Ray ends the whole process, with exit code 1 and without a word, if a thread calls it after its end."""
    thread = threading.Thread(target=time.sleep, args=(0.5,), name="iter_threaded", daemon=True)
    thread.start()
    _end_threads()
    assert not thread.is_alive()


def test_agents_of_a_killed_ray_end_after_a_minute(killed):
    """Ray has no setting for it; this is the last test here because the others run meanwhile."""
    wait_for(lambda: not killed.left(), max(killed.time + 90 - time.monotonic(), 0.1))
