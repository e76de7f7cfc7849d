"""What stays unknown after all groups were named: samples of classes that no run has seen, on random class splits.

    python benchmarks/named_classes.py --features features/ --csv named-classes.csv
    python benchmarks/named_classes.py --features features/ --seeds 0 1 2 3    # chose the constants
    python benchmarks/named_classes.py --sets office31 --quick

The classes of a collection are common, private to the source, private to the target, or unseen: these occur in new
samples only. Half of the target's samples are fitted, the other half are new. An oracle names every group of unknown
samples by the true class of most of its members, on the labelling page; that is the only use of true labels besides the
scores. Then the next run is made as `uniot adapt --continue` does it. All are fractions:

unseen    of the new samples of unseen classes, those that are unknown: by the first run, on the page after all names,
          and after the next run. "kept" are those of the first run that are unknown after the next one.
named     of the new samples of classes that got a name, those with the right name: on the page, and after.
common    of the new samples of common classes, those with the right label: by the first run, on the page, and after.
target    accuracy over the fitted target: on the page, and after; "gain" is the difference. "changed" counts labels
          that the oracle gave, by naming their group, and the next run changed.

Tasks in which no group got the name of a new class are left out, and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from label_order import pacs
from measure import arguments
from random_splits import Domain, digits, office31

from uniot.adaptation.collections import Collection, Collections
from uniot.config import Settings
from uniot.io.csv_tables import write_table
from uniot.labelling import Names
from uniot.labelling.exporting import decided
from uniot.labelling.samples import TargetSamples
from uniot.labelling.state import AnnotationState, rename
from uniot.training.domains import domains_from_arrays, inputs_of
from uniot.training.fit import FitContext, fit
from uniot.training.model import AdaptedModel

_SEEDS = (30, 31, 32)
_PAIRS = {
    "office31": (("A", "W"), ("A", "D"), ("W", "A"), ("D", "A")),
    "pacs": (("P", "A"), ("A", "C"), ("P", "S")),
    "sentences": (("train", "test"),),
    "cells": (("not-3pv1", "3pv1"), ("not-3pv2", "3pv2"), ("not-5p", "5p")),
    "digits": (("S", "M"), ("M", "S")),
}
# Common, private to the source, private to the target, unseen.
_CLASSES = {
    "office31": (8, 7, 8, 8),
    "pacs": (2, 1, 2, 2),
    "sentences": (20, 17, 20, 20),
    "cells": (2, 1, 2, 2),
    "digits": (3, 2, 3, 2),
}
_MOST_SAMPLES, _MOST_SOURCE = 1000, 2500
_SETTINGS = Settings(method="unincm", seed=0)

Line = dict[str, str | int | float]


class Data(NamedTuple):
    """A labelled source, a target, and the truth about it."""

    x: np.ndarray
    y: np.ndarray
    target: np.ndarray
    truth: np.ndarray

    @property
    def names(self) -> list[str]:
        return [str(row) for row in range(len(self.target))]


def first_run(data: Data) -> AdaptedModel:
    return fit(domains_from_arrays(data.x, data.y, data.target, _SETTINGS), _SETTINGS)


def continued(data: Data, target: TargetSamples, state: AnnotationState) -> AdaptedModel:
    """The run that `uniot adapt --continue` makes from the labels of a page."""
    lines = list(decided(target, state))
    names = Names(
        [name for name, *_ in lines],
        np.array([label for _, label, *_ in lines]),
        np.array([decision for _, _, decision, _ in lines]),
    )
    source = Collection(Path("source"), [str(row) for row in range(len(data.x))], data.y, rows=data.x)
    unlabelled = Collection(Path("target"), data.names, rows=data.target)
    domains = Collections(source, unlabelled).annotated(names).domains(_SETTINGS)
    return fit(domains, _SETTINGS, FitContext(answers=names.answers(data.names, domains.classes)))


def labels_of(model: AdaptedModel) -> np.ndarray:
    return model.labels(model.target).astype(str)


class Split(NamedTuple):
    """A task: what is fitted, and new samples of the target's domain with their true classes."""

    data: Data
    new: np.ndarray
    truth: np.ndarray
    common: np.ndarray
    private: np.ndarray
    unseen: np.ndarray


