"""`uniot embed`, `adapt`, `report`, `label` and `benchmark` killed at random moments and run again: nothing is lost.

Each command works on small images that are made up, is killed with SIGKILL several times in a row, and is then run to
its end. What it wrote must be that of an undisturbed run, byte by byte (but for the seconds that a job took); on the
labelling page, every action that was answered must be there afterwards.

A command is a fork of this process, which has imported torch and the rest before, so that the moments fall into the
work itself.
"""

from __future__ import annotations

import csv
import http.client
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from measure import Report, arguments
from PIL import Image
from safetensors.torch import save_file

import uniot.adaptation.adapt
import uniot.adaptation.collections
import uniot.cli
import uniot.export.hub
import uniot.images.embedding
import uniot.labelling.exporting
import uniot.labelling.server
import uniot.report
import uniot.training.fit
from uniot.datasets.catalogue import benchmark_set
from uniot.images.backbones import load_backbone
from uniot.images.weights import import_timm

SETTINGS = 'method = "uniot"\nsteps = 150\nbatch_size = 8\nqueue_size = 16\nn_clusters = 4\nhidden_size = 256\n'
SETTINGS += "checkpoint_every = 10\nn_private_classes = 3\n"
OPTIONS = "steps = 40\nhidden_size = 16\nfeature_size = 8\nbatch_size = 12\nqueue_size = 24\n"
# A network small enough that most of the time is spent on reading and writing.
BACKBONE = ("--backbone", "test_resnet", "--weights", "weights.safetensors")
ADAPT = ("adapt", "labelled", "unlabelled", *BACKBONE, "--settings", "quick.toml", "--out", "{out}/run")
_KILLS_IN_A_ROW = 3
_ACTIONS, _MOVED = 300, 5


@dataclass(frozen=True)
class Trial:
    """A command that is killed.

    Attributes:
        name: of the command.
        arguments: after `uniot`; `{out}` is the place that it writes to.
        begin: brings a new place to where the command begins.
        outcome: what must be the same in the end.
    """

    name: str
    arguments: tuple[str, ...]
    begin: Callable[[Path], None]
    outcome: Callable[[Path], dict[str, bytes]]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments")
    parser.add_argument("--only", help="name of one command")
    options = parser.parse_args()
    kills = 2 if options.quick else options.kills
    report, moments = Report("kill_anywhere", options.quick), random.Random(options.seed)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    import_timm()
    with tempfile.TemporaryDirectory(prefix="uniot-kill-") as folder:
        root = Path(folder)
        prepare(root)
        for trial in trials(root):
            if options.only in (None, trial.name):
                killed, same = kill_command(root, trial, kills, moments)
                report.at_least(f"{trial.name}: of {killed} kills, those after which all was the same", same, killed)
        if options.only in (None, "label"):
            killed, same = kill_label(root, kills, moments)
            report.at_least(f"label: of {killed} kills, those after which every action was there", same, killed)
    report.finish(options.json)
    sys.exit(0 if all(figure.reached is not False for figure in report.figures) else 1)


def trials(root: Path) -> list[Trial]:
    tables = ("benchmark", "office31", "--features", "features.npz", "--options", "options.toml", "--jobs", "1")
    tables += ("--methods", "uniot,source-only", "--tasks", "A2W", "--seeds", "3", "--out", "{out}/results")
    return [
        Trial("embed", ("embed", "unlabelled", *BACKBONE, "--out", "{out}/x.npz"), lambda place: None, all_files),
        Trial("adapt", ADAPT, lambda place: None, all_files),
        Trial("report", ("report", "{out}/run"), lambda place: copy_run(root, place), all_files),
        Trial("benchmark", tables, lambda place: None, scores),
    ]


