"""What UniNCM costs as the target grows: processor time per target sample, and the peak of memory above the data.

    python benchmarks/large_targets.py
    python benchmarks/large_targets.py --sizes 10000 100000       # some sizes
    python benchmarks/large_targets.py --sizes 100000 --exact     # and how many labels differ from those of all pairs

50 classes with 100 labelled samples each, of which 40 are in the target beside 20 others; 256 numbers per sample. Each
size is fitted in a process of its own, with one thread.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
from measure import Report, arguments

import uniot.methods.unincm.method as unincm
import uniot.methods.unincm.neighbours as neighbours
from uniot import UniNCM

SIZES = (10_000, 50_000, 100_000, 300_000, 1_000_000)
CLASSES, EACH, ABSENT, PRIVATE, WIDTH, SPREAD = 50, 100, 10, 20, 256, 1.2
_BLOCK = 50_000


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--exact", action="store_true", help="also compare all pairs, which takes n² time")
    parser.add_argument("--measure", type=int, help="fit this size alone, in this process")
    parser.add_argument("--labels", type=Path, help="with --measure: where labels are written")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.labels, exact=options.exact)))
        return
    report, first = Report("large_targets", options.quick), None
    with TemporaryDirectory() as folder:
        for size in (2000, 4000) if options.quick else options.sizes:
            found = _in_a_process(size, Path(folder) / "labels.npy")
            report.tell(f"{size} samples: processor time of the fit", found["seconds"], "s")
            report.tell(f"{size} samples: peak above the data", found["bytes"] / 1e9, "GB")
            per_sample = found["seconds"] / size
            first = first or per_sample
            report.at_most(f"{size} samples: time per sample relative to the first size", per_sample / first, 1.5, "x")
            if options.exact and size > unincm.MOST_STORED:
                labels = np.load(Path(folder) / "labels.npy")
                _in_a_process(size, Path(folder) / "exact.npy", "--exact")
                equal = float((labels == np.load(Path(folder) / "exact.npy")).mean())
                report.at_least(f"{size} samples: labels as with all pairs", 100 * equal, 99, "%")
    report.finish(options.json)


def _in_a_process(size: int, labels: Path, *more: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(size), "--labels", str(labels), *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(size: int, labels: Path | None, *, exact: bool) -> dict[str, float]:
    if exact:
        unincm.MOST_STORED = neighbours.MOST_COMPARED_WITH_ALL = size
    random = np.random.default_rng(0)
    means = random.standard_normal((CLASSES + PRIVATE, WIDTH), dtype=np.float32)
    source_classes = np.repeat(np.arange(CLASSES), EACH)
    source = means[source_classes] + SPREAD * random.standard_normal((len(source_classes), WIDTH), dtype=np.float32)
    shift = random.standard_normal(WIDTH, dtype=np.float32) / 2
    target = np.empty((size, WIDTH), dtype=np.float32)
    for start in range(0, size, _BLOCK):
        block = target[start : start + _BLOCK]
        random.standard_normal(out=block, dtype=np.float32)
        block *= SPREAD
        block += means[random.integers(ABSENT, CLASSES + PRIVATE, len(block))] + shift
    before, began = _peak(), process_time()
    model = UniNCM(random_state=0).fit(source, source_classes, target)
    seconds, peak = process_time() - began, _peak() - before
    if labels is not None:
        np.save(labels, model.labels_)
    return {"seconds": seconds, "bytes": float(peak)}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
