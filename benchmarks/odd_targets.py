"""Fit UniNCM to pairs of collections that have something odd, and count those that are silently wrong.

    python benchmarks/odd_targets.py

Every pair is drawn three times, from fixed seeds, and its true labels are known. A line has the worst of the three:
accuracy over all target samples (private ones are right if they are called unknown), the run's own estimate of it, the
warnings in short, and a verdict:

    right            the accuracy is at least 0.7
    named            it is below, and a warning names what is odd
    doubted          it is below, and a warning says that the labels are unreliable
    refused          an error says what is wrong with the data
    silently wrong   none of these; a warning about something else does not count

Pairs with one class in common are listed apart: what is common then is too little to be told from chance, a known
weakness. `--quick` draws each pair once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from measure import arguments

from uniot import UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, UniotWarning

LOW_ACCURACY = 0.7
SEEDS = 3
# A part of each warning, and its name in the table; the first ones name what is odd, the others doubt the labels.
NAMED = {
    "a code for missing values": "code",
    "have outliers": "outliers",
    "of the variance of the": "scale",
    "to have the same units": "units",
    "a single feature": "one feature",
    "only two features": "two features",
    "seven digits": "precision",
    "equal to one and the same sample": "copies",
    "zero in all features": "copies",
    "many target samples are identical": "copies",
    "fewer than 3 labelled": "few labelled",
    "target samples; results are unreliable": "few samples",
}
DOUBTED = {
    "cannot be trusted": "low estimate",
    "probably wrong": "low estimate",
    "cannot be told from so few": "few classes",
    "every one is called unknown": "nothing known",
    "no target sample is called unknown": "nothing unknown",
}


@dataclass(frozen=True)
class Pair:
    """A labelled source, a target whose true labels are known, and a random generator for changes."""

    x: np.ndarray
    y: np.ndarray
    target: np.ndarray
    truth: np.ndarray
    rng: np.random.Generator

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Pair:
        """Change the numbers of both collections."""
        return replace(self, x=function(self.x), target=function(self.target))

    def map_target(self, function: Callable[[np.ndarray], np.ndarray]) -> Pair:
        """Change the numbers of the target alone."""
        return replace(self, target=function(self.target))

    def some_target(self, rows: np.ndarray) -> Pair:
        """Take some target samples, by a mask or by their rows."""
        return replace(self, target=self.target[rows], truth=self.truth[rows])

    def per_class(self, size: int, sizes: Mapping[str, int] | None = None) -> Pair:
        """Keep the first `size` samples of each source class; `sizes` has those of other sizes."""
        kept = [np.flatnonzero(self.y == name)[: (sizes or {}).get(str(name), size)] for name in np.unique(self.y)]
        rows = np.concatenate(kept)
        return replace(self, x=self.x[rows], y=self.y[rows])

    def is_drawn(self, part: float, shape: tuple[int, ...]) -> np.ndarray:
        """Draw a part of an array."""
        return self.rng.random(shape) < part


def toy(seed: int, n_common: int = 5, n_source: int = 3, n_target: int = 3, **options: float) -> Pair:
    """Draw Gaussian classes whose features have a standard deviation of about one."""
    sizes = {"samples_per_class": 40, "dimensions": 32, **options}
    drawn = make_toy_domains(n_common, n_source, n_target, seed=seed, **sizes)  # type: ignore[arg-type]
    scale = np.sqrt(sizes["dimensions"])
    x, target = scale * drawn.x_source, scale * drawn.x_target
    return Pair(x, drawn.y_source, target, drawn.oracle_y_target, np.random.default_rng(seed + 1))


def coded(pair: Pair, part: float, code: float = -999.0) -> Pair:
    """Write a code for missing values into a part of the cells."""
    return pair.map(lambda x: np.where(pair.is_drawn(part, x.shape), code, x))


def coded_target(pair: Pair, part: float) -> Pair:
    return replace(pair, target=coded(pair, part).target)


def coded_column(pair: Pair, part: float) -> Pair:
    """Write a code for missing values into a part of one feature."""
    is_first = np.arange(pair.x.shape[1]) == 0
    return pair.map(lambda x: np.where(pair.is_drawn(part, (len(x), 1)) & is_first, -999.0, x))


def with_outliers(pair: Pair, part: float) -> Pair:
    """Replace a part of the cells by numbers of the size of a million."""
    return pair.map(lambda x: np.where(pair.is_drawn(part, x.shape), 1e6 * pair.rng.normal(size=x.shape), x))


def cauchy(pair: Pair) -> Pair:
    return pair.map(lambda x: x + pair.rng.standard_cauchy(x.shape))


def counts(pair: Pair, rate: float) -> Pair:
    return pair.map(lambda x: pair.rng.poisson(rate * np.exp(0.8 * x)).astype(float))


def one_value(pair: Pair, value: float) -> Pair:
    is_first = np.arange(pair.target.size).reshape(pair.target.shape) == 0
    return pair.map_target(lambda x: np.where(is_first, value, x))


def rows_replaced(pair: Pair, part: float, row: np.ndarray | float) -> Pair:
    """Replace a part of the target samples by one row, such as that of a failed embedding."""
    return pair.map_target(lambda x: np.where(pair.is_drawn(part, (len(x), 1)), row, x))


def times(factor: float, n_features: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that gives the first features another unit."""
    return lambda x: x * np.where(np.arange(x.shape[1]) < n_features, factor, 1)