def kill_command(root: Path, trial: Trial, kills: int, moments: random.Random) -> tuple[int, int]:
    """Return how often the command was killed, and after how many of these kills its outcome was right in the end."""
    whole = root / f"{trial.name}-whole"
    begin_at(whole, trial)
    start = time.perf_counter()
    finish(root, trial, whole)
    took, expected = time.perf_counter() - start, trial.outcome(whole)
    killed = same = 0
    while killed < kills:
        place, in_a_row = root / f"{trial.name}-{killed}", 0
        begin_at(place, trial)
        while in_a_row < min(_KILLS_IN_A_ROW, kills - killed):
            process = started(root, trial, place)
            if process.ends_within(moments.uniform(0, 0.95) * took):
                break
            process.kill()
            in_a_row += 1
        finish(root, trial, place)
        found = trial.outcome(place)
        other = sorted(name for name in expected | found if expected.get(name) != found.get(name))
        print(f"{trial.name} killed {in_a_row} times: {f'OTHER: {other}' if other else 'the same'}", flush=True)
        killed, same = killed + in_a_row, same + (0 if other else in_a_row)
        shutil.rmtree(place)
    return killed, same


def kill_label(root: Path, kills: int, moments: random.Random) -> tuple[int, int]:
    """Name groups and discard samples over HTTP while the server is killed; compare the exported table in the end."""
    whole = root / "label-whole"
    copy_run(root, whole)
    killed = lost = 0
    act_until_killed(whole / "run", None)
    expected = exported(root, whole)
    while killed < kills:
        place, answered = root / f"label-{killed}", 0
        copy_run(root, place)
        while killed < kills and answered < _ACTIONS:
            before, after = act_until_killed(place / "run", moments.uniform(0, 0.5), answered)
            # An action may be saved and its answer not come through; never the other way round.
            lost += before not in (answered, answered + 1)
            killed, answered = killed + 1, after
        act_until_killed(place / "run", None, answered)
        table = exported(root, place)
        lost += table != expected
        print(f"label killed {killed} times: {'the same' if table == expected else 'OTHER labels.csv'}", flush=True)
        shutil.rmtree(place)
    return killed, killed - lost


def act_until_killed(run: Path, seconds: float | None, answered: int = 0) -> tuple[int, int]:
    """Serve a run and act on it; return how many actions were there at the start, and how many were answered."""
    server = Command(run.parent, ("label", str(run)), {})
    try:
        found = re.search(r"http://([^/\s]+)(\S+)", server.first_line())
        if found is None:
            sys.exit(f"`uniot label {run}` did not start.")
        connection = http.client.HTTPConnection(found[1])
        cookie = asked(connection, "GET", found[2])[1]["set-cookie"].partition(";")[0]
        headers = {"Cookie": cookie, "Origin": f"http://{found[1]}", "Content-Type": "application/json"}
        before = done = int(json.loads(asked(connection, "GET", "/state", None, headers)[0])["revision"])
        timer = None if seconds is None else threading.Timer(seconds, server.kill)
        if timer is not None:
            timer.start()
        try:
            for number in range(before, _ACTIONS):
                body = json.dumps({"seen": number, "action": action(number)})
                done = int(json.loads(asked(connection, "POST", "/actions", body, headers)[0])["state"]["revision"])
        except (OSError, http.client.HTTPException):
            pass
        if timer is not None:
            timer.join()
        return before, done
    finally:
        server.kill()


