"""A million rows from a memory-mapped feature file: peak memory, and time as the rows grow."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# This process must stay small, because a child's getrusage begins at the size of its parent: no torch in here.
from measure import Report, arguments

ROWS, CLASSES, WIDTHS = 1_000_000, 200, (64, 256)
_GIGABYTE = 1e9
_CHUNK = 50_000


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--width", type=int, nargs="+", default=WIDTHS, help="d of the features")
    parser.add_argument("--repeats", type=int, default=7, help="timed solves of each size")
    parser.add_argument("--child", choices=tuple(_CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_CHILDREN[options.child](options)))
        return
    if options.quick:
        options.rows, options.width, options.repeats = 60_000, WIDTHS[:1], 2
    report = Report("memory", options.quick)
    for width in options.width:
        measure(report, options, width)
    report.finish(options.json)


def measure(report: Report, options: argparse.Namespace, width: int) -> None:
    name = f"{options.rows}x{options.classes}, d={width}"
    with tempfile.TemporaryDirectory(prefix="uniot-memory-") as folder:
        file = Path(folder) / "features.f32"
        _in_child("write", options, width, file, options.rows)
        # The most rows whose kernel is kept rather than recomputed may need more memory than any other number.
        most_kept = min(options.rows, _in_child("most_kept", options, width, file, options.rows))
        for rows in sorted({options.rows // 2, most_kept, options.rows}):
            peak = _in_child("peak", options, width, file, rows)
            what = f"{name}: {rows} rows, peak memory above {peak['baseline'] / _GIGABYTE:.2f} GB"
            report.at_most(f"{what}, sampled", peak["sampled"] / _GIGABYTE, 0.3, "GB", **peak)
            report.at_most(f"{what}, by getrusage", peak["rusage"] / _GIGABYTE, 0.3, "GB", **peak)
        _report_times(report, name, _in_child("times", options, width, file, options.rows))


def _report_times(report: Report, name: str, solves: list[dict[str, Any]]) -> None:
    """Time a row and pass, against that at half as many rows; linear means one."""
    cost = []
    for solve in solves:
        median = statistics.median(solve["seconds"])
        cost.append(1e9 * median / solve["rows"] / solve["passes"])
        how = "kept in memory" if solve["kept"] else "recomputed in each pass"
        what = f"{name}: {solve['rows']} rows, kernel {how}, {solve['passes']} passes"
        report.tell(what, median, "s", **solve)
        report.tell(f"{what}, time a row and pass", cost[-1], "ns")
    report.tell(f"{name}: time a row and pass, all rows against a quarter of them", cost[2] / cost[0], "x")
    half = f"{name}: time a row and pass, all rows against half of them"
    # A kernel that is kept costs half as much a pass as one that is recomputed: no question of rows.
    if solves[1]["kept"] == solves[2]["kept"]:
        report.at_most(half, cost[2] / cost[1], 1.2, "x")
    else:
        report.tell(half, cost[2] / cost[1], "x")


def _in_child(task: str, options: argparse.Namespace, width: int, file: Path, rows: int) -> Any:
    """Runs a task in a fresh process and reads its answer."""
    command = [sys.executable, __file__, "--child", task, "--file", str(file), "--rows", str(rows)]
    command += ["--width", str(width), "--classes", str(options.classes), "--repeats", str(options.repeats)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


# ---------------------------------------------------------------- what the children do


def _clusters(options: argparse.Namespace):
    from problems import Clusters

    return Clusters(options.classes, seed=0, d=options.width[0])


def write(options: argparse.Namespace) -> int:
    clusters = _clusters(options)
    with options.file.open("wb") as file:
        for start in range(0, options.rows, _CHUNK):
            file.write(clusters.draw(min(_CHUNK, options.rows - start)).numpy().data)
    return options.rows


def _open(options: argparse.Namespace, rows: int):
    import numpy as np

    return np.memmap(options.file, np.float32, "r", shape=(rows, options.width[0]))


def peak(options: argparse.Namespace) -> dict[str, float]:
    """Bytes above what imports and the open map take, while one problem is solved."""
    import resource
    import threading

    import psutil

    from uniot.transport.rows import FeatureRows
    from uniot.transport.unbalanced import unbalanced_potential

    rows = FeatureRows(_open(options, options.rows), _clusters(options).prototypes)
    process, done = psutil.Process(), threading.Event()
    baseline = highest = process.memory_info().rss

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    solved = unbalanced_potential(rows)
    done.set()
    watcher.join()
    largest = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "baseline": baseline,
        "sampled": highest - baseline,
        "rusage": largest - baseline,
        "passes": solved.passes,
        "converged": solved.converged,
    }


def most_kept(options: argparse.Namespace) -> int:
    from uniot.transport import kernel

    return kernel._CACHED_ENTRIES // options.classes


def times(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Solves a quarter, a half and all of the rows in turn."""
    from measure import interleaved

    from uniot.transport.rows import FeatureRows
    from uniot.transport.unbalanced import unbalanced_potential

    prototypes = _clusters(options).prototypes
    sizes = [options.rows // 4, options.rows // 2, options.rows]
    rows = {str(size): FeatureRows(_open(options, size), prototypes) for size in sizes}
    runs = {name: lambda of=of: unbalanced_potential(of) for name, of in rows.items()}
    passes = {name: run().passes for name, run in runs.items()}
    taken = interleaved(runs, options.repeats)
    return [
        {
            "rows": size,
            "seconds": taken[str(size)],
            "passes": passes[str(size)],
            "kept": size <= most_kept(options),
        }
        for size in sizes
    ]


_CHILDREN = {"write": write, "peak": peak, "most_kept": most_kept, "times": times}

if __name__ == "__main__":
    main()
