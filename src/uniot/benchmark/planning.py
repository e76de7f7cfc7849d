"""From what is to be compared to the jobs that do it; whatever can be wrong is told before the first one runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uniot.benchmark.features import DomainFacts, find_domain, read_facts
from uniot.benchmark.jobs import Job, Value
from uniot.benchmark.protocol import TaskSet, check_split, folder_name
from uniot.data.published_set import ClassSplit
from uniot.data.text import read_text
from uniot.errors import SettingsError
from uniot.methods import METHODS, method_info
from uniot.settings import Settings
from uniot.words import listed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Decided by the protocol: the jobs differ in them, or nobody is to be told.
_OF_THE_PROTOCOL = frozenset({"method", "method_options", "seed", "network", "n_private_classes", "private_prior"})
# Else methods would not see the same batches.
_SAME_FOR_ALL = frozenset({"steps", "batch_size", "input_norm"})


@dataclass(frozen=True)
class Options:
    """Settings that differ from their defaults.

    Attributes:
        shared: for all methods.
        of_method: for one method: settings, and hyper-parameters of the method alone.
    """

    shared: Mapping[str, Value] = field(default_factory=dict)
    of_method: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Options:
        """From a TOML file: what is outside a table is for all methods, a table is for the method of its name."""
        try:
            values: dict[str, Any] = tomllib.loads(read_text(path, "Write settings as TOML."))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not valid TOML ({error}). Correct it.") from None
        tables = {name: value for name, value in values.items() if isinstance(value, dict)}
        unknown = [name for name in tables if name not in METHODS]
        if unknown:
            raise SettingsError(f"{path} has a table [{unknown[0]}], and no method is called so. Known: {_methods()}.")
        return cls({name: value for name, value in values.items() if name not in tables}, tables)

    def of(self, method: str) -> tuple[dict[str, Value], dict[str, Value]]:
        """Settings of a job, and options of its method."""
        own = self.of_method.get(method, {})
        _refuse(self.shared, _OF_THE_PROTOCOL, "the protocol decides it. Leave it out")
        _refuse(own, _OF_THE_PROTOCOL, "the protocol decides it. Leave it out")
        _refuse(own, _SAME_FOR_ALL, "it is the same for all methods. Give it outside the tables")
        settings = {name: value for name, value in own.items() if name in Settings.model_fields}
        options = {name: value for name, value in own.items() if name not in settings}
        return {**self.shared, **settings}, options


def plan_jobs(
    tasks: TaskSet,
    features: Path,
    splits: Mapping[str, ClassSplit],
    *,
    methods: Sequence[str],
    task_names: Sequence[str] = (),
    n_seeds: int = 3,
    backbone: str,
    options: Options | None = None,
    threads: int = 1,
    incomplete: bool = False,
) -> list[Job]:
    """A job for every seed, setting, task and method.

    Seeds come first, so that a benchmark that is stopped early has compared all methods on as much.

    Args:
        tasks: domains and tasks.
        features: file or folder that holds the embeddings of the domains.
        splits: name of each setting to its split.
        methods: names as `uniot methods` lists them.
        task_names: which tasks; all if none is named.
        n_seeds: seeds are 0, 1, …, `n_seeds` - 1.
        backbone: what made the features, for the tables.
        options: settings that differ from their defaults.
        threads: that a job may use.
        incomplete: whether the data may lack classes of a split.
    """
    if n_seeds < 1:
        raise SettingsError(f"the number of seeds is {n_seeds}. Give one or more.")
    chosen = check_methods(methods, options or Options())
    pairs = {folder_name(task, "a task"): tasks.pair(task) for task in task_names or tasks.tasks}
    domains = _domains(tasks, features, {letter for pair in pairs.values() for letter in pair})
    if not incomplete:
        for split in splits.values():
            for source, target in pairs.values():
                check_split(split, {*domains[source].classes, *domains[target].classes})
    return [
        Job(
            method=method,
            setting=setting,
            task=task,
            seed=seed,
            split=split,
            source=domains[source].name,
            target=domains[target].name,
            source_digest=domains[source].digest,
            target_digest=domains[target].digest,
            features=str(features.absolute()),
            backbone=backbone,
            settings=settings,
            options=own,
            threads=threads,
        )
        for seed in range(n_seeds)
        for setting, split in splits.items()
        for task, (source, target) in pairs.items()
        for method, (settings, own) in chosen.items()
    ]


def check_methods(methods: Sequence[str], options: Options) -> dict[str, tuple[dict[str, Value], dict[str, Value]]]:
    """Settings and options of each method; what is wrong with a name or a value is an error."""
    if not methods:
        raise SettingsError(f"no method is named. Known are {_methods()}.")
    chosen = {}
    for method in methods:
        info = method_info(method)
        settings, own = options.of(method)
        Settings.checked(**settings)
        info.options.checked(**own)
        chosen[method] = settings, own
    return chosen


def _domains(tasks: TaskSet, features: Path, letters: set[str]) -> dict[str, DomainFacts]:
    names = {letter: find_domain(features, tasks.domains[letter], letter) for letter in sorted(letters)}
    return dict(zip(names, read_facts(features, names.values()), strict=True))


def _refuse(values: Mapping[str, Value], names: frozenset[str], why: str) -> None:
    for name in values:
        if name in names:
            raise SettingsError(f"{name} cannot be chosen here: {why}.")


def _methods() -> str:
    return listed(METHODS)