def in_other_units(pair: Pair) -> Pair:
    return pair.map_target(lambda x: x * 10 ** pair.rng.uniform(-1, 1, x.shape[1]))


def beside_noise(pair: Pair) -> Pair:
    """Add as many features that are noise of ten times the size."""
    return pair.map(lambda x: np.hstack([x, 10 * pair.rng.normal(size=x.shape)]))


def any_norm(pair: Pair) -> Pair:
    return pair.map(lambda x: x * 10 ** pair.rng.uniform(-3, 3, (len(x), 1)))


def permuted(pair: Pair) -> Pair:
    return pair.map_target(lambda x: x[:, pair.rng.permutation(x.shape[1])])


def rotated(pair: Pair) -> Pair:
    rotation = np.linalg.qr(pair.rng.normal(size=(pair.x.shape[1], pair.x.shape[1])))[0]
    return pair.map_target(lambda x: x @ rotation)


def drifting(pair: Pair) -> Pair:
    """Order the target at random, and add a trend over its rows."""
    pair = pair.some_target(pair.rng.permutation(len(pair.target)))
    direction = pair.rng.normal(size=pair.target.shape[1])
    return pair.map_target(lambda x: x + 3 * np.linspace(-1, 1, len(x))[:, None] * direction)


def wrong_labels(pair: Pair, part: float) -> Pair:
    drawn = pair.rng.choice(np.unique(pair.y), len(pair.y))
    return replace(pair, y=np.where(pair.is_drawn(part, pair.y.shape), drawn, pair.y))


def dominated(pair: Pair, part: float) -> Pair:
    """Make the first class a part of the target."""
    is_first = pair.truth == pair.truth[0]
    n_others = round(is_first.sum() * (1 - part) / part)
    others = pair.rng.choice(np.flatnonzero(~is_first), n_others, replace=False)
    return pair.some_target(np.concatenate([np.flatnonzero(is_first), others]))


def on_itself(pair: Pair) -> Pair:
    return replace(pair, target=pair.x, truth=pair.y)


