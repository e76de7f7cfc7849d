"""Draw scenarios between two domains: the classes of each domain, and the number of target samples of each class.

A scenario is drawn from the classes that both domains have, by a seed. It depends on the names of the domains, on their
class names and on the class sizes of the target, never on embeddings: two backbones of one data set get the same ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from uniot.datasets.catalogue import ClassSplit
from uniot.errors import SettingsError

MAX_TARGET = 1500
"""Largest number of target samples; more are reduced to as many at random."""
MIN_TARGET = 20
"""Smallest number of target samples; the score of a smaller target is mostly chance."""
NUMBERS_OF_CLASSES = (2, 3, 5, 10, 20)
PRIVATE_PRIORS = ("0", "0.1", "0.5", "0.9", "1")
DOMINANT_SHARES = ("0.5", "0.9", "0.98", "1")
TARGET_SIZES = (50, 100, 300)
TAIL_RATIO = 100
"""Size of the largest class of a long-tailed target over that of the smallest."""
FAMILIES: Mapping[str, str] = {
    "open-partial": "settings",
    "open": "settings",
    "partial": "settings",
    "closed": "settings",
    "source-classes": "number of classes",
    "closed-classes": "number of classes",
    "private-prior": "private-class prior",
    "long-tail": "long tail",
    "dominant-known": "dominant class",
    "dominant-private": "dominant class",
    "target-size": "target size",
    "closed-target-size": "target size",
}
"""Name of a scenario, up to its value, to the family that tables put it in."""
SCENARIO_NAMES = (
    *("open-partial", "open", "partial", "closed"),
    *(f"{kind}={number}" for kind in ("source-classes", "closed-classes") for number in NUMBERS_OF_CLASSES),
    *(f"private-prior={prior}" for prior in PRIVATE_PRIORS),
    "long-tail",
    *(f"{kind}={share}" for kind in ("dominant-known", "dominant-private") for share in DOMINANT_SHARES),
    *(f"{kind}={size}" for kind in ("target-size", "closed-target-size") for size in TARGET_SIZES),
)
"""Names of all scenarios; which of them a pair of domains has depends on its classes and samples."""


def check_scenarios(names: Collection[str]) -> None:
    """Raise SettingsError if a name is not one of `SCENARIO_NAMES`."""
    for name in names:
        if name not in SCENARIO_NAMES:
            raise SettingsError(f"there is no scenario called {name!r}. Choose from: {', '.join(SCENARIO_NAMES)}.")


def family_of(scenario: str) -> str:
    """Return the family of a scenario by its name, such as `private-prior=0.9`."""
    return FAMILIES[scenario.partition("=")[0]]


def scenario_order(scenario: str) -> tuple[int, float]:
    """Return a key that sorts the names of scenarios: by kind, then by value."""
    kind, _, value = scenario.partition("=")
    return list(FAMILIES).index(kind), float(value or 0)


@dataclass(frozen=True)
class TargetDraw:
    """Number of target samples per class, and the seed by which they are drawn.

    Attributes:
        counts: class and number of samples of each class that the target has, sorted by class.
        seed: random seed of the choice of samples within each class.
    """

    counts: tuple[tuple[str, int], ...]
    seed: int

    @property
    def n_samples(self) -> int:
        """Return the number of target samples."""
        return sum(count for _, count in self.counts)


@dataclass(frozen=True)
class Scenario:
    """A split of the classes, and the number of target samples of each class.

    Attributes:
        name: such as `open-partial` or `private-prior=0.9`.
        split: common classes, and those private to one domain. The target may lack samples of some of its classes.
        draw: the target samples.
    """

    name: str
    split: ClassSplit
    draw: TargetDraw


def make_scenarios(
    source: str, target: str, source_classes: Collection[str], target_sizes: Mapping[str, int], seed: int
) -> list[Scenario]:
    """Return every scenario for which two domains have enough classes and samples.

    Each family of scenarios has its own random stream, so that adding a family does not change the others.

    Args:
        source: name of the source domain.
        target: name of the target domain.
        source_classes: classes of which the source has samples.
        target_sizes: number of target samples of each class.
        seed: random seed of the splits and of the samples.

    Returns:
        The scenarios, by family.
    """
    shared = {name: target_sizes[name] for name in sorted(target_sizes) if name in source_classes}
    made: list[Scenario] = []
    if len(shared) < 2:
        return made
    pair = zlib.crc32(f"{source} {target}".encode())
    for stream, family in enumerate(_MAKERS):
        pool = _ClassPool(shared, np.random.default_rng([seed, pair, stream]))
        for name, split, counts in family(pool):
            kept = {one: count for one, count in pool.reduced(counts, MAX_TARGET).items() if count}
            if len(split.source) >= 2 and sum(kept.values()) >= MIN_TARGET:
                made.append(Scenario(name, split, TargetDraw(tuple(sorted(kept.items())), seed)))
    return made


@dataclass(frozen=True)
class SplitSizes:
    """Numbers of common, source-private and target-private classes."""

    common: int
    source_private: int = 0
    target_private: int = 0


def setting_sizes(n_classes: int) -> dict[str, SplitSizes]:
    """Return the sizes of the four settings for a number of shared classes.

    Thirds in open-partial and halves in open and partial, a remainder to the common classes first; six of seven classes
    in closed, so that splits differ.
    """
    half = n_classes // 2
    return {
        "open-partial": SplitSizes((n_classes + 2) // 3, n_classes // 3, (n_classes + 1) // 3),
        "open": SplitSizes(n_classes - half, 0, half),
        "partial": SplitSizes(n_classes - half, half, 0),
        "closed": SplitSizes(n_classes - n_classes // 7),
    }


_Drawn = Iterator[tuple[str, ClassSplit, Mapping[str, int]]]


@dataclass(frozen=True)
class _ClassPool:
    """Classes and random generator from which the scenarios of a family are drawn.

    Attributes:
        sizes: number of target samples of each shared class, sorted by class.
        rng: random generator of this family.
    """

    sizes: Mapping[str, int]
    rng: np.random.Generator

    @property
    def settings(self) -> dict[str, SplitSizes]:
        return setting_sizes(len(self.sizes))

    def split(self, sizes: SplitSizes) -> ClassSplit:
        """Return a random split: common classes first, then source-private, then target-private ones."""
        names = self.shuffled(tuple(self.sizes))
        with_source = sizes.common + sizes.source_private
        return ClassSplit(
            names[: sizes.common], names[sizes.common : with_source], names[with_source:][: sizes.target_private]
        )

    def shuffled(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names[place] for place in self.rng.permutation(len(names)))

    def samples(self, classes: Collection[str]) -> dict[str, int]:
        """Return the number of all samples of some classes."""
        return {name: self.sizes[name] for name in classes}

    def reduced(self, counts: Mapping[str, int], n_samples: int) -> dict[str, int]:
        """Return the class counts of samples drawn at random without replacement; of all if there are fewer."""
        if sum(counts.values()) <= n_samples:
            return dict(counts)
        labels = np.repeat(np.arange(len(counts)), list(counts.values()))
        drawn = np.bincount(self.rng.permutation(labels)[:n_samples], minlength=len(counts))
        return dict(zip(counts, drawn.tolist(), strict=True))

    def mixed(self, first: Mapping[str, int], second: Mapping[str, int], share: str) -> dict[str, int]:
        """Return the class counts of samples of two groups, the first with exactly its fraction; empty if too few."""
        exact = Fraction(share)
        parts = exact.numerator, exact.denominator - exact.numerator
        limits = [sum(counts.values()) // part for counts, part in zip((first, second), parts, strict=True) if part]
        units = min(MAX_TARGET // exact.denominator, *limits)
        return self.reduced(first, units * parts[0]) | self.reduced(second, units * parts[1])


def _settings(pool: _ClassPool) -> _Drawn:
    for name, sizes in pool.settings.items():
        split = pool.split(sizes)
        yield name, split, pool.samples(split.target)


def _numbers_of_classes(pool: _ClassPool) -> _Drawn:
    """Yield splits with 2 to 20 source classes: half of them common, and all of them common."""
    n_classes = len(pool.sizes)
    for number in NUMBERS_OF_CLASSES:
        if number < n_classes:
            split = pool.split(SplitSizes((number + 1) // 2, number // 2, min(number, n_classes - number)))
            yield f"source-classes={number}", split, pool.samples(split.target)
        if number <= n_classes:
            split = pool.split(SplitSizes(number))
            yield f"closed-classes={number}", split, pool.samples(split.target)


def _private_priors(pool: _ClassPool) -> _Drawn:
    """Yield one open-partial split with private-class priors from 0 to 1."""
    split = pool.split(pool.settings["open-partial"])
    private, common = pool.samples(split.target_private), pool.samples(split.common)
    for prior in PRIVATE_PRIORS:
        yield f"private-prior={prior}", split, pool.mixed(private, common, prior)


def _long_tail(pool: _ClassPool) -> _Drawn:
    """Yield class sizes that decrease geometrically, in random order of the classes."""
    split = pool.split(pool.settings["open-partial"])
    names = pool.shuffled(split.target)
    weights = {name: TAIL_RATIO ** (-place / max(1, len(names) - 1)) for place, name in enumerate(names)}
    # The largest size for which every class has enough samples.
    head = int(min(MAX_TARGET / sum(weights.values()), *(pool.sizes[name] / weights[name] for name in names)))
    if head > TAIL_RATIO:
        head -= head % TAIL_RATIO
    yield "long-tail", split, {name: max(1, int(head * weight + 1e-9)) for name, weight in weights.items()}


def _dominant_class(pool: _ClassPool) -> _Drawn:
    """Yield one open-partial split with most samples in one common or one private class."""
    split = pool.split(pool.settings["open-partial"])
    for name, classes in (("dominant-known", split.common), ("dominant-private", split.target_private)):
        if not classes:
            continue
        largest = max(classes, key=lambda one: (pool.sizes[one], one))
        others = pool.samples([one for one in split.target if one != largest])
        for share in DOMINANT_SHARES:
            yield f"{name}={share}", split, pool.mixed(pool.samples([largest]), others, share)


def _target_sizes(pool: _ClassPool) -> _Drawn:
    """Yield small targets, each a subset of the next larger one."""
    for name, setting in (("target-size", "open-partial"), ("closed-target-size", "closed")):
        split = pool.split(pool.settings[setting])
        counts = pool.samples(split.target)
        for size in sorted(TARGET_SIZES, reverse=True):
            if sum(counts.values()) >= size:
                counts = pool.reduced(counts, size)
                yield f"{name}={size}", split, counts


# The place of a family seeds its random stream: append only.
_MAKERS: tuple[Callable[[_ClassPool], _Drawn], ...] = (
    _settings,
    _numbers_of_classes,
    _private_priors,
    _long_tail,
    _dominant_class,
    _target_sizes,
)
