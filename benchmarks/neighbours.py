"""What neighbourhoods cost as the target grows: time a row, and the peak of memory above the rows themselves.

    python benchmarks/neighbours.py

Clusters on a sphere, 256 directions, 20 neighbours, each size in a process of its own. Up to 50 000 rows all pairs are
compared, beyond that lists are searched.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from time import perf_counter

import torch
import torch.nn.functional as F
from measure import Report, arguments

from uniot.methods.unincm.neighbours import Neighbours

SIZES = (12_500, 50_000, 100_000, 250_000, 500_000, 1_000_000)
WIDTH, K, CLUSTERS = 256, 20, 1000


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, help="measure this size alone, in this process")
    options = parser.parse_args()
    if options.size:
        print(json.dumps(measured(options.size)))
        return
    report = Report("neighbours", options.quick)
    first = 0.0
    for size in (2000, 60_000) if options.quick else SIZES:
        done = subprocess.run(
            [sys.executable, __file__, "--size", str(size)], check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout)
        report.tell(f"{size} rows: time", found["seconds"], "s")
        report.tell(f"{size} rows: time a row", 1e6 * found["seconds"] / size, "µs")
        report.tell(f"{size} rows: peak above the rows", found["bytes"] / 1e9, "GB")
        report.tell(f"{size} rows: true neighbours among those found", 100 * found["recall"], "%")
        if size == 100_000:
            first = found["seconds"] / size
    if not options.quick:
        report.tell("time a row, a million against a hundred thousand", found["seconds"] / size / first, "x")
    report.finish(options.json)


def measured(size: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLUSTERS, WIDTH, generator=generator)
    rows = torch.empty(size, WIDTH)
    for block in torch.arange(size).split(50_000):
        noise = torch.randn(len(block), WIDTH, generator=generator)
        rows[block] = F.normalize(centres[block % CLUSTERS] + noise, dim=1)
    before = _peak()
    begin = perf_counter()
    neighbours = Neighbours(rows, K)
    found = neighbours.of_stored
    assert len(neighbours.smoothed) == size
    seconds, peak = perf_counter() - begin, _peak() - before
    some = torch.arange(0, size, max(1, size // 500))
    true = (rows[some] @ rows.t()).topk(K + 1, dim=1).indices
    recall = (found[some][:, :, None] == true[:, None, :]).any(dim=1).float().mean()
    return {"seconds": seconds, "bytes": float(peak), "recall": float(recall)}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
