"""Fit the weights by which `model.reliability_` estimates the accuracy, and count the warnings that are right.

    python benchmarks/cells_and_sentences.py --out features/
    python benchmarks/reliability.py --features office31=features.npz --features cells=features/cells.npz

Each task of the universality study is fitted; `--purpose check` takes the splits on which nothing was chosen. Prints a
table of what the present weights do, per data set:

    right, warned of    share of the tasks with more than 70 % right answers that come with a warning
    wrong, warned of    the same of the tasks with less than half of the answers right
    off by              mean absolute error of the estimated accuracy, in points

Then follow both shares for other limits of the estimate, and for warnings by the estimate alone. On choice splits, a
logistic regression predicts the share of right answers from the statistics of the target, once for samples called known
and once for those called unknown, with the same weight for every data set; its weights are printed, and its error on
these tasks and on a data set that was left out. The digits come with the install. `--quick` takes two pairs of domains
and one split of each data set. `--json FILE` writes what was measured, and `--again FILE` prints the tables of such a
file without fitting anything: the statistics do not depend on weights and limits.
"""

from __future__ import annotations

import json
import math
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from measure import arguments

from uniot.benchmark.features import DIGITS, DataSet, write_digits
from uniot.benchmark.fit_and_score import fit, load_data
from uniot.benchmark.universality import PURPOSES, plan_universality
from uniot.reliability import DOUBTED, TargetStatistics, estimated_accuracies, regressors

_RIDGE = 3.0
_STEPS = 20
RIGHT, WRONG = 0.7, 0.5
LIMITS = (0.5, 0.55, 0.6, 0.61, 0.62, 0.63, 0.64, 0.65, 0.7, 0.75, 0.8)
# Stability is that of the nearest class, which says nothing about samples called unknown.
OF_UNKNOWN = (True, True, False)


@dataclass(frozen=True)
class Task:
    """What is known of a task after its fit.

    Attributes:
        dataset: name of the data set.
        setting: name of the scenario.
        values: statistics of the target that the regression sees, without the one of the intercept.
        known_share: share of the samples called known.
        known_accuracy: share of right answers among them; NaN if there are none.
        unknown_accuracy: the same among samples called unknown.
        other_warnings: warnings that do not follow from the estimate.
    """

    dataset: str
    setting: str
    values: tuple[float, ...]
    known_share: float
    known_accuracy: float
    unknown_accuracy: float
    other_warnings: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        shares = self.known_share, 1 - self.known_share
        accuracies = self.known_accuracy, self.unknown_accuracy
        return sum(share * accuracy for share, accuracy in zip(shares, accuracies, strict=True) if share > 0)

    @property
    def estimated_accuracy(self) -> float:
        """Return the estimate of `model.reliability_`."""
        known, unknown = estimated_accuracies(TargetStatistics(*self.values))
        return self.known_share * known + (1 - self.known_share) * unknown

    def is_warned_of(self, limit: float) -> bool:
        """Whether there is a warning if estimates below a limit are warned of."""
        return bool(self.other_warnings) or self.estimated_accuracy < limit


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--features", action="append", default=[], metavar="NAME=FILE", help="a data set")
    parser.add_argument("--purpose", default="choice", choices=sorted(PURPOSES), help="which splits")
    parser.add_argument("--again", type=Path, metavar="FILE", help="what --json wrote")
    given = parser.parse_args()
    if given.again is None:
        tasks = list(fitted(given))
    else:
        tasks = [Task(**one) for one in json.loads(given.again.read_text(encoding="utf-8"))]
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(task) for task in tasks], indent=1) + "\n", encoding="utf-8")
    datasets = list(dict.fromkeys(task.dataset for task in tasks))
    show_table(tasks, datasets)
    show_limits(tasks)
    if given.purpose == "choice":
        show_fit(tasks, datasets)


def show_table(tasks: list[Task], datasets: list[str]) -> None:
    """Print what the present weights and warnings do, per data set."""
    print("| data set | tasks | right, warned of | wrong, warned of | off by |\n|:--|--:|--:|--:|--:|")
    for name in (*datasets, "all"):
        own = [task for task in tasks if name in (task.dataset, "all")]
        error = 100 * np.mean([abs(task.estimated_accuracy - task.accuracy) for task in own])
        warned = [task.is_warned_of(DOUBTED) for task in own]
        cells = *(f"{part} of {whole}{per_cent(part, whole)}" for part, whole in shares(own, warned)), f"{error:.1f}"
        print(f"| {name} | {len(own)} | {' | '.join(cells)} |")
    print(flush=True)


def show_limits(tasks: list[Task]) -> None:
    """Print both shares for other limits of the estimate."""
    print("| estimate below | right, warned of | wrong, warned of | by the estimate alone: right | wrong |")
    print("|:--|--:|--:|--:|--:|")
    for limit in LIMITS:
        low = [task.estimated_accuracy < limit for task in tasks]
        found = (*shares(tasks, [task.is_warned_of(limit) for task in tasks]), *shares(tasks, low))
        print(f"| {limit:.2f} | {' | '.join(f'{100 * part / max(1, whole):.0f} %' for part, whole in found)} |")
    print(flush=True)


