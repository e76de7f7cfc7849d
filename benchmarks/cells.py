"""Compare uniot with the label transfer that cell people use, on pairs of .h5ad files.

    python benchmarks/cells.py --out /tmp/cells                  # 15 tasks with common and new types, and 9 others
    python benchmarks/cells.py --out cells/ --splits 3

Each task is written as a reference and a query to the folder, which must lie outside the repository, and is read from
there. Protocols: each of three is the query of the two others. pbmc68k: scanpy's packaged cells, halved at random.
Nothing is chosen by these results; labels of the query are used for scores and for simulated answers only.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import anndata
import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from uniot import evaluate
from uniot.benchmark.scenarios import Scenario, make_scenarios
from uniot.benchmark.universality import PURPOSES
from uniot.cells import LabelTransfer
from uniot.cells.reading import read_cells
from uniot.errors import UniotWarning
from uniot.io.csv_tables import write_table

RARE = ("MK", "HSC")
WITH_NEW_TYPES = ("open-partial", "open", "source-classes=2", "source-classes=3", "source-classes=5")
WITHOUT_NEW_TYPES = ("partial", "closed")
NOTHING_COMMON = ("private-prior=1",)
N_ANSWERS = 10
LABEL = "cell_type"


@dataclass(frozen=True)
class Task:
    """A reference and a query on disk."""

    data: str
    target: str
    scenario: str
    split: int
    reference: Path
    query: Path
    truth: np.ndarray
    classes: list[str]


def protocols(data: Path, out: Path, seeds: tuple[int, ...]) -> Iterator[Task]:
    with np.load(data / "cells/pbmc_three_protocols.npz", allow_pickle=False) as file:
        kept = ~np.isin(file["cell_type"], RARE)
        x, genes = file["x"].astype(np.float32)[kept], file["genes"].astype(str)
        protocol, types = file["protocol"][kept].astype(str), file["cell_type"][kept].astype(str)
    for seed in seeds:
        for name in np.unique(protocol).tolist():
            is_query = protocol == name
            yield from tasks("protocols", name, f"not-{name}", x, genes, types, is_query, seed, out)


def halves(out: Path, seeds: tuple[int, ...]) -> Iterator[Task]:
    import scanpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = scanpy.datasets.pbmc68k_reduced()
    # X is scaled; raw holds the log-normalised expression.
    x, genes = cells.raw.X.toarray(), cells.raw.var_names.to_numpy().astype(str)
    types = cells.obs["bulk_labels"].to_numpy().astype(str)
    for seed in seeds:
        is_query = np.random.default_rng(seed).random(len(types)) < 0.5
        yield from tasks("pbmc68k", "half", "other-half", x, genes, types, is_query, seed, out)


def tasks(
    data: str,
    target: str,
    source: str,
    x: np.ndarray,
    genes: np.ndarray,
    types: np.ndarray,
    is_query: np.ndarray,
    seed: int,
    out: Path,
) -> Iterator[Task]:
    names, counts = np.unique(types[is_query], return_counts=True)
    sizes = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
    wanted = {*WITH_NEW_TYPES, *WITHOUT_NEW_TYPES, *NOTHING_COMMON}
    for scenario in make_scenarios(source, target, set(types[~is_query].tolist()), sizes, seed):
        if scenario.name in wanted:
            reference = np.flatnonzero(~is_query & np.isin(types, scenario.split.source))
            query = drawn(scenario, types, is_query)
            stem = f"{data}-{target}-{scenario.name}-{seed}"
            for rows, part in ((reference, "reference"), (query, "query")):
                write(out / f"{stem}-{part}.h5ad", x[rows], genes, types[rows], rows)
            paths = (out / f"{stem}-{part}.h5ad" for part in ("reference", "query"))
            yield Task(data, target, scenario.name, seed, *paths, types[query], sorted(scenario.split.source))


def drawn(scenario: Scenario, types: np.ndarray, is_query: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(scenario.draw.seed)
    rows = [rng.permutation(np.flatnonzero(is_query & (types == name)))[:count] for name, count in scenario.draw.counts]
    return np.sort(np.concatenate(rows))


def write(path: Path, x: np.ndarray, genes: np.ndarray, types: np.ndarray, rows: np.ndarray) -> None:
    names = pd.Index([f"cell{row}" for row in rows], dtype=object)
    categories = pd.Categorical(types.astype(object), categories=pd.Index(sorted(set(types.tolist())), dtype=object))
    obs = pd.DataFrame({LABEL: categories}, index=names)
    var = pd.DataFrame(index=pd.Index(genes.astype(object), dtype=object))
    anndata.AnnData(sparse.csr_matrix(x), obs=obs, var=var).write_h5ad(path)


@dataclass(frozen=True)
class Outcome:
    """Labels of the query, "unknown" among them, and where a method gives them, groups and kept rows."""

    labels: np.ndarray
    groups: np.ndarray | None = None
    scored: np.ndarray | None = None


def uniot_outcome(task: Task, n_answers: int) -> Outcome:
    transfer = LabelTransfer.fit(task.reference, task.query, LABEL)
    model, answered = transfer.model, []
    for _ in range(n_answers):
        row = int(model.ask(1)[0])
        true = str(task.truth[row])
        model.tell([row], [true if true in task.classes else "unknown"])
        answered.append(row)
    scored = np.ones(len(task.truth), dtype=bool)
    scored[answered] = False
    return Outcome(model.labels_.astype(str), model.groups_, scored)


def nearest_neighbours(task: Task) -> Outcome:
    """Weighted neighbours of scArches, unknown above the uncertainty of 0.2 that the Human Lung Cell Atlas uses."""
    pair = read_cells(task.reference, task.query, label=LABEL)
    k = min(50, len(pair.reference))
    distances, neighbours = NearestNeighbors(n_neighbors=k).fit(pair.reference.rows).kneighbors(pair.query.rows)
    width = (2 / distances.std(axis=1, keepdims=True)) ** 2
    weights = np.exp(-distances / width)
    weights /= weights.sum(axis=1, keepdims=True)
    codes = np.searchsorted(task.classes, pair.reference.labels.astype(str))
    shares = np.stack([(weights * (codes[neighbours] == one)).sum(axis=1) for one in range(len(task.classes))], axis=1)
    labels = np.array(task.classes, dtype=object)[shares.argmax(axis=1)]
    labels[1 - shares.max(axis=1) > 0.2] = "unknown"
    return Outcome(labels.astype(str))


def logistic_regression(task: Task) -> Outcome:
    """CellTypist's model: one class against the rest on scaled expression; unknown if no probability exceeds 0.5."""
    parts = []
    for path in (task.reference, task.query):
        cells = anndata.read_h5ad(path)
        parts.append((cells.X.toarray(), cells.obs[LABEL].to_numpy().astype(str)))
    scaler = StandardScaler().fit(parts[0][0])
    rows = [np.clip(scaler.transform(x), None, 10) for x, _ in parts]
    found = OneVsRestClassifier(LogisticRegression(C=1.0, max_iter=200)).fit(rows[0], parts[0][1])
    # A sigmoid per type, as in CellTypist; with two types the rest of the one is the other.
    scores = found.decision_function(rows[1])
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], axis=1)
    probability = 1 / (1 + np.exp(-scores))
    labels = found.classes_.astype(object)[probability.argmax(axis=1)]
    labels[probability.max(axis=1) <= 0.5] = "unknown"
    return Outcome(labels.astype(str))


