"""How much of the target is private: estimates from scores beside UniNCM's own, results/private-share.csv.

    python benchmarks/private_share.py --out runs/private-share                   # six data sets, SCENARIOS
    python benchmarks/private_share.py --out runs/private-share --scenarios all   # 344 tasks
    python benchmarks/private_share.py --out runs/private-share --purpose choice  # the splits for choosing values

Tasks and splits are those of `uniot benchmark --study universality --quick`. All estimates but UniNCM's get the same
numbers: the first principal components of both domains together, and for BBE, DEDPUL and the tilts the probability of a
cross-fitted logistic regression that a sample is from the source, or its log odds. Intervals have a level of 0.9: the
bound of the best bin, and bootstrap samples of the scores for the others; UniNCM's is `private_share_interval_` before
any answer. After an interruption, the same command continues. With the splits for checking and no other options, the
rows become the committed table, of which `written_tables.py` makes that of docs/rejection.md.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from cells_and_sentences import write_cells, write_sentences
from office31_tasks import features_file
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from written_tables import private_share_table

from uniot import UniNCM, __version__
from uniot.benchmark.features import DIGITS, DataSet, write_digits
from uniot.benchmark.fit_and_score import load_data
from uniot.benchmark.jobs import Job
from uniot.benchmark.universality import PURPOSES, plan_universality
from uniot.errors import UniotWarning
from uniot.io.csv_tables import CsvWriter, dict_reader, table_text
from uniot.io.files import write_text
from uniot.rejection import best_bin_share, bootstrap_interval, dedpul_share, fit_double_tilt, pulse_share

TABLE = Path(__file__).parent / "results" / "private-share.csv"
N_COMPONENTS, FOLDS = 64, 5
COLUMNS = (
    *("dataset", "task", "scenario", "split", "method", "n_target", "true", "share", "low", "high", "seconds"),
    *("version", "commit", "processor"),
)
LEVEL, SAMPLES = 0.9, 30
# The four settings, few private samples and many, and nothing in common.
SCENARIOS = ("open-partial", "open", "partial", "closed", "private-prior=0.1", "private-prior=0.9", "private-prior=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/private-share"), help="folder of the rows")
    parser.add_argument("--purpose", choices=list(PURPOSES), default="check")
    parser.add_argument("--datasets", default="", help="comma-separated; default: all")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated, or all")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UniotWarning)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / f"{given.purpose}.csv"
    rows = read(file) if file.exists() else []
    scenarios = [] if given.scenarios == "all" else given.scenarios.split(",")
    done = {(row["dataset"], row["task"], row["scenario"]) for row in rows}
    with file.open("a", newline="", encoding="utf-8") as stream:
        writer = CsvWriter(stream)
        if not rows:
            writer.write([COLUMNS])
        for job in plan(given.out, given.purpose, scenarios):
            named = not given.datasets or job.dataset in given.datasets.split(",")
            if named and (job.dataset, job.task, job.setting) not in done:
                writer.write([row[column] for column in COLUMNS] for row in estimates(job))
                stream.flush()
    rows = [row for row in read(file) if not scenarios or row["scenario"] in scenarios]
    if given.purpose == "check" and not given.datasets and scenarios == [*SCENARIOS]:
        write_text(TABLE, table_text(COLUMNS, ([row[column] for column in COLUMNS] for row in rows)))
    print(private_share_table(rows))


def plan(out: Path, purpose: str, scenarios: Sequence[str]) -> list[Job]:
    """Return a job per task and scenario; all scenarios if none is named."""
    folder, made = features_file().parents[1], out / "embeddings"
    sets = [DataSet.read("office31", features_file())]
    sets += [DataSet.read(name, folder / name / "efficientnet_lite0_features.npz") for name in ("pacs", "plants")]
    sets.append(DataSet.read(DIGITS, write_digits(made)))
    for name, write_features in (("cells", write_cells), ("sentences", write_sentences)):
        if not (made / f"{name}.npz").exists():
            write_features(folder, made)
        sets.append(DataSet.read(name, made / f"{name}.npz"))
    return plan_universality(sets, methods=["unincm"], purpose=purpose, scenarios=scenarios, quick=True)


def estimates(job: Job) -> Iterator[dict[str, object]]:
    """Yield a row per method."""
    data = load_data(job)
    oracle_share = float(np.mean(~np.isin(data.oracle_target_labels, np.unique(data.source_labels))))
    about = {"dataset": job.dataset, "task": job.task, "scenario": job.setting, "split": job.seed}
    made = {"version": __version__, "commit": commit(), "processor": platform.processor() or platform.machine()}
    began = time.process_time()

    def row(method: str, share: float, interval: tuple[float, float]) -> dict[str, object]:
        nonlocal began
        numbers = {"true": oracle_share, "share": share, "low": interval[0], "high": interval[1]}
        seconds, began = time.process_time() - began, time.process_time()
        shown = {name: f"{value:.4f}" for name, value in numbers.items()} | {"seconds": f"{seconds:.2f}"}
        return {**about, "method": method, "n_target": len(data.target), **shown, **made}

    model = UniNCM(random_state=job.seed, n_private_classes=1).fit(data.source, data.source_labels, data.target)
    yield row("rule", float(np.mean(model.labels_ == "unknown")), model.private_share_interval_)
    yield row("half", 0.5, (0.0, 1.0))
    labels = np.unique(data.source_labels, return_inverse=True)[1]
    source, target = components(data.source, data.target)
    scores = source_probability(source, target)
    parts = scores[: len(source)], scores[len(source) :]
    found = best_bin_share(*parts, LEVEL)
    yield row("bbe", found.share, (found.low, found.high))
    yield row("dedpul", dedpul_share(*parts), interval_of(dedpul_share, parts, job.seed))
    found = pulse_share(source, labels, target, np.random.default_rng(job.seed), LEVEL)
    yield row("pulse", found.share, (found.low, found.high))
    odds = tuple(np.log(part.clip(1e-6)) - np.log((1 - part).clip(1e-6)) for part in parts)
    for method, moves in (("one-tilt", False), ("double-tilt", True)):

        def share(a: np.ndarray, b: np.ndarray, moves: bool = moves) -> float:
            return fit_double_tilt(a, b, common_moves=moves).share

        yield row(method, share(*odds), interval_of(share, odds, job.seed))


def components(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first principal components of unit embeddings of both domains, of mean squared length 1."""
    both = np.concatenate([source, target]).astype(np.float64)
    both /= np.linalg.norm(both, axis=1, keepdims=True).clip(1e-12)
    width = min(N_COMPONENTS, *both.shape)
    found = PCA(width, svd_solver="randomized", random_state=0).fit_transform(both)
    found *= np.sqrt(width / (found**2).sum(axis=1).mean())
    return found[: len(source)], found[len(source) :]


def source_probability(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return for the rows of both domains the probability of the source, by a classifier that did not see the row."""
    rows, is_source = np.concatenate([source, target]), np.repeat([1, 0], [len(source), len(target)])
    classifier = LogisticRegression(max_iter=300)
    return np.asarray(cross_val_predict(classifier, rows, is_source, cv=FOLDS, method="predict_proba")[:, 1])


def interval_of(estimate, parts: tuple[np.ndarray, ...], seed: int) -> tuple[float, float]:
    generator = np.random.default_rng(seed)
    return bootstrap_interval(estimate, *parts, generator, level=LEVEL, samples=SAMPLES)


def commit() -> str:
    shown = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(dict_reader(stream))


if __name__ == "__main__":
    main()
