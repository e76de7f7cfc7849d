"""The unbalanced solver: passes to a given accuracy, time over its unavoidable parts, time against POT and OTT-JAX,
and decisions against POT.
"""

from __future__ import annotations

from collections.abc import Iterator

from decisions import compare_decisions
from measure import Report, arguments
from office31_tasks import load_tasks, missing_data
from passes import measure_passes
from problems import Problem, clustered
from speed import Size, measure_parts, measure_speed

# Up to this many entries POT is also run to the end as a check of the reference.
SMALL = 100_000
# Two threads must help from this many entries on.
TWO_THREADS_FROM = 10_000 * 200
PARTS = ("passes", "parts", "speed", "decisions")
FULL = (
    Size(2036, 20, bounds=(12, 15), parts=4, repeats=21, peer_repeats=21),
    Size(4000, 20, bounds=(12, 15), parts=4, repeats=21, peer_repeats=21),
    Size(10_000, 200, bounds=(10, 13), parts=2.5, repeats=7, peer_repeats=7),
    Size(172_000, 200, bounds=(20, 30), parts=None, repeats=7, peer_repeats=3),
)
QUICK = (
    Size(500, 20, bounds=(12, 15), parts=None, repeats=3, peer_repeats=2),
    Size(5000, 40, bounds=(10, 13), parts=None, repeats=3, peer_repeats=2),
)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    parser.add_argument("--without-largest", action="store_true", help="leave out 172000x200, which takes longest")
    parser.add_argument("--seeds", type=int, default=6, help="problems of each size for passes and decisions")
    options = parser.parse_args()
    parts = options.only or PARTS
    report = Report("transport", options.quick)
    sizes, seeds = (QUICK, 2) if options.quick else (FULL, options.seeds)
    synthetic = sizes if options.quick else sizes[:-1]
    if "passes" in parts:
        for size in synthetic:
            measure_passes(report, str(size), _problems(size, seeds), check=size.n * size.c <= SMALL)
        for name, problem in _office31().items():
            measure_passes(report, f"Office-31 {name}", [problem], check=True)
    if "parts" in parts:
        measure_parts(report, sizes[:-1] if options.without_largest else sizes, TWO_THREADS_FROM)
    if "speed" in parts:
        measure_speed(report, sizes[:-1] if options.without_largest else sizes)
    if "decisions" in parts:
        compare_decisions(report, {str(size): _problems(size, seeds) for size in synthetic})
        compare_decisions(report, {f"Office-31 {name}": [problem] for name, problem in _office31().items()})
    report.finish(options.json)


def _problems(size: Size, seeds: int) -> Iterator[Problem]:
    """Uniform and uneven class masses in turn."""
    return (clustered(size.n, size.c, seed, uneven=seed % 2 == 1) for seed in range(seeds))


def _office31() -> dict[str, Problem]:
    missing = missing_data()
    if missing:
        print(missing)
        return {}
    return {task.name: task.transport_problem() for task in load_tasks()}


if __name__ == "__main__":
    main()
