"""`--engine ray` against one process: images per second with both cores, equal predictions, and a killed worker.

The images are made for it. Nothing is stored between runs: each begins with an empty store or folder. Speeds are those
after the start: the start of Ray and of its workers is told apart.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Report, arguments
from PIL import Image

from uniot.config import ImageSettings
from uniot.distributed import Cluster, embed_shards, predict_shards
from uniot.images.backbones import ImageReader
from uniot.images.embedding import ReadOptions, embed_images
from uniot.images.files import unlabelled_images
from uniot.images.store import EmbeddingStore

CLASSES, WORKERS = 4, 2


def main() -> None:
    options = arguments(__doc__).parse_args()
    n_images, per_shard, repeats = (64, 4, 1) if options.quick else (2048, 64, 5)
    report = Report("ray_engine", options.quick)
    with tempfile.TemporaryDirectory(prefix="uniot-ray-") as folder:
        root = Path(folder)
        os.environ["UNIOT_CACHE"] = str(root / "cache")
        labelled, unlabelled = make_images(root / "labelled", 40, seed=0), make_images(root / "new", n_images, seed=1)
        measure_speed(report, unlabelled, root, per_shard, repeats)
        measure_equality(report, labelled, unlabelled, root, per_shard)
    report.finish(options.json)


def make_images(folder: Path, count: int, seed: int) -> Path:
    """JPEGs of 640 × 480 pixels, a smooth pattern per class with noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:480, :640] / 480
    for number in range(count):
        kind = number % CLASSES
        wave = np.sin((kind + 1) * 6 * x + rng.normal()) * np.cos((CLASSES - kind) * 5 * y + rng.normal())
        pixels = 127 + 90 * wave[:, :, None] * rng.uniform(0.5, 1, 3) + rng.normal(0, 12, (480, 640, 3))
        path = folder / f"class {kind}" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path, quality=90)
    return folder


class Clock:
    """Images per second between the report by which all workers have begun and the last one."""

    def __init__(self, first: int) -> None:
        self._began, self._first, self._reports = time.perf_counter(), first, []

    def __call__(self, done: int, total: int, computed: int, speed: float) -> None:
        self._reports.append((done, time.perf_counter()))

    @property
    def speed(self) -> float:
        begin = next(one for one in self._reports if one[0] >= self._first)
        done, end = self._reports[-1]
        return (done - begin[0]) / max(end - begin[1], 1e-9)

    @property
    def start(self) -> float:
        """Seconds until the first images were done, without the time that they take at full speed."""
        done, at = next(one for one in self._reports if one[0] >= self._first)
        return at - self._began - done / self.speed


def measure_speed(report: Report, images: Path, root: Path, per_shard: int, repeats: int) -> None:
    reader = ImageReader.open(ImageSettings.checked())
    files = unlabelled_images(images)
    clocks: dict[str, list[Clock]] = {"process": [], "ray": []}
    for turn in range(repeats + 1):
        clock = Clock(WORKERS * per_shard)
        store = EmbeddingStore(root / f"store-{turn}")
        embed_images(files, reader, ReadOptions(store, progress=lambda _, clock=clock: clock))
        clocks["process"].append(clock)
        clock = Clock(WORKERS * per_shard)
        cluster = Cluster(workers=WORKERS)
        embed_shards(images, root / f"shards-{turn}", cluster=cluster, per_shard=per_shard, on_progress=clock)
        clocks["ray"].append(clock)
    # The first round is not measured.
    speed = {name: statistics.median(clock.speed for clock in taken[1:]) for name, taken in clocks.items()}
    report.tell(f"one process, {len(files)} images, median of {repeats}", speed["process"], "/s")
    report.tell(f"{WORKERS} workers of Ray, {len(files)} images, median of {repeats}", speed["ray"], "/s")
    report.at_least(
        "images per second with Ray against one process, after the start", speed["ray"] / speed["process"], 1.0
    )
    start = statistics.median(clock.start for clock in clocks["ray"][1:])
    report.tell("start of Ray and of its workers, median", start, "s")


def measure_equality(report: Report, labelled: Path, new: Path, root: Path, per_shard: int) -> None:
    run = root / "run"
    command = [sys.executable, "-m", "uniot"]
    subprocess.run([*command, "adapt", labelled, new, "--out", run], check=True, capture_output=True)
    subprocess.run([*command, "predict", run, new, "--out", root / "one.parquet"], check=True, capture_output=True)
    one = pq.read_table(root / "one.parquet").sort_by("path")
    for what, kills in (("", False), (", one worker killed", True)):
        out = root / f"predictions-{kills}"
        killer = threading.Thread(target=kill_worker, args=(out,), daemon=True)
        if kills:
            killer.start()
        found = predict_shards(run, new, out, cluster=Cluster(workers=WORKERS), per_shard=per_shard)
        parts = pa.concat_tables([pq.read_table(part) for part in sorted(out.glob("part-*"))]).sort_by("path")
        differing = (
            len(one)
            if len(parts) != len(one)
            else sum(mine != other for mine, other in zip(parts.to_pylist(), one.to_pylist(), strict=True))
        )
        report.at_most(f"rows that differ from those of one process, of {len(one)}{what}", differing, 0)
        if kills:
            report.tell("workers that were replaced in the middle of a shard", found.n_lost)


def kill_worker(out: Path) -> None:
    """Kill a worker of this process, in the middle of a shard, when two parts are there."""
    while len(list(out.glob("part-*"))) < 2:
        time.sleep(0.01)
    while not kill_busy():
        time.sleep(0.01)


def kill_busy() -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Ray names a process by what it does.
            process = int(folder.name) if b"MapWorker(" in (name := (folder / "cmdline").read_bytes()) else 0
            process = process if b").submit" in name else 0
            above = process
            while above > 1 and above != os.getpid():
                above = int((Path(f"/proc/{above}") / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if process and above == os.getpid():
            os.kill(process, signal.SIGKILL)
            return True
    return False


if __name__ == "__main__":
    main()
