"""Define tasks between domains, the split of the classes, and the numbers that the paper reports."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

from uniot.datasets.catalogue import BenchmarkSet, ClassSplit, Setting, benchmark_set
from uniot.datasets.unpacked import plain
from uniot.errors import DataError
from uniot.io.text import listed, read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
from functools import cache
from importlib.resources import files

_SPLIT_KEYS = ("common", "source_private", "target_private")


@dataclass(frozen=True)
class TaskSet:
    """Lists the domains and tasks of a published data set, or of a user's data set.

    Attributes:
        name: name in commands and result files.
        title: name in tables.
        domains: full name of each domain by its name in tasks, such as the A of A2W.
        tasks: names of the tasks, such as A2W, in the order of the tables.
        published: the published data set; None for a user's data set.
    """

    name: str
    title: str
    domains: Mapping[str, str]
    tasks: tuple[str, ...]
    published: BenchmarkSet | None = None

    @classmethod
    def of_published(cls, name: str) -> TaskSet:
        """Return the tasks of a published data set by its name."""
        known = benchmark_set(name)
        domains = {domain.letter: domain.folder for domain in known.domains}
        return cls(known.name, known.title, domains, known.tasks, known)

    @classmethod
    def of_domains(cls, name: str, domains: Iterable[str]) -> TaskSet:
        """Return the tasks of a user's data set: one per ordered pair of domains."""
        names = {domain: domain for domain in domains}
        if len(names) < 2:
            raise DataError(
                f"{name} has {len(names)} domains ({listed(names)}), and a task needs a source and a target. "
                "Give two domains or more."
            )
        return cls(name, name, names, tuple(f"{source}2{target}" for source, target in permutations(names, 2)))

    def pair(self, task: str) -> tuple[str, str]:
        """Return source and target of a task, by the letters or names that tasks use."""
        if task not in self.tasks:
            raise DataError(f"{self.title} has no task {task!r}. Take one of: {listed(self.tasks)}.")
        # A domain may have a 2 in its name.
        return next(pair for pair in permutations(self.domains, 2) if "2".join(pair) == task)

    def splits(self, settings: Sequence[str]) -> dict[str, ClassSplit]:
        """Return the published splits by name; all of them if `settings` is empty."""
        if self.published is None:
            raise DataError(
                f"{self.title} is not a published data set and has no published split. Give one with "
                "--split FILE, or with --common, --source-private and --target-private."
            )
        names: dict[str, Setting] = {name: name for name in get_args(Setting)}
        for setting in settings:
            if setting not in names:
                raise DataError(f"there is no setting called {setting!r}. Take one of: {', '.join(names)}.")
        asked = [names[setting] for setting in settings] or list(self.published.splits)
        return {setting: self.published.split(setting) for setting in asked}


def custom_split(common: Sequence[str], source_private: Sequence[str], target_private: Sequence[str]) -> ClassSplit:
    """Return a split; raise DataError if a class is in it twice or a domain has too few classes."""
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
    """Return the name and the split of a TOML file with three lists of class names.

    The name is the entry `name = "…"`, or else the name of the file.
    """
    advice = 'Write three lists of class names: common = ["mug", "pen"], source_private and target_private.'
    try:
        values: dict[str, Any] = tomllib.loads(read_text(path, advice))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not valid TOML ({error}). {advice}") from None
    name = values.pop("name", path.stem)
    unexpected = [key for key in values if key not in _SPLIT_KEYS]
    if unexpected:
        raise DataError(f"{path} has the unexpected keys {listed(unexpected)}. {advice}")
    for key, names in values.items():
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise DataError(f"{key} in {path} is {names!r}. {advice}")
    return folder_name(name, "the name of the split"), custom_split(*(values.get(key, []) for key in _SPLIT_KEYS))


