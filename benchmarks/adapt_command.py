"""Time of the whole command `uniot adapt` on given embeddings: imports, reading, adapting, counting, writing.

The classes differ in 64 directions, in which the domains are shifted against each other; two thirds of the classes of
the target are known to the source. Every command is a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import Report, arguments

N_TARGET, PER_CLASS, DIRECTIONS = 2500, 40, 64
CLASSES, WIDTHS, REPEATS = (30, 50, 70), (256, 2048), 3
MOST_SECONDS = 8


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("adapt_command", options.quick)
    n_target, classes, widths, repeats = N_TARGET, CLASSES, WIDTHS, REPEATS
    if options.quick:
        n_target, classes, widths, repeats = 300, (5,), (32,), 1
    scale = [timed([sys.executable, "-c", "import torch"]) for _ in range(repeats)]
    for name, times in zip(("", ": processor time"), zip(*scale, strict=True), strict=True):
        report.tell(
            f"import of torch alone, as a scale of the machine{name}", statistics.median(times), "s", seconds=times
        )
    with tempfile.TemporaryDirectory(prefix="uniot-adapt-") as folder:
        for n_classes in classes:
            for width in widths:
                source, target = write_domains(Path(folder), n_target, n_classes, width)
                runs = [adapt(source, target, Path(folder) / "run") for _ in range(repeats)]
                wall, processor = zip(*runs, strict=True)
                what = f"uniot adapt, {n_target} target samples, {n_classes} classes, {width} dimensions"
                report.at_most(what, statistics.median(wall), MOST_SECONDS, "s", seconds=wall)
                report.tell(f"{what}: processor time", statistics.median(processor), "s", seconds=processor)
    report.finish(options.json)


def write_domains(folder: Path, n_target: int, n_classes: int, width: int) -> tuple[Path, Path]:
    """Source of `n_classes`, target with half as many private classes beside them, of uneven sizes."""
    rng = np.random.default_rng(0)
    n_all = n_classes + n_classes // 2
    mixing = rng.normal(size=(DIRECTIONS, width)) / DIRECTIONS**0.5
    within = 0.9 * rng.normal(size=(DIRECTIONS, DIRECTIONS)) / DIRECTIONS**0.5
    centres, shift = rng.normal(size=(n_all, DIRECTIONS)), 0.7 * rng.normal(size=DIRECTIONS)

    def embeddings(classes: np.ndarray, moved: np.ndarray | float) -> np.ndarray:
        latent = centres[classes] + moved + rng.normal(size=(len(classes), DIRECTIONS)) @ within
        noise = 0.3 * rng.normal(size=(len(classes), width))
        return np.maximum(latent @ mixing + noise, 0).astype(np.float32)

    labels = np.repeat(np.arange(n_classes), PER_CLASS)
    of_target = rng.choice(n_all, n_target, p=rng.dirichlet(np.full(n_all, 5.0)))
    source, target = folder / "source.npz", folder / "target.npz"
    np.savez(source, x=embeddings(labels, 0.0), y=labels)
    np.savez(target, x=embeddings(of_target, shift))
    return source, target


def adapt(source: Path, target: Path, out: Path) -> tuple[float, float]:
    arguments = ["adapt", str(source), str(target), "--out", str(out), "--overwrite"]
    return timed([sys.executable, "-m", "uniot", *arguments])


def timed(command: list[str]) -> tuple[float, float]:
    """Runs a command; returns its seconds, and those of the processors that worked for it."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, processor


if __name__ == "__main__":
    main()
