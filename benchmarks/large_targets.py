"""What UniNCM costs as the target grows: processor time per target sample, and memory beside the file of the target.

    python benchmarks/large_targets.py
    python benchmarks/large_targets.py --sizes 10000 100000       # some sizes
    python benchmarks/large_targets.py --sizes 100000 --exact     # and how many labels a fit to all samples shares
    python benchmarks/large_targets.py --sizes 100000 --stored 5000 20000 --exact    # other parts of the target
    python benchmarks/large_targets.py --folder /large-disk       # 10 000 000 samples are a file of ten gigabytes
    python benchmarks/large_targets.py --sizes 10000 --classes 345 --each 500 --common 200    # many labelled samples
    python benchmarks/large_targets.py --sizes 100000 --dominating 0.9                   # most are of one new class
    python benchmarks/large_targets.py --sizes 100000 --classes 3 --common 2 --private 1      # few classes

50 classes with 100 labelled samples each, of which 40 are in the target beside 20 others; 256 numbers per sample. One
of the 40 is rare: one sample in two thousand. `--spread` is that within classes: at 1.2 they lie far apart, at 5 they
overlap. The target is mapped from a file. Each size is fitted in a process of its own, with one thread; memory is the
largest that the process had of its own, without what it mapped, less what it had before the fit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
from measure import Report, arguments

import uniot.neighbours as neighbours
from uniot import UniNCM
from uniot.methods.unincm.method import UniNCMMethod

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
WIDTH = 256
SHARE_OF_RARE = 1 / 2000
_BLOCK = 50_000


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument(
        "--stored",
        type=int,
        nargs="+",
        default=[UniNCMMethod.most_fitted_rows],
        metavar="N",
        help="samples that the rule is fitted to, and among which neighbours are searched",
    )
    parser.add_argument("--classes", type=int, default=50, help="labelled classes")
    parser.add_argument("--each", type=int, default=100, help="labelled samples of each class")
    parser.add_argument("--common", type=int, default=40, help="labelled classes that are in the target")
    parser.add_argument("--private", type=int, default=20, help="other classes of the target")
    parser.add_argument("--dominating", type=float, default=0, help="share of the target that is of its last class")
    parser.add_argument("--spread", type=float, default=1.2, help="standard deviation within a class")
    parser.add_argument("--exact", action="store_true", help="also fit to all samples, which takes n² time")
    parser.add_argument("--folder", type=Path, help="for the file of the target; default: a temporary folder")
    parser.add_argument("--measure", type=Path, help="fit to the data in this folder, in this process")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.stored[0])))
        return
    report, first = Report("large_targets", options.quick), None
    for size in (2000, 4000) if options.quick else options.sizes:
        with TemporaryDirectory(dir=options.folder) as folder:
            write_domains(Path(folder), size, options)
            truth = np.load(Path(folder) / "truth.npy")
            wanted = np.where(truth < options.classes, truth, -1)
            exact = _in_a_process(Path(folder), size)[1] if options.exact else None
            for stored in options.stored:
                found, labels = _in_a_process(Path(folder), stored)
                which = f"{size} samples" + (f", {stored} stored" if len(options.stored) > 1 else "")
                report.tell(f"{which}: processor time of the fit", found["cpu_seconds"], "s")
                report.tell(f"{which}: time of the fit", found["seconds"], "s")
                report.at_most(f"{which}: memory beside the file", found["bytes"] / 1e9, 2, "GB")
                per_sample = found["cpu_seconds"] / size
                first = first or per_sample
                report.at_most(f"{which}: time per sample relative to the first", per_sample / first, 1.5, "x")
                right = labels == wanted
                report.tell(f"{which}: right", 100 * float(right.mean()), "%")
                for part, own in {
                    "common": wanted >= 0,
                    "private": wanted < 0,
                    "the rare class": (truth == options.classes - options.common) & (options.common > 1),
                }.items():
                    if own.any():
                        report.tell(f"{which}: right of {part}", 100 * float(right[own].mean()), "%")
                if exact is not None:
                    equal = 100 * float((labels == exact).mean())
                    report.at_least(f"{which}: labels as by a fit to all samples", equal, 99, "%")
            if exact is not None:
                report.tell(f"{size} samples, fitted to all of them: right", 100 * float((exact == wanted).mean()), "%")
    report.finish(options.json)


def write_domains(folder: Path, size: int, options: Namespace) -> None:
    """Write both domains and the truth of the target."""
    random, spread = np.random.default_rng(0), options.spread
    absent, n_classes = options.classes - options.common, options.classes + options.private
    means = random.standard_normal((n_classes, WIDTH), dtype=np.float32)
    source_classes = np.repeat(np.arange(options.classes), options.each)
    source = means[source_classes] + spread * random.standard_normal((len(source_classes), WIDTH), dtype=np.float32)
    shift = random.standard_normal(WIDTH, dtype=np.float32) / 2
    truth = random.integers(absent + (options.common > 1), n_classes, size)
    truth[random.random(size) < options.dominating] = n_classes - 1
    if options.common > 1:
        truth[random.random(size) < SHARE_OF_RARE] = absent
    target = np.lib.format.open_memmap(folder / "target.npy", "w+", np.float32, (size, WIDTH))
    for start in range(0, size, _BLOCK):
        own = truth[start : start + _BLOCK]
        noise = spread * random.standard_normal((len(own), WIDTH), dtype=np.float32)
        target[start : start + _BLOCK] = noise + means[own] + shift
    target.flush()
    for name, values in {"source": source, "source_classes": source_classes, "truth": truth}.items():
        np.save(folder / f"{name}.npy", values)


def _in_a_process(folder: Path, stored: int) -> tuple[dict[str, float], np.ndarray]:
    command = [sys.executable, __file__, "--measure", str(folder), "--stored", str(stored)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1]), np.load(folder / "labels.npy")


def measured(folder: Path, stored: int) -> dict[str, float]:
    # All pairs are compared, in place of the index that near-duplicates of as many samples are searched with.
    UniNCMMethod.most_fitted_rows = neighbours.MOST_COMPARED_WITH_ALL = stored
    source, classes = (np.load(folder / f"{name}.npy") for name in ("source", "source_classes"))
    target = np.load(folder / "target.npy", mmap_mode="r")
    with _OwnMemory() as memory:
        began, began_cpu = perf_counter(), process_time()
        model = UniNCM(random_state=0).fit(source, classes, target)
        seconds, cpu_seconds = perf_counter() - began, process_time() - began_cpu
    np.save(folder / "labels.npy", model.labels_)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "bytes": float(memory.largest)}


class _OwnMemory:
    """Looks every tenth of a second at the memory of this process that no file backs."""

    def __enter__(self) -> _OwnMemory:
        self._before, self.largest, self._ended = _own_bytes(), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.largest = max(self.largest, _own_bytes() - self._before)


def _own_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    main()
