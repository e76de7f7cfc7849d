"""The study `universality`: whether a method holds up whatever the classes and the target are, on several data sets.

Defaults are chosen on one list of seeds and checked on another, on which nothing is ever chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from uniot.benchmark.features import (
    DomainFacts,
    DomainFeatures,
    domain_names,
    features_backbone,
    read_domain,
    read_facts,
)
from uniot.benchmark.jobs import Job
from uniot.benchmark.planning import Options, check_methods
from uniot.benchmark.protocol import folder_name
from uniot.benchmark.scenarios import make_scenarios
from uniot.data.digits import load_digit_archives
from uniot.data.unpacked_set import plain
from uniot.errors import DataError, SettingsError
from uniot.run_folder import replacing
from uniot.words import listed

UNIVERSALITY = "universality"
"""Name of the study on the command line and of its files."""
DIGITS = "digits"
"""Name of the data set that comes with the install."""
PURPOSES: Mapping[str, tuple[int, ...]] = {
    "choice": (300, 301, 302, 303, 304, 305),
    "check": (900, 901, 902, 903, 904, 905),
}
"""Seeds of the splits: defaults may be chosen by results on the first, and are reported on the second."""
METHODS = ("uniot-universal",)
"""Methods that the study runs unless others are named."""


@dataclass(frozen=True)
class Collection:
    """A data set of the study.

    Attributes:
        name: what tables call it.
        features: file or folder with the embeddings of its domains.
        domains: facts of each domain.
    """

    name: str
    features: Path
    domains: tuple[DomainFacts, ...]

    @classmethod
    def read(cls, name: str, features: Path) -> Collection:
        """Read the facts of all domains of a file or a folder."""
        facts = read_facts(features, domain_names(features))
        return cls(folder_name(name, "the name of a data set"), features, tuple(facts))

    def pairs(self) -> dict[str, tuple[DomainFacts, DomainFacts]]:
        """Return source and target of every ordered pair of domains that share two classes or more, by task."""
        found = {f"{source.name}2{target.name}": (source, target) for source, target in permutations(self.domains, 2)}
        return {task: pair for task, pair in found.items() if len(_target_sizes(*pair)) >= 2}


def plan_universality(
    collections: Sequence[Collection],
    *,
    methods: Sequence[str] = METHODS,
    purpose: str = "choice",
    n_splits: int = 3,
    task_names: Sequence[str] = (),
    options: Options | None = None,
    threads: int = 1,
    quick: bool = False,
) -> list[Job]:
    """Return a job for every split, data set, pair of domains, scenario and method.

    Splits come first, so that a study that is stopped early has seen all data sets equally often.

    Args:
        collections: the data sets.
        methods: names as `uniot methods` lists them.
        purpose: one of `PURPOSES`: which seeds.
        n_splits: number of seeds, from the first on.
        task_names: which pairs, such as `amazon2webcam`; all if none is named.
        options: settings that differ from their defaults.
        threads: number of threads of a job.
        quick: one split and two pairs of each data set.
    """
    if purpose not in PURPOSES:
        raise SettingsError(f"there is no purpose called {purpose!r}. Take one of: {', '.join(PURPOSES)}.")
    if not 1 <= n_splits <= len(PURPOSES[purpose]):
        raise SettingsError(f"the number of splits is {n_splits}. Give 1 to {len(PURPOSES[purpose])}.")
    chosen = check_methods(methods, options or Options())
    seeds = PURPOSES[purpose][: 1 if quick else n_splits]
    pairs = {collection.name: _chosen_pairs(collection, task_names, quick=quick) for collection in collections}
    if not any(pairs.values()):
        known = [task for collection in collections for task in collection.pairs()]
        raise DataError(
            f"no data set has a task called {listed(task_names)}. Take some of: {listed(known)}."
            if task_names and known
            else "no two domains have two classes in common. Give domains with the same classes."
        )
    return [
        Job(
            method=method,
            setting=scenario.name,
            task=task,
            seed=seed,
            split=scenario.split,
            source=source.name,
            target=target.name,
            source_digest=source.digest,
            target_digest=target.digest,
            features=str(collection.features.absolute()),
            backbone=features_backbone(collection.features),
            settings=settings,
            options=own,
            threads=threads,
            draw=scenario.draw,
            dataset=collection.name,
        )
        for seed in seeds
        for collection in collections
        for task, (source, target) in pairs[collection.name].items()
        for scenario in make_scenarios(
            source.name, target.name, source.class_sizes.keys(), _target_sizes(source, target), seed
        )
        for method, (settings, own) in chosen.items()
    ]


def write_digits(folder: Path) -> Path:
    """Write the digits that come with the install as features, pixels as embeddings, unless they are there already.

    Args:
        folder: for the file `digits.npz`, with the domains `sklearn` (8 × 8 pixels, enlarged) and `mnist`.
    """
    path = folder / f"{DIGITS}.npz"
    small, small_labels, large, large_labels = load_digit_archives()
    domains = {"sklearn": (small, small_labels), "mnist": (large, large_labels)}
    arrays = {"backbone": np.array("pixels")}
    for name, (images, labels) in domains.items():
        arrays |= {f"{name}_x": images.reshape(len(images), -1), f"{name}_y": labels.astype(str)}
    if not all(_holds(path, name, arrays[f"{name}_x"], arrays[f"{name}_y"]) for name in domains):
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    return path


def _holds(path: Path, name: str, x: np.ndarray, labels: np.ndarray) -> bool:
    try:
        return read_domain(path, name).digest == DomainFeatures(x, labels, ()).digest
    except DataError:
        return False


def _chosen_pairs(
    collection: Collection, task_names: Sequence[str], *, quick: bool
) -> dict[str, tuple[DomainFacts, DomainFacts]]:
    pairs = {task: pair for task, pair in collection.pairs().items() if not task_names or task in task_names}
    if not quick or not pairs:
        return pairs
    first = next(iter(pairs.values()))
    # Another source and another target than those of the first pair.
    others = {task: pair for task, pair in pairs.items() if all(a is not b for a, b in zip(pair, first, strict=True))}
    return dict(list(pairs.items())[:1] + list(others.items())[-1:])


def _target_sizes(source: DomainFacts, target: DomainFacts) -> dict[str, int]:
    """Count the target samples of each class that the source has too, by the source's name of the class.

    Case and punctuation do not count, as in `protocol.task_data`.
    """
    names = {plain(name): name for name in source.class_sizes} | {name: name for name in source.class_sizes}
    sizes: dict[str, int] = {}
    for name, size in target.class_sizes.items():
        known = names.get(name, names.get(plain(name)))
        if known is not None:
            sizes[known] = sizes.get(known, 0) + size
    return sizes