def action(number: int) -> dict[str, object]:
    """The same action for the same number; each changes something."""
    if number % 5 == 4:
        there = number // 5 // _MOVED % 2
        return {"kind": "move", "rows": [number // 5 % _MOVED], "to": "class-0" if there else "discarded"}
    return {"kind": "name", "group": 0, "name": f"name {number}"}


def asked(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[bytes, dict[str, str]]:
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status in (200, 303), content
    return content, {name.lower(): value for name, value in answer.getheaders()}


def exported(root: Path, place: Path) -> bytes:
    if call(root, place, ("label", "{out}/run", "--out", "{out}/run/labels.csv")).wait():
        sys.exit(f"`uniot label --out` failed in {place}.")
    return (place / "run" / "labels.csv").read_bytes()


def prepare(root: Path) -> None:
    """Write images, features of a benchmark, settings, and a finished run."""
    rng = np.random.default_rng(0)
    for collection, kinds in (("labelled", (60, 200, 120)), ("unlabelled", (60, 200, 240, 20))):
        for kind in kinds:
            folder = root / collection / f"grey-{kind}"
            folder.mkdir(parents=True)
            for number in range(25):
                pixels = np.clip(rng.normal(kind, 30, (64, 64, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    (root / "quick.toml").write_text(SETTINGS, encoding="utf-8")
    (root / "options.toml").write_text(OPTIONS, encoding="utf-8")
    known = benchmark_set("office31")
    centres, labels = rng.normal(size=(31, 24)), np.repeat(np.arange(31), 4)
    arrays = {"classes": np.array(sorted(known.classes)), "backbone": np.array("toy network")}
    for domain in known.domains:
        arrays[f"{domain.folder}_x"] = centres[labels] + 0.3 * rng.normal(size=(len(labels), 24))
        arrays[f"{domain.folder}_y"] = labels
    np.savez(root / "features.npz", **arrays)
    made = root / "made"
    made.mkdir()
    network = load_backbone("test_resnet", pretrained=False).network
    save_file(network.state_dict(), root / "weights.safetensors")
    if call(root, made, ADAPT).wait():
        sys.exit("`uniot adapt` failed; run it by hand to see why.")


def copy_run(root: Path, place: Path) -> None:
    shutil.copytree(root / "made" / "run", place / "run")
    (place / "run" / "report.html").unlink(missing_ok=True)


def begin_at(place: Path, trial: Trial) -> None:
    place.mkdir(exist_ok=True)
    trial.begin(place)


def all_files(place: Path) -> dict[str, bytes]:
    """Everything below a place but the store; a file that a killed process left behind would be among it."""
    files = (path for path in sorted(place.rglob("*")) if path.is_file())
    relative = {path.relative_to(place).as_posix(): path for path in files}
    return {name: content(path) for name, path in relative.items() if not name.startswith("cache/")}


def content(path: Path) -> bytes:
    """Return the bytes of a file; safetensors writes the metadata in an order that it draws, which is sorted here."""
    data = path.read_bytes()
    if path.suffix != ".safetensors":
        return data
    end = 8 + int.from_bytes(data[:8], "little")
    return json.dumps(json.loads(data[8:end]), sort_keys=True).encode() + data[end:]


def scores(place: Path) -> dict[str, bytes]:
    """Tables, and results.csv without the seconds that each job took."""
    found = {name: data for name, data in all_files(place).items() if "/jobs/" not in name}
    with (place / "results" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [{name: cell for name, cell in row.items() if "seconds" not in name} for row in csv.DictReader(file)]
    return found | {"results/results.csv": json.dumps(rows).encode()}


def finish(root: Path, trial: Trial, place: Path) -> None:
    process = started(root, trial, place)
    if process.wait():
        sys.exit(f"`uniot {' '.join(trial.arguments)}` failed in {place}.")


def started(root: Path, trial: Trial, place: Path) -> Command:
    return call(root, place, trial.arguments)


def call(root: Path, place: Path, words: tuple[str, ...]) -> Command:
    named = tuple(word.replace("{out}", place.name) for word in words)
    return Command(root, named, {"UNIOT_CACHE": str(place / "cache")})


class Command:
    """`uniot` with some arguments, in a fork of this process.

    Args:
        folder: to run it in.
        words: after `uniot`.
        environment: further variables.
    """

    def __init__(self, folder: Path, words: tuple[str, ...], environment: dict[str, str]) -> None:
        self._code: int | None = None
        reading, writing = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reading)
            _become(folder, words, environment, writing)
        os.close(writing)
        self._output = os.fdopen(reading, "r", encoding="utf-8")

    def first_line(self) -> str:
        """Return the first line of standard output, or nothing if the command ends without one."""
        return self._output.readline()

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for the end of the command; return whether it came."""
        end = time.monotonic() + seconds
        while self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self._output.close()
            elif time.monotonic() > end:
                return False
            else:
                time.sleep(0.002)
        return True

    def wait(self) -> int:
        """Wait for the end of the command; return its code."""
        self.ends_within(float("inf"))
        assert self._code is not None
        return self._code

    def kill(self) -> None:
        """Send SIGKILL, unless the command has ended, and wait for its end."""
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            self.wait()


def _become(folder: Path, words: tuple[str, ...], environment: dict[str, str], output: int) -> NoReturn:
    """Run the command in this process, which a fork has just made, and end it."""
    code = 70
    try:
        os.chdir(folder)
        os.environ.update(environment)
        os.dup2(output, 1)
        os.dup2(os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        sys.argv = ["uniot", *words]
        try:
            uniot.cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
