"""`uniot adapt` killed at random moments of extraction, training and writing, then run again: the same answers."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import Report, arguments
from PIL import Image

SETTINGS = 'method = "uniot"\n'
SETTINGS += "steps = 200\nbatch_size = 8\nqueue_size = 16\nn_clusters = 4\nhidden_size = 256\ncheckpoint_every = 10\n"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--times", type=int, default=24, help="how often the command is killed")
    options = parser.parse_args()
    times = 2 if options.quick else options.times
    report = Report("kill", options.quick)
    moments = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="uniot-kill-") as folder:
        root = Path(folder)
        write_images(root)
        (root / "quick.toml").write_text(SETTINGS, encoding="utf-8")
        begin = time.perf_counter()
        finish(root, "undisturbed")
        took = time.perf_counter() - begin
        expected = (root / "undisturbed" / "predictions.csv").read_bytes()
        same = resumed = 0
        for number in range(times):
            name = f"run-{number}"
            # The first part of the time is spent on importing torch and timm, where nothing can be lost.
            state = kill(root, name, moments.uniform(0.25, 1.05) * took)
            finish(root, name)
            is_same = (root / name / "predictions.csv").read_bytes() == expected
            left = [path.name for path in (root / name).rglob("*") if path.name.endswith((".partial", ".lock"))]
            same += is_same and not left
            resumed += state != "nothing"
            print(
                f"killed with {state}: {'same answers' if is_same else 'OTHER ANSWERS'}{f', left {left}' * bool(left)}"
            )
        report.at_least(f"of {times} killed runs, those that ended like the undisturbed one", same, times)
        report.tell("of them had something to go on from", resumed)
    report.finish(options.json)


def write_images(root: Path) -> None:
    rng = np.random.default_rng(0)
    for collection, kinds in (("labelled", (60, 200, 120)), ("unlabelled", (60, 200, 240))):
        for kind in kinds:
            folder = root / collection / f"grey-{kind}"
            folder.mkdir(parents=True)
            for number in range(40):
                pixels = np.clip(rng.normal(kind, 30, (64, 64, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")


def command(root: Path, name: str) -> subprocess.Popen[bytes]:
    arguments = ["adapt", "labelled", "unlabelled", "--out", name, "--settings", "quick.toml"]
    return subprocess.Popen(
        [sys.executable, "-m", "uniot", *arguments],
        cwd=root,
        env=os.environ | {"UNIOT_CACHE": str(root / f"cache-{name}"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(root: Path, name: str, after: float) -> str:
    """Kills the command after some seconds and says what it had written by then."""
    process = command(root, name)
    time.sleep(after)
    process.kill()
    process.wait()
    if (root / name / "model.safetensors").exists():
        return "a finished run"
    if (root / name / "predictions.csv").exists() or (root / name / "settings.toml").exists():
        return "a run that was being written"
    if (root / name / "checkpoints").exists():
        return "a checkpoint"
    return "embeddings" if any((root / f"cache-{name}").rglob("*.sqlite")) else "nothing"


def finish(root: Path, name: str) -> None:
    if command(root, name).wait() != 0:
        sys.exit(f"the command failed for {name}")
    shutil.rmtree(root / f"cache-{name}", ignore_errors=True)


if __name__ == "__main__":
    main()