def of_lengths(seed: int) -> Pair:
    """Draw classes that differ in the length of their rows alone."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=32)

    def draw(classes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        index = np.repeat(classes, 40)
        return (1 + index)[:, None] * direction + 0.3 * rng.normal(size=(len(index), 32)), index.astype(str)

    (x, y), (target, truth) = draw(list(range(8))), draw([0, 1, 2, 3, 4, 8, 9, 10])
    return Pair(x, y, target, truth, rng)


Case = tuple[Callable[[int], Pair], str]
"""Draws a pair from a seed; and the name of the warning that names what is odd, if there is one."""

CASES: dict[str, Case] = {
    "nothing odd": (toy, ""),
    "code −999 in 0.5 % of the cells": (lambda seed: coded(toy(seed), 0.005), "code"),
    "code −999 in 2 % of the cells": (lambda seed: coded(toy(seed), 0.02), "code"),
    "code −999 in 10 % of the cells": (lambda seed: coded(toy(seed), 0.1), "code"),
    "code −999 in 2 % of the target's cells": (lambda seed: coded_target(toy(seed), 0.02), "code"),
    "code −999 in 40 % of one feature": (lambda seed: coded_column(toy(seed), 0.4), "code"),
    "code −999 in 2 % of 256 features": (lambda seed: coded(toy(seed, dimensions=256), 0.02), "code"),
    "code −99 in 2 % of the cells": (lambda seed: coded(toy(seed), 0.02, -99), "code"),
    "code −9 in 10 % of the cells": (lambda seed: coded(toy(seed), 0.1, -9), "code"),
    "zeros in 30 % of the cells": (lambda seed: coded(toy(seed), 0.3, 0), "code"),
    "outliers of 1e6 in 1 % of the cells": (lambda seed: with_outliers(toy(seed), 0.01), "outliers"),
    "outliers of 1e6 in 1 % of 128 features": (lambda seed: with_outliers(toy(seed, dimensions=128), 0.01), "outliers"),
    "Cauchy noise": (lambda seed: cauchy(toy(seed)), "outliers"),
    "exponentials of the features": (lambda seed: toy(seed).map(lambda x: np.exp(2 * x)), "outliers"),
    "one feature": (lambda seed: toy(seed).map(lambda x: x[:, :1]), "one feature"),
    "two features": (lambda seed: toy(seed).map(lambda x: x[:, :2]), "two features"),
    "one feature times 100": (lambda seed: toy(seed).map(times(100)), "scale"),
    "one feature times 1e4": (lambda seed: toy(seed).map(times(1e4)), "scale"),
    "three features times 1e4": (lambda seed: toy(seed).map(times(1e4, 3)), "scale"),
    "one feature times 1e4 in the target": (lambda seed: toy(seed).map_target(times(1e4)), "scale"),
    "features of the target in other units": (lambda seed: in_other_units(toy(seed)), "units"),
    "half of the features is large noise": (lambda seed: beside_noise(toy(seed)), ""),
    "all features plus 1e4": (lambda seed: toy(seed).map(lambda x: x + 1e4), ""),
    "all features plus 1e6": (lambda seed: toy(seed).map(lambda x: x + 1e6), ""),
    "all features plus 1e9": (lambda seed: toy(seed).map(lambda x: x + 1e9), "precision"),
    "features of almost no variance": (lambda seed: toy(seed).map(lambda x: 1 + 1e-9 * x), "precision"),
    "half of the features constant": (lambda seed: toy(seed).map(lambda x: np.where(np.arange(32) < 16, 3, x)), ""),
    "every target sample ten times": (lambda seed: toy(seed).some_target(np.repeat(np.arange(0, 320, 8), 10)), ""),
    "all target samples equal": (lambda seed: toy(seed).some_target(np.zeros(200, int)), "copies"),
    "40 % of the target are one sample": (lambda seed: rows_replaced(toy(seed), 0.4, toy(seed).target[0]), "copies"),
    "40 % of the target are zero": (lambda seed: rows_replaced(toy(seed), 0.4, 0), "copies"),
    "a NaN in the target": (lambda seed: one_value(toy(seed), np.nan), ""),
    "an infinity in the target": (lambda seed: one_value(toy(seed), np.inf), ""),
    "whole numbers": (lambda seed: toy(seed).map(lambda x: np.round(2 * x).astype(np.int64)), ""),
    "bytes": (lambda seed: toy(seed).map(lambda x: np.clip(128 + 25 * x, 0, 255).astype(np.uint8)), ""),
    "binary features": (lambda seed: toy(seed, dimensions=128).map(lambda x: (x > 0).astype(float)), ""),
    "sparse counts": (lambda seed: counts(toy(seed, dimensions=256), 0.3), ""),
    "very sparse counts": (lambda seed: counts(toy(seed, dimensions=512), 0.05), ""),
    "half precision, up to 6e4": (lambda seed: toy(seed).map(lambda x: (1e4 * x).clip(-6e4, 6e4).astype("f2")), ""),
    "unit rows": (lambda seed: toy(seed).map(lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)), ""),
    "norms from 1e-3 to 1e3": (lambda seed: any_norm(toy(seed)), ""),
    "classes differ in length alone": (of_lengths, ""),
    "3 target samples": (lambda seed: toy(seed).some_target(np.array([0, 100, 300])), "few samples"),
    "10 target samples": (lambda seed: toy(seed).some_target(np.arange(0, 320, 32)), "few samples"),
    "20 target samples": (lambda seed: toy(seed).some_target(np.arange(0, 320, 16)), "few samples"),
    "one class is 90 % of the target": (lambda seed: dominated(toy(seed, samples_per_class=180), 0.9), ""),
    "one class is all of the target": (lambda seed: toy(seed, samples_per_class=150).some_target(np.arange(150)), ""),
    "one labelled sample per class": (lambda seed: toy(seed).per_class(1), "few labelled"),
    "three or a thousand labelled samples": (
        lambda seed: (
            toy(seed, samples_per_class=1000)
            .per_class(1000, dict.fromkeys(["common-0", "common-1"], 3))
            .some_target(np.arange(0, 8000, 25))
        ),
        "",
    ),
    "500 features, 30 samples": (lambda seed: toy(seed, 3, 1, 2, samples_per_class=6, dimensions=500), "few samples"),
    "150 source classes": (lambda seed: toy(seed, 100, 50, 50, samples_per_class=8, dimensions=128), ""),
    "two source classes, both common": (lambda seed: toy(seed, 2, 0, 1), ""),
    "target is the source": (lambda seed: on_itself(toy(seed)), ""),
    "features of the target permuted": (lambda seed: permuted(toy(seed)), ""),
    "target times 100": (lambda seed: toy(seed).map_target(lambda x: 100 * x), ""),
    "target of the other sign": (lambda seed: toy(seed).map_target(lambda x: -x), ""),
    "half of the target's signs": (lambda seed: toy(seed).map_target(times(-1, 16)), ""),
    "target rotated": (lambda seed: rotated(toy(seed)), ""),
    "target drifts over its rows": (lambda seed: drifting(toy(seed)), ""),
    "30 % wrong source labels": (lambda seed: wrong_labels(toy(seed), 0.3), ""),
    "source labels drawn at random": (lambda seed: wrong_labels(toy(seed), 1), ""),
    "nothing in common": (lambda seed: toy(seed, 0, 5, 5), ""),
    "nothing private": (lambda seed: toy(seed, 6, 0, 0), ""),
    "two common classes of eight": (lambda seed: toy(seed, 2, 6, 6), ""),
}
ONE_IN_COMMON: dict[str, Case] = {
    "2 source classes, 1 common, 1 private": (lambda seed: toy(seed, 1, 1, 1, samples_per_class=100), ""),
    "3 source classes, 1 common, 1 private": (lambda seed: toy(seed, 1, 2, 1, samples_per_class=100), ""),
    "4 source classes, 1 common, 2 private": (lambda seed: toy(seed, 1, 3, 2, samples_per_class=100), ""),
    "8 source classes, 1 common, 7 private": (lambda seed: toy(seed, 1, 7, 7), ""),
}


@dataclass(frozen=True)
class Outcome:
    """Accuracy and estimate (NaN if the data are refused), warnings in short, and the verdict."""

    accuracy: float
    estimate: float
    signs: tuple[str, ...]
    verdict: str

    def __str__(self) -> str:
        numbers = ("–" if np.isnan(number) else f"{number:.2f}" for number in (self.accuracy, self.estimate))
        return " | ".join((*numbers, ", ".join(self.signs), self.verdict))


# From worst to best.
VERDICTS = ("silently wrong", "doubted", "named", "right", "refused")


def main() -> None:
    given = arguments(__doc__).parse_args()
    seeds = range(1 if given.quick else SEEDS)
    found = {}
    for title, cases in (("pair", CASES), ("one class in common", ONE_IN_COMMON)):
        print(f"| {title} | accuracy | estimate | warnings | verdict |\n|---|---|---|---|---|", flush=True)
        for name, (draw, problem) in cases.items():
            outcomes = [outcome(draw(seed), problem) for seed in seeds]
            found[name] = min(outcomes, key=lambda one: (VERDICTS.index(one.verdict), one.accuracy))
            print(f"| {name} | {found[name]} |", flush=True)
        silent = sum(found[name].verdict == "silently wrong" for name in cases)
        print(f"\nsilently wrong: {silent} of {len(cases)}\n", flush=True)


def outcome(pair: Pair, problem: str) -> Outcome:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            model = UniNCM(random_state=0).fit(pair.x, pair.y, pair.target)
        except DataError:
            return Outcome(float("nan"), float("nan"), (), "refused")
    right = np.where(np.isin(pair.truth, pair.y), pair.truth, "unknown")
    accuracy = float((model.labels_ == right).mean())
    words = [str(one.message) for one in told if issubclass(one.category, UniotWarning)]
    signs = tuple(dict.fromkeys(short(one) for one in words))
    verdict = "silently wrong"
    if accuracy >= LOW_ACCURACY:
        verdict = "right"
    elif problem in signs:
        verdict = "named"
    elif set(signs) & set(DOUBTED.values()):
        verdict = "doubted"
    return Outcome(accuracy, float(model.reliability_.accuracy), signs, verdict)


def short(words: str) -> str:
    """Return the name of a warning in the table."""
    return next(name for part, name in (NAMED | DOUBTED).items() if part in words)


if __name__ == "__main__":
    main()
