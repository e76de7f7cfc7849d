"""What each constant of UniNCM's rejection rule is worth: the regret without it, on choice splits of several data sets.

    python benchmarks/cells_and_sentences.py --out features/
    python benchmarks/rejection_constants.py --features office31=features.npz --features cells=features/cells.npz

Every task of the universality study is fitted once; then the rule alone is fitted again with one constant at a neutral
value. Regret is the score of the best threshold on the rule's own probability less the score of the rule, in points,
as a mean over data sets of equal weight. The digits come with the install. `--quick` takes two pairs of domains and one
split of each data set; `--purpose check` takes the splits on which nothing was chosen.
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from measure import arguments
from torch import Tensor

from uniot.benchmark.features import DIGITS, DataSet, write_digits
from uniot.benchmark.fit_and_score import fit, load_data
from uniot.benchmark.scenarios import family_of
from uniot.benchmark.universality import PURPOSES, plan_universality
from uniot.methods.unincm import rejection
from uniot.metrics.accuracy import h_score
from uniot.metrics.ranking import best_threshold_h_score

# What is changed, and what takes its place.
VARIANTS: dict[str, dict[str, object]] = {
    "as it is": {},
    "level: the largest cosine instead of a quantile": {"_LEVEL_QUANTILE": 1.0},
    "a deviation of 0.3": {"_DEVIATION": 0.3},
    "common samples at one": {"_BELOW_ONE": 0.0},
    "no less room to vary near one": {"_ROOM_TO_VARY": 1e9},
    "no least room to vary": {"_LEAST_DEVIATION": 1e-3},
    "few classes as many": {"_SPREAD_OF_FEW": 0.0},
    "a class is present at a separation of 0": {"_PRESENT_SEPARATION": 1e-9},
    "membership and presence alone": {"_SIMILARITY_WEIGHT": 0.0},
    "similarity alone": {"_SIMILARITY_WEIGHT": 1.0},
    "private similarity 0.4 instead of that by chance": {"chance_similarity": None},
    "priors one half": {"estimates_prior": False},
}
FIXED_PRIVATE_MEAN = 0.4


@dataclass(frozen=True)
class FittedTask:
    """A fitted task: what the rejection rule sees, and the truth by which it is scored.

    Attributes:
        dataset: name of the data set.
        family: family of the scenario.
        rows: the target in the space of the method, (n, p), unit rows.
        prototypes: class means, (c, p), unit rows.
        n_neighbours: size of a neighbourhood.
        oracle_classes: true class index of each target sample, or -1, (n,).
    """

    dataset: str
    family: str
    rows: Tensor
    prototypes: Tensor
    n_neighbours: int
    oracle_classes: np.ndarray


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--features", action="append", default=[], metavar="NAME=FILE", help="a data set")
    parser.add_argument("--purpose", default="choice", choices=sorted(PURPOSES), help="which splits")
    tasks = list(fitted(parser.parse_args()))
    datasets = sorted({task.dataset for task in tasks})
    print(f"{len(tasks)} tasks: regret in points, mean over data sets | worst data set | four settings | per data set")
    for name, changes in VARIANTS.items():
        regrets = [100 * regret(task, changes) for task in tasks]
        of_sets = [mean(regrets, [task.dataset == one for task in tasks]) for one in datasets]
        usual = [
            mean(regrets, [task.dataset == one and task.family == "settings" for task in tasks]) for one in datasets
        ]
        each = ", ".join(f"{one} {value:.1f}" for one, value in zip(datasets, of_sets, strict=True))
        numbers = f"{statistics.fmean(of_sets):5.1f} | {max(of_sets):5.1f} | {statistics.fmean(usual):5.1f}"
        print(f"{name:50s} {numbers} | {each}")


def mean(values: list[float], chosen: list[bool]) -> float:
    return statistics.fmean(value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen)


def fitted(options: Namespace) -> Iterator[FittedTask]:
    """Fit the default method to every task."""
    with tempfile.TemporaryDirectory() as folder:
        files = dict(text.split("=", 1) for text in options.features)
        sets = [DataSet.read(name, Path(file)) for name, file in files.items()]
        sets.append(DataSet.read(DIGITS, write_digits(Path(folder))))
        for job in plan_universality(sets, purpose=options.purpose, quick=options.quick):
            data = load_data(job)
            model = fit(job, data.source, data.source_labels, data.target)
            index = {label: place for place, label in enumerate(model.classes.tolist())}
            method = model.method
            inputs = torch.from_numpy(data.target.astype(np.float32))
            yield FittedTask(
                job.dataset,
                family_of(job.setting),
                method.transform_rows(method.features(inputs)),
                method.fitted.get().rejection.prototypes,
                method.n_neighbours(len(inputs)),
                np.array([index.get(label, -1) for label in data.oracle_target_labels.tolist()]),
            )


def regret(task: FittedTask, changes: dict[str, object]) -> float:
    """Return the score of the best threshold less that of the rule, with some constants changed."""
    values = dict(changes)
    estimates_prior = bool(values.pop("estimates_prior", True))
    if "chance_similarity" in values:
        cosines = (task.rows @ task.prototypes.t()).double().max(dim=1).values
        level = rejection.quantile(cosines, rejection._LEVEL_QUANTILE)
        values["chance_similarity"] = lambda *_: FIXED_PRIVATE_MEAN * level
    with ExitStack() as patches:
        if values:
            patches.enter_context(mock.patch.multiple(rejection, **values))
        rule = rejection.fit_rejection(
            task.rows, task.prototypes, n_neighbours=task.n_neighbours, estimates_prior=estimates_prior
        )
        known, cosines = rule.known_probability(task.rows)
    nearest, classes = cosines.argmax(dim=1).numpy(), np.arange(len(task.prototypes))
    labels = np.where(known.numpy() >= 0.5, nearest, -1)
    score = h_score(task.oracle_classes, labels, source_classes=classes)
    best = best_threshold_h_score(task.oracle_classes, nearest, known.numpy(), source_classes=classes)
    return max(best - score, 0.0)


if __name__ == "__main__":
    main()