def scores(task: Task, outcome: Outcome) -> dict[str, float | None]:
    """Return H in per cent (accuracy if nothing is new, recall of unknown if nothing is common) and new types found."""
    kept = np.ones(len(task.truth), dtype=bool) if outcome.scored is None else outcome.scored
    found = evaluate(task.truth[kept], outcome.labels[kept], source_classes=task.classes)
    new = sorted(set(task.truth.tolist()) - set(task.classes))
    rejected = [float((outcome.labels[task.truth == name] == "unknown").mean()) >= 0.5 for name in new]
    grouped: list[bool] = []
    for name in new if outcome.groups is not None else ():
        of_type = task.truth == name
        # A group whose majority is this type, with at least half of its cells.
        grouped.append(
            any(
                of_type[outcome.groups == group].mean() > 0.5 and (outcome.groups[of_type] == group).mean() >= 0.5
                for group in np.unique(outcome.groups[outcome.groups >= 0]).tolist()
            )
        )
    return {
        "score": 100 * found.h_score,
        "rejected": 100 * fmean(rejected) if rejected else None,
        "grouped": 100 * fmean(grouped) if grouped else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder outside the repository for the .h5ad files")
    parser.add_argument("--splits", type=int, default=1, help="number of class splits of each pair")
    parser.add_argument("--purpose", choices=sorted(PURPOSES), default="check", help="which seeds")
    given = parser.parse_args()
    if Path(__file__).resolve().parents[1] in given.out.resolve().parents:
        parser.error("--out is inside the repository; data is not committed")
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", UniotWarning)
    seeds = PURPOSES[given.purpose][: given.splits]
    methods: dict[str, Callable[[Task], Outcome]] = {
        "uniot": lambda task: uniot_outcome(task, 0),
        f"uniot, {N_ANSWERS} answers": lambda task: uniot_outcome(task, N_ANSWERS),
        "neighbours, uncertainty 0.2": nearest_neighbours,
        "logistic regression, 0.5": logistic_regression,
    }
    data = Path(os.environ.get("UNIOT_DATA", "../shared/data"))
    rows = []
    for task in [*protocols(data, given.out, seeds), *halves(given.out, seeds)]:
        for method, run in methods.items():
            began = time.perf_counter()
            outcome = run(task)
            seconds = time.perf_counter() - began
            rows.append(
                {"data": task.data, "target": task.target, "scenario": task.scenario, "split": task.split}
                | {"method": method, "seconds": seconds}
                | scores(task, outcome)
            )
        print(
            task.data, task.target, task.scenario, task.split, *(f"{row['score']:.1f}" for row in rows[-len(methods) :])
        )
    write_table(given.out / "scores.csv", list(rows[0]), [list(row.values()) for row in rows])
    show(rows, list(methods))


def show(rows: list[dict], methods: list[str]) -> None:
    families = {"common and new": WITH_NEW_TYPES, "nothing new": WITHOUT_NEW_TYPES, "nothing common": NOTHING_COMMON}
    print("\n| data | types | tasks | method | score | new types rejected | new types grouped | seconds |")
    print("|:--|:--|--:|:--|--:|--:|--:|--:|")
    for data in dict.fromkeys(row["data"] for row in rows):
        for family, scenarios in families.items():
            for method in methods:
                of = [r for r in rows if (r["data"], r["method"]) == (data, method) and r["scenario"] in scenarios]
                if of:
                    cells = [mean_of(of, key) for key in ("score", "rejected", "grouped", "seconds")]
                    print(f"| {data} | {family} | {len(of)} | {method} | {' | '.join(cells)} |")


def mean_of(rows: list[dict], key: str) -> str:
    values = [row[key] for row in rows if row[key] is not None]
    return f"{fmean(values):.1f}" if values else "–"


if __name__ == "__main__":
    main()