def split(source: Domain, target: Domain, sizes: tuple[int, int, int, int], seed: int) -> Split:
    """Draw the classes of a task, and the half of the target that is fitted."""
    drawn = np.random.default_rng(seed)
    classes = drawn.permutation(np.unique(source[1]))
    common, of_source, private, unseen = np.split(classes[: sum(sizes)], np.cumsum(sizes)[:-1])
    labelled = drawn.permutation(np.flatnonzero(np.isin(source[1], [*common, *of_source])))[:_MOST_SOURCE]
    seen = drawn.permutation(np.flatnonzero(np.isin(target[1], [*common, *private])))
    half = min(len(seen) // 2, _MOST_SAMPLES)
    fitted, new = np.sort(seen[:half]), np.append(seen[half:], np.flatnonzero(np.isin(target[1], unseen)))
    data = Data(source[0][labelled], source[1][labelled], target[0][fitted], target[1][fitted])
    return Split(data, target[0][new], target[1][new], common, private, unseen)


def named_by_oracle(task: Split, model: AdaptedModel) -> tuple[TargetSamples, AnnotationState]:
    """Return the page after every group got the name of the true class of most of its members."""
    target = TargetSamples.of(model, task.data.names)
    state = target.initial_state()
    for group in range(model.groups.n_groups):
        names, counts = np.unique(task.data.truth[model.target.group == group], return_counts=True)
        if len(names):
            state.apply(rename(state, group, str(names[counts.argmax()])))
    return target, state


def labels_of_new(model: AdaptedModel, rows: np.ndarray) -> np.ndarray:
    """Return the labels that `predict` gives to new samples."""
    return model.labels(model.predict(inputs_of(rows, model))).astype(str)


def line_of(task: Split) -> Line:
    """Return the figures of a task."""
    first = first_run(task.data)
    target, state = named_by_oracle(task, first)
    page = first.with_annotations(target.annotations(state))
    names = sorted(set(state.names.values()) & set(task.private.tolist()))
    if not names:
        return {"new_classes": 0}
    after = continued(task.data, target, state)
    before, shown, then = (labels_of_new(model, task.new) for model in (first, page, after))
    unseen, named, common = (np.isin(task.truth, kinds) for kinds in (task.unseen, names, task.common))
    was_unknown = unseen & (before == "unknown")
    own, own_after, given = labels_of(page), labels_of(after), np.isin(first.target.group, sorted(state.names))
    right, right_after = own == task.data.truth, own_after == task.data.truth
    return {
        "new_classes": len(names),
        "unseen_first": _mean(before[unseen] == "unknown"),
        "unseen_page": _mean(shown[unseen] == "unknown"),
        "unseen_after": _mean(then[unseen] == "unknown"),
        "kept_page": _mean(shown[was_unknown] == "unknown"),
        "kept": _mean(then[was_unknown] == "unknown"),
        "named_page": _mean(shown[named] == task.truth[named]),
        "named": _mean(then[named] == task.truth[named]),
        "common_first": _mean(before[common] == task.truth[common]),
        "common_page": _mean(shown[common] == task.truth[common]),
        "common": _mean(then[common] == task.truth[common]),
        "target_page": _mean(right),
        "target": _mean(right_after),
        "gain": _mean(right_after) - _mean(right),
        "changed": int((own[given] != own_after[given]).sum()),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def tasks(sets: list[str], seeds: list[int], features: Path | None) -> Iterator[tuple[str, str, int, Split]]:
    for name in sets:
        domains = _domains(name, features)
        for one, other in _PAIRS[name]:
            for seed in seeds:
                yield name, f"{one}2{other}", seed, split(domains[one], domains[other], _CLASSES[name], seed)


def _domains(name: str, features: Path | None) -> dict[str, Domain]:
    made = {"office31": office31, "pacs": pacs, "digits": digits}
    if name in made:
        return made[name]()
    file = Path() if features is None else features / f"{name}.npz"
    if not file.is_file():
        sys.exit(f"{name}.npz is absent: make it with benchmarks/cells_and_sentences.py and give its folder.")
    with np.load(file) as arrays:
        return {key[:-2]: (arrays[key], arrays[f"{key[:-2]}_y"]) for key in arrays.files if key.endswith("_x")}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=tuple(_PAIRS), default=tuple(_PAIRS))
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=_SEEDS,
        help="0 to 3, and between two values 10 to 12 and 20 to 22, chose the constants",
    )
    parser.add_argument("--features", type=Path, help="folder of cells.npz and sentences.npz")
    parser.add_argument("--csv", type=Path, help="keep every line here")
    options = parser.parse_args()
    found: list[Line] = []
    left_out = 0
    for name, pair, seed, task in tasks(options.sets, options.seeds[: 1 if options.quick else None], options.features):
        line = line_of(task)
        if not line["new_classes"]:
            left_out += 1
            continue
        found.append({"set": name, "task": pair, "seed": seed, **line})
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in found[-1].items()})
        sys.stdout.flush()
    if options.csv is not None:
        write_table(
            options.csv,
            list(found[0]),
            [[round(value, 4) if isinstance(value, float) else value for value in line.values()] for line in found],
        )
    print_means(found)
    print(f"{left_out} tasks without a new name are left out")


def print_means(found: list[Line]) -> None:
    keys = [key for key, value in found[0].items() if isinstance(value, float)]
    print(f"{'':18}{''.join(f'{key:>14}' for key in keys)}{'changed':>9}")
    for name in [*dict.fromkeys(str(line["set"]) for line in found), "all", "least"]:
        some = [line for line in found if name in (line["set"], "all", "least")]
        take = np.nanmin if name == "least" else np.nanmean
        values = [100 * take([float(line[key]) for line in some]) for key in keys]
        changed = sum(int(line["changed"]) for line in some)
        print(f"{name:18}{''.join(f'{value:14.1f}' for value in values)}{changed:9d}")
    kept = np.array([float(line["kept"]) for line in found])
    gain = np.array([float(line["gain"]) for line in found])
    enough = (kept[~np.isnan(kept)] >= 0.9).sum()
    print(f"{enough} of {(~np.isnan(kept)).sum()} tasks keep 90 %; {(gain < 0).sum()} of {len(gain)} lose accuracy")


if __name__ == "__main__":
    main()
