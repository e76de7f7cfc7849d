"""Every method on Office-31 in four settings, and on five more data sets: results/every-method.csv.

    python benchmarks/every_method.py --out runs/every-method            # 2871 jobs, many hours on two cores
    python benchmarks/every_method.py --out runs/every-method --seeds 1  # a third of it
    python benchmarks/every_method.py --out runs/every-method --methods unincm,uniot --datasets office31,digits

Office-31 (ResNet-50) has its published splits, six tasks and seeds 0, 1, 2. PACS, plants, digits and cells have two
tasks each and sentences one, open-partial, with three splits drawn for checking, as `uniot benchmark --study
universality --purpose check` draws them. A job that is in the table is not run again unless `--again` is given, for
instance after a change of its method; the column `version` says which code a row is of. After an interruption the same
command continues. The table is written at the end, with what it had of other methods. Features are looked for under
UNIOT_DATA.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cells_and_sentences import write_cells, write_sentences
from office31_tasks import features_file
from rich.console import Console

from uniot.benchmark.features import DIGITS, DataSet, write_digits
from uniot.benchmark.jobs import Job, plan_jobs
from uniot.benchmark.local_workers import LocalWorkers
from uniot.benchmark.results import Result, read_results, write_results
from uniot.benchmark.runner import run_benchmark
from uniot.benchmark.tasks import TaskSet
from uniot.benchmark.universality import plan_universality
from uniot.cli.benchmark_screen import watching
from uniot.methods.registry import METHODS

TABLE = Path(__file__).parent / "results" / "every-method.csv"
SETTINGS = ("open-partial", "open", "partial", "closed")
OFFICE31 = "office31"
DATASETS = (OFFICE31, "pacs", "plants", DIGITS, "cells", "sentences")
BACKBONES = {
    OFFICE31: "Keras ResNet-50, frozen",
    "pacs": "EfficientNet-Lite0, frozen",
    "plants": "EfficientNet-Lite0, frozen",
}
TASKS = (
    "photo2art_painting",
    "sketch2cartoon",
    "laboratory2field",
    "field2laboratory",
    "sklearn2mnist",
    "mnist2sklearn",
    "not-3pv123pv1",
    "not-5p25p",
    "train2test",
)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the single jobs")
    parser.add_argument("--methods", help="comma-separated; default: all but variants")
    parser.add_argument("--datasets", help=f"comma-separated; default: {','.join(DATASETS)}")
    parser.add_argument("--settings", help="comma-separated; default: all")
    parser.add_argument("--again", action="store_true", help="replace rows that are in the table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="number of jobs at the same time")
    given = parser.parse_args()
    methods = (
        given.methods.split(",") if given.methods else [name for name, info in METHODS.items() if not info.variant_of]
    )
    table = read_results(TABLE) if TABLE.exists() else []
    kept = set() if given.again else {_key(result) for result in table if not result.failure}
    datasets = given.datasets.split(",") if given.datasets else DATASETS
    settings = given.settings.split(",") if given.settings else SETTINGS
    planned = [
        job for job in plan(methods, given.seeds, given.out) if job.dataset in datasets and job.setting in settings
    ]
    missing = [job for job in planned if _key(job) not in kept]
    print(f"{len(planned)} jobs, {len(missing)} of them not yet in {TABLE.name}")
    workers = LocalWorkers(given.jobs)
    with watching(missing, workers.count, Console(stderr=True, highlight=False)) as watcher:
        try:
            run_benchmark(missing, given.out, workers, watcher)
        finally:
            results = read_results(given.out / "results.csv")
            write({_key(result): result for result in table} | {_key(result): result for result in results})
    failed = [result for result in results if result.failure]
    print(f"{TABLE} is written; {len(failed)} jobs failed")
    sys.exit(1 if failed else 0)


def plan(methods: Sequence[str], n_seeds: int, out: Path) -> list[Job]:
    """Return the jobs of all data sets, one seed after the other."""
    office31, office31_file = TaskSet.of_published(OFFICE31), features_file()
    folder = office31_file.parents[1]
    jobs = plan_jobs(
        office31,
        office31_file,
        office31.splits(SETTINGS),
        methods=methods,
        n_seeds=n_seeds,
        backbone=BACKBONES[OFFICE31],
    )
    sets = [DataSet.read(name, folder / name / "efficientnet_lite0_features.npz") for name in ("pacs", "plants")]
    made = out / "embeddings"
    sets.append(DataSet.read(DIGITS, write_digits(made)))
    for name, write_features in (("cells", write_cells), ("sentences", write_sentences)):
        if not (made / f"{name}.npz").exists():
            write_features(folder, made)
        sets.append(DataSet.read(name, made / f"{name}.npz"))
    drawn = plan_universality(
        sets, methods=methods, purpose="check", n_splits=n_seeds, task_names=TASKS, scenarios=["open-partial"]
    )
    of_seed: dict[int, list[Job]] = {}
    for job in (*jobs, *drawn):
        dataset = job.dataset or OFFICE31
        named = replace(job, dataset=dataset, backbone=BACKBONES.get(dataset, job.backbone))
        of_seed.setdefault(job.seed, []).append(named)
    by_seed = list(of_seed.values())
    # Seeds 0, 1, 2 of Office-31 come before those of the drawn splits.
    half = len(by_seed) // 2
    return [job for pair in zip(by_seed[half:], by_seed[:half], strict=True) for part in pair for job in part]


def write(results: dict[tuple[str, ...], Result]) -> None:
    """Write the table, sorted by data set, setting, task, seed and method."""
    write_results(TABLE, [results[key] for key in sorted(results)])


def _key(one: Job | Result) -> tuple[str, ...]:
    return one.dataset, one.setting, one.task, f"{one.seed:04}", one.method


if __name__ == "__main__":
    main()
