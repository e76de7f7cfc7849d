"""Fit the weights by which `model.reliability_` estimates the accuracy, on the choice splits of the universality study.

    python benchmarks/reliability.py --features office31=features.npz --features pacs=pacs.npz

Each task of the study is fitted, and a logistic regression predicts the share of right answers from the statistics of
the target, once for samples called known and once for those called unknown, with the same weight for every data set.
Prints the weights, and the mean absolute error of the estimated accuracy, on these tasks and on a data set that was
left out. The digits come with the install. `--quick` takes two pairs of domains and one split of each data set.
"""

from __future__ import annotations

import math
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measure import arguments

from uniot.benchmark.features import DIGITS, DataSet, write_digits
from uniot.benchmark.universality import plan_universality
from uniot.benchmark.worker import fit, load_data
from uniot.methods.unincm.reliability import DOUBTED, estimated_accuracies, regressors

_RIDGE = 3.0
_STEPS = 20


@dataclass(frozen=True)
class Task:
    """What is known of a task after its fit.

    Attributes:
        dataset: name of the data set.
        values: what the regression sees, (k,).
        known_share: share of the samples called known.
        known_accuracy: share of right answers among them; NaN if there are none.
        unknown_accuracy: the same among samples called unknown.
        estimates: of both accuracies by `model.reliability_`, (2,).
    """

    dataset: str
    values: np.ndarray
    known_share: float
    known_accuracy: float
    unknown_accuracy: float
    estimates: np.ndarray

    @property
    def accuracy(self) -> float:
        shares = self.known_share, 1 - self.known_share
        accuracies = self.known_accuracy, self.unknown_accuracy
        return sum(share * accuracy for share, accuracy in zip(shares, accuracies, strict=True) if share > 0)

    @property
    def estimated_accuracy(self) -> float:
        known, unknown = self.estimates
        return self.known_share * known + (1 - self.known_share) * unknown


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--features", action="append", default=[], metavar="NAME=FILE", help="a data set")
    tasks = list(fitted(parser.parse_args()))
    datasets = sorted({task.dataset for task in tasks})
    known, unknown = weights(tasks, known=True), weights(tasks, known=False)
    print("known  ", np.round(known, 2).tolist())
    print("unknown", np.round(unknown, 2).tolist())
    print(f"{len(tasks)} tasks: off by {100 * errors(tasks, known, unknown).mean():.1f} points on average")
    show_warnings(tasks)
    left_out = {}
    for name in datasets:
        others = [task for task in tasks if task.dataset != name]
        if others:
            own = [task for task in tasks if task.dataset == name]
            left_out[name] = errors(own, weights(others, known=True), weights(others, known=False))
            print(f"{name}, fitted without it: {100 * left_out[name].mean():.1f}")
    if left_out:
        print(f"mean of these: {100 * np.mean([error.mean() for error in left_out.values()]):.1f}")


def show_warnings(tasks: list[Task]) -> None:
    """Print how often samples called known are doubted although the answers as a whole are not."""
    some = [task for task in tasks if task.known_share > 0]
    for limit in (0.3, 0.4, 0.5, 0.6):
        doubted = [task for task in some if task.estimates[0] < limit and task.estimated_accuracy >= DOUBTED]
        right = [task.known_accuracy for task in doubted]
        wrongly = sum(accuracy > 0.7 for accuracy in right)
        print(
            f"known below {100 * limit:.0f} %, all not doubted: {len(doubted)} of {len(some)} tasks, "
            f"in truth {100 * np.mean(right) if right else math.nan:.0f} % right, {wrongly} of them above 70 %"
        )


def fitted(options: Namespace) -> Iterator[Task]:
    """Fit the default method to every task."""
    with tempfile.TemporaryDirectory() as folder:
        files = dict(text.split("=", 1) for text in options.features)
        sets = [DataSet.read(name, Path(file)) for name, file in files.items()]
        sets.append(DataSet.read(DIGITS, write_digits(Path(folder))))
        jobs = plan_universality(sets, purpose="choice", quick=options.quick)
        for place, job in enumerate(jobs, start=1):
            print(f"\r{place}/{len(jobs)}", end="", flush=True)
            data = load_data(job)
            model = fit(job, data.source, data.source_labels, data.target)
            method, is_known = model.method, model.target.known
            if method.statistics is None:
                raise TypeError(f"{job.method} has no statistics of the target")
            truth = np.where(np.isin(data.oracle_target_labels, model.classes), data.oracle_target_labels, "unknown")
            is_right = model.labels(model.target) == truth
            yield Task(
                job.dataset,
                np.array(regressors(method.statistics, len(is_known))),
                float(is_known.mean()),
                float(is_right[is_known].mean()) if is_known.any() else math.nan,
                float(is_right[~is_known].mean()) if not is_known.all() else math.nan,
                np.array(estimated_accuracies(method.statistics, len(is_known))),
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
    raw = np.stack([task.values for task in tasks])[:, :-1]
    mean, spread = raw.mean(axis=0), raw.std(axis=0) + 1e-9
    values = np.c_[(raw - mean) / spread, np.ones(len(raw))]
    penalty = np.diag([_RIDGE] * raw.shape[1] + [0.0])
    found = np.zeros(values.shape[1])
    for _ in range(_STEPS):
        guess = 1 / (1 + np.exp(-values @ found))
        slope = values.T @ (size * (guess - np.nan_to_num(truth))) + penalty @ found
        curvature = (values * (size * np.maximum(guess * (1 - guess), 0.02))[:, None]).T @ values + penalty
        found -= np.linalg.solve(curvature, slope)
    scaled = found[:-1] / spread
    return np.r_[scaled, found[-1] - scaled @ mean]


def errors(tasks: list[Task], known: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Return how far the estimated accuracy of each task is off."""
    off = []
    for task in tasks:
        by_known, by_unknown = (1 / (1 + math.exp(-task.values @ weights)) for weights in (known, unknown))
        off.append(abs(task.known_share * by_known + (1 - task.known_share) * by_unknown - task.accuracy))
    return np.array(off)


if __name__ == "__main__":
    main()