def shares(tasks: list[Task], warned: Sequence[bool]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return how many of the right and of the wrong tasks are warned of, and how many there are."""
    pairs = list(zip(tasks, warned, strict=True))
    right = [is_warned for task, is_warned in pairs if task.accuracy > RIGHT]
    wrong = [is_warned for task, is_warned in pairs if task.accuracy < WRONG]
    return (sum(right), len(right)), (sum(wrong), len(wrong))


def per_cent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.0f} %)" if whole else ""


def show_fit(tasks: list[Task], datasets: list[str]) -> None:
    """Print the fitted weights, and their error on these tasks and on a data set that was left out."""
    known, unknown = weights(tasks, known=True), weights(tasks, known=False)
    print("known  ", np.round(known, 2).tolist())
    print("unknown", np.round(unknown, 2).tolist())
    print(f"{len(tasks)} tasks: off by {100 * errors(tasks, known, unknown).mean():.1f} points on average")
    left_out = {}
    for name in datasets:
        others = [task for task in tasks if task.dataset != name]
        if others:
            own = [task for task in tasks if task.dataset == name]
            left_out[name] = errors(own, weights(others, known=True), weights(others, known=False))
            print(f"{name}, fitted without it: {100 * left_out[name].mean():.1f}")
    if left_out:
        print(f"mean of these: {100 * np.mean([error.mean() for error in left_out.values()]):.1f}")


def fitted(options: Namespace) -> Iterator[Task]:
    """Fit the default method to every task."""
    with tempfile.TemporaryDirectory() as folder:
        files = dict(text.split("=", 1) for text in options.features)
        sets = [DataSet.read(name, Path(file)) for name, file in files.items()]
        sets.append(DataSet.read(DIGITS, write_digits(Path(folder))))
        jobs = plan_universality(sets, purpose=options.purpose, quick=options.quick)
        for place, job in enumerate(jobs, start=1):
            print(f"\r{place}/{len(jobs)}", end="", flush=True)
            data = load_data(job)
            model = fit(job, data.source, data.source_labels, data.target)
            method, is_known = model.method, model.target.known
            if method.statistics is None or model.reliability is None:
                raise TypeError(f"{job.method} has no statistics of the target")
            truth = np.where(np.isin(data.oracle_target_labels, model.classes), data.oracle_target_labels, "unknown")
            is_right = model.labels(model.target) == truth
            yield Task(
                job.dataset,
                job.setting,
                regressors(method.statistics)[:-1],
                float(is_known.mean()),
                float(is_right[is_known].mean()) if is_known.any() else math.nan,
                float(is_right[~is_known].mean()) if not is_known.all() else math.nan,
                tuple(words for words in model.reliability.warnings if "an estimated" not in words),
            )
    print("\r", end="")


def weights(tasks: list[Task], *, known: bool) -> np.ndarray:
    """Fit a ridge logistic regression by Newton's method; the last weight is the intercept, which is not shrunk."""
    truth = np.array([task.known_accuracy if known else task.unknown_accuracy for task in tasks])
    share = np.array([task.known_share if known else 1 - task.known_share for task in tasks])
    size = np.where(np.isnan(truth), 0, share)
    for name in {task.dataset for task in tasks}:
        own = np.array([task.dataset == name for task in tasks])
        size[own] /= max(size[own].sum(), 1e-9)
    size *= len(tasks) / size.sum()
    every = np.array([task.values for task in tasks])
    used = np.ones(every.shape[1], dtype=bool) if known else np.array(OF_UNKNOWN)
    raw = every[:, used]
    mean, spread = raw.mean(axis=0), raw.std(axis=0) + 1e-9
    values = np.c_[(raw - mean) / spread, np.ones(len(raw))]
    penalty = np.diag([_RIDGE] * raw.shape[1] + [0.0])
    found = np.zeros(values.shape[1])
    for _ in range(_STEPS):
        guess = 1 / (1 + np.exp(-values @ found))
        slope = values.T @ (size * (guess - np.nan_to_num(truth))) + penalty @ found
        curvature = (values * (size * np.maximum(guess * (1 - guess), 0.02))[:, None]).T @ values + penalty
        found -= np.linalg.solve(curvature, slope)
    scaled = np.zeros(every.shape[1])
    scaled[used] = found[:-1] / spread
    return np.r_[scaled, found[-1] - scaled[used] @ mean]


def errors(tasks: list[Task], known: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Return how far the estimated accuracy of each task is off."""
    off = []
    for task in tasks:
        by_known, by_unknown = (1 / (1 + math.exp(-np.r_[task.values, 1] @ weights)) for weights in (known, unknown))
        off.append(abs(task.known_share * by_known + (1 - task.known_share) * by_unknown - task.accuracy))
    return np.array(off)


if __name__ == "__main__":
    main()
