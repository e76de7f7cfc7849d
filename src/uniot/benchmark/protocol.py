"""What is compared on what: the split of the classes, the tasks between domains, and the samples of a task."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import numpy as np

from uniot.benchmark.features import DomainFeatures
from uniot.data.benchmark_sets import benchmark_set
from uniot.data.published_set import BenchmarkSet, ClassSplit, Setting
from uniot.data.text import read_text
from uniot.data.unpacked_set import plain
from uniot.errors import DataError
from uniot.words import listed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SPLIT_KEYS = ("common", "source_private", "target_private")


@dataclass(frozen=True)
class TaskSet:
    """The domains and tasks of a published set, or of one's own.

    Attributes:
        name: what commands and tables of results call the set.
        title: what people call it.
        domains: from what a task calls a domain, such as the A of A2W, to its full name.
        tasks: source and target, such as A2W, in the order of the tables.
        published: as it was published, where it was.
    """

    name: str
    title: str
    domains: Mapping[str, str]
    tasks: tuple[str, ...]
    published: BenchmarkSet | None = None

    @classmethod
    def of_published(cls, name: str) -> TaskSet:
        """A set that comes with splits, by its name."""
        known = benchmark_set(name)
        domains = {domain.letter: domain.folder for domain in known.domains}
        return cls(known.name, known.title, domains, known.tasks, known)

    @classmethod
    def of_domains(cls, name: str, domains: Iterable[str]) -> TaskSet:
        """A set of one's own: each domain is called by its name, and there is a task for every pair."""
        names = {domain: domain for domain in domains}
        if len(names) < 2:
            raise DataError(
                f"{name} has {len(names)} domains ({listed(names)}), and a task needs a source and a target. "
                "Give two domains or more."
            )
        return cls(name, name, names, tuple(f"{source}2{target}" for source, target in permutations(names, 2)))

    def pair(self, task: str) -> tuple[str, str]:
        """Source and target of a task, as tasks call them."""
        if task not in self.tasks:
            raise DataError(f"{self.title} has no task {task!r}. Take one of: {listed(self.tasks)}.")
        # A domain may have a 2 in its name.
        return next(pair for pair in permutations(self.domains, 2) if "2".join(pair) == task)

    def splits(self, settings: Sequence[str]) -> dict[str, ClassSplit]:
        """The published splits by name; all that the set has where none is asked for."""
        if self.published is None:
            raise DataError(
                f"{self.title} is no published set, so its classes have no published split. Give one with --split "
                "FILE, or with --common, --source-private and --target-private."
            )
        names: dict[str, Setting] = {name: name for name in get_args(Setting)}
        for setting in settings:
            if setting not in names:
                raise DataError(f"there is no setting called {setting!r}. Take one of: {', '.join(names)}.")
        asked = [names[setting] for setting in settings] or list(self.published.splits)
        return {setting: self.published.split(setting) for setting in asked}


def custom_split(common: Sequence[str], source_private: Sequence[str], target_private: Sequence[str]) -> ClassSplit:
    """A split of one's own, checked: no class twice, and something to learn from and to adapt to."""
    parts = (common, source_private, target_private)
    seen: set[str] = set()
    for name in (name for part in parts for name in part):
        if name in seen:
            raise DataError(f"class {name!r} is in the split twice. A class is common, or private to one side.")
        seen.add(name)
    split = ClassSplit(*(tuple(part) for part in parts))
    if len(split.source) < 2:
        raise DataError(
            f"the split gives the source {len(split.source)} classes. Give it at least two, common or private to it."
        )
    if not split.target:
        raise DataError("the split gives the target no class. Give it common classes, or private ones.")
    return split


