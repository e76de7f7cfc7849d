"""The domains of a data set and the tasks between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import get_args

from uniot.datasets.catalogue import BenchmarkSet, ClassSplit, Setting, benchmark_set
from uniot.errors import DataError
from uniot.io.text import listed


@dataclass(frozen=True)
class TaskSet:
    """Domains and tasks of a published data set, or of a user's data set.

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


def folder_name(name: object, what: str) -> str:
    """Return the name if it can also be the name of a folder; raise DataError otherwise."""
    if not isinstance(name, str) or not name.strip() or name.startswith(".") or set(name) & set('/\\:*?"<>|\0\n'):
        raise DataError(f"{what} is {name!r}, which cannot be the name of a folder. Use letters, digits, - and _.")
    return name