def folder_name(name: object, what: str) -> str:
    """Return the name if it can also be the name of a folder; raise DataError otherwise."""
    if not isinstance(name, str) or not name.strip() or name.startswith(".") or set(name) & set('/\\:*?"<>|\0\n'):
        raise DataError(f"{what} is {name!r}, which cannot be the name of a folder. Use letters, digits, - and _.")
    return name


@dataclass(frozen=True)
class TargetDraw:
    """Gives the number of target samples per class, and the seed of their choice.

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


def check_split(split: ClassSplit, classes: set[str]) -> None:
    """Raise DataError if the split has a class that is in neither domain.

    A single domain may lack a class: no painting of DomainNet is a t-shirt.

    Args:
        split: common and private classes.
        classes: class names of both domains.
    """
    known = set(map(plain, classes))
    missing = [name for name in (*split.source, *split.target_private) if plain(name) not in known]
    if missing:
        raise DataError(
            f"the split has classes that neither domain has: {listed(missing)}. The domains have "
            f"{listed(sorted(classes))}. Compare the spelling; if they are missing, --incomplete makes a trial without "
            "them."
        )


AVERAGE = "average"
"""Name of the column with the mean over all tasks."""


@dataclass(frozen=True)
class PaperPart:
    """Holds one score on one data set from a table of the paper.

    Attributes:
        table: number of the table, such as "1" or "S2".
        dataset: name as in `uniot.datasets.catalogue`.
        score: "h" or "h3_oracle".
        columns: tasks, and `AVERAGE` if the table has it.
        rows: numbers per column by method, in per cent.
        deviations: standard deviations per column by method; empty if the table has none.
    """

    table: str
    dataset: str
    score: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    deviations: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class PaperTables:
    """Holds Tables 1 to 4 and S1 to S3 of the paper.

    Attributes:
        setting: setting of all numbers, as in `uniot.datasets.catalogue`.
        backbone: backbone of all numbers.
        steps: training steps of the paper's method.
        labels: titles of the methods in the tables.
        parts: parts in the order of the paper; if two report the same number, the first one counts.
    """

    setting: str
    backbone: str
    steps: int
    labels: Mapping[str, str]
    parts: tuple[PaperPart, ...]

    def reported(self, dataset: str, method: str, task: str, score: str) -> float | None:
        """Return a number of the tables in per cent, or None if they do not have it.

        Args:
            dataset: such as "office31".
            method: such as "uniot"; "source-only" is the row that the tables call ResNet.
            task: such as "A2W", or `AVERAGE`.
            score: "h", or "h3_oracle", which the paper calls H³; it reports no other.
        """
        return self._find("rows", dataset, method, task, score)

    def reported_deviation(self, dataset: str, method: str, task: str, score: str) -> float | None:
        """Return the standard deviation over three runs of a reported number, or None if the tables do not have it."""
        return self._find("deviations", dataset, method, task, score)

    def _find(self, kind: str, dataset: str, method: str, task: str, score: str) -> float | None:
        for part in self.parts:
            numbers: Mapping[str, tuple[float, ...]] = getattr(part, kind)
            if (part.dataset, part.score) == (dataset, score) and method in numbers and task in part.columns:
                return numbers[method][part.columns.index(task)]
        return None


@cache
def paper_tables() -> PaperTables:
    """Return the tables of the paper, which come with the install."""
    text = files("uniot.benchmark").joinpath("paper_tables.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return PaperTables(labels=content["labels"], parts=tuple(map(_part, content["parts"])), **content["protocol"])


def _part(content: Mapping[str, Any]) -> PaperPart:
    return PaperPart(
        table=content["table"],
        dataset=content["dataset"],
        score=content["score"],
        columns=tuple(content["columns"]),
        rows=_rows(content["rows"]),
        deviations=_rows(content.get("deviations", {})),
    )


def _rows(content: Mapping[str, list[float]]) -> dict[str, tuple[float, ...]]:
    return {method: tuple(map(float, numbers)) for method, numbers in content.items()}