def read_split(path: Path) -> tuple[str, ClassSplit]:
    """A split from a TOML file with the lists common, source_private and target_private; and its name.

    The name is what the file says (`name = "…"`), or what the file is called.
    """
    advice = 'Write three lists of class names: common = ["mug", "pen"], source_private and target_private.'
    try:
        values: dict[str, Any] = tomllib.loads(read_text(path, advice))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not valid TOML ({error}). {advice}") from None
    name = values.pop("name", path.stem)
    strange = [key for key in values if key not in _SPLIT_KEYS]
    if strange:
        raise DataError(f"{path} has {listed(strange)}, which no split has. {advice}")
    for key, names in values.items():
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise DataError(f"{key} in {path} is {names!r}. {advice}")
    return folder_name(name, "the name of the split"), custom_split(*(values.get(key, []) for key in _SPLIT_KEYS))


def folder_name(name: object, what: str) -> str:
    """A name that is also a folder's, or an error."""
    if not isinstance(name, str) or not name.strip() or name.startswith(".") or set(name) & set('/\\:*?"<>|\0\n'):
        raise DataError(f"{what} is {name!r}, and a folder is called by it. Use letters, digits, - and _.")
    return name


@dataclass(frozen=True, eq=False)
class TaskData:
    """The samples of a task, reduced to the classes of its split; labels are the split's names.

    Attributes:
        source: (n, d).
        source_labels: (n,).
        target: (m, d).
        oracle_target_labels: (m,); for the scores alone.
    """

    source: np.ndarray
    source_labels: np.ndarray
    target: np.ndarray
    oracle_target_labels: np.ndarray


def task_data(source: DomainFeatures, target: DomainFeatures, split: ClassSplit) -> TaskData:
    """The samples of both domains whose class the split gives to them.

    Case and punctuation of class names do not count, as long as the split does not tell classes apart by them.
    """
    of_source = _of_classes(source, split.source)
    of_target = _of_classes(target, split.target)
    for name, found in (("source", of_source), ("target", of_target)):
        if not len(found[0]):
            raise DataError(f"the {name} has no sample of the classes that the split gives to it. Compare the split.")
    return TaskData(*of_source, *of_target)


@dataclass(frozen=True)
class TargetDraw:
    """How the samples of a target are drawn from its domain.

    Attributes:
        counts: class and number of samples of each class that the target has, sorted by class.
        seed: of the choice of samples within each class.
    """

    counts: tuple[tuple[str, int], ...]
    seed: int

    @property
    def n_samples(self) -> int:
        """Number of target samples."""
        return sum(count for _, count in self.counts)


def draw_target(data: TaskData, draw: TargetDraw) -> TaskData:
    """Return the task with as many target samples of each class as the draw has, in the order of the domain.

    The first `count` samples of a random permutation of each class are taken, so that draws with the same seed and
    classes are nested.
    """
    rng = np.random.default_rng(draw.seed)
    chosen = []
    for name, count in draw.counts:
        rows = np.flatnonzero(data.oracle_target_labels == name)
        if len(rows) < count:
            raise DataError(
                f"the target has {len(rows)} samples of class {name!r}, and {count} are to be drawn. Give the features "
                "that the scenario was made for."
            )
        chosen.append(rng.permutation(rows)[:count])
    kept = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.intp)
    return TaskData(data.source, data.source_labels, data.target[kept], data.oracle_target_labels[kept])


def check_split(split: ClassSplit, classes: set[str]) -> None:
    """Refuses a split with a class that the data do not have; `classes` are those of both domains.

    One domain may lack a class: of DomainNet's paintings none is a t-shirt.
    """
    known = set(map(plain, classes))
    missing = [name for name in (*split.source, *split.target_private) if plain(name) not in known]
    if missing:
        raise DataError(
            f"the split has classes that neither domain has: {listed(missing)}. The domains have "
            f"{listed(sorted(classes))}. Compare the spelling."
        )


def _of_classes(domain: DomainFeatures, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    published = {plain(name): name for name in names} | {name: name for name in names}
    classes, index = np.unique(domain.labels, return_inverse=True)
    called = [published.get(name, published.get(plain(name), "")) for name in classes.tolist()]
    labels = np.array(called, dtype=str)[index]
    chosen = labels != ""
    return domain.x[chosen], labels[chosen]
