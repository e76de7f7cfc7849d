"""Jobs of a benchmark, each with everything that determines its result.

Every error in names, settings or splits is raised here, before the first job runs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uniot.config import ImageSettings, Settings
from uniot.datasets.catalogue import ClassSplit
from uniot.errors import DataError, SettingsError
from uniot.io.files import write_text
from uniot.io.text import listed, read_text
from uniot.methods.registry import METHODS, method_info

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
from uniot.benchmark.features import DomainFacts, find_domain, read_facts
from uniot.benchmark.image_lists import list_facts
from uniot.benchmark.scenarios import TargetDraw
from uniot.benchmark.splits import check_split
from uniot.benchmark.tasks import TaskSet, folder_name

# Part of every digest: results of another version of the protocol are computed again.
PROTOCOL = "uniot-benchmark-1"
# Fields that do not change the result: names for tables, the place of the features, and (up to rounding) the threads.
_LEFT_OUT = frozenset({"backbone", "dataset", "features", "threads", "store"})
Value = bool | int | float | str


@dataclass(frozen=True)
class Job:
    """One fit of a method to a task with a seed, and everything that determines its result.

    Attributes:
        method: name as `uniot methods` lists it.
        setting: name of the split.
        task: such as A2W.
        seed: random seed: 0, 1, ….
        split: common and private classes.
        source: name of the source domain in the features.
        target: name of the target domain in the features.
        source_digest: digest of its embeddings and labels.
        target_digest: digest of its embeddings and labels.
        features: file or folder with both domains; moving it does not change the result.
        images: settings of the network if a part of it is trained; then `features` is a folder of image lists. Empty
            if the features are embeddings.
        store: folder that keeps the outputs of the network's frozen part; empty for the user's.
        backbone: network that made the features, for the tables.
        settings: settings that differ from their defaults.
        options: hyper-parameters of the method.
        threads: number of threads of torch and NumPy.
        draw: number of target samples per class; None for all samples of the target's classes.
        dataset: name of the data set in a benchmark of several; empty otherwise.
        oracle_selection: number of steps at which the model is scored with target labels, for a column of its own.
        oracle_answers: whether a person is simulated who answers the model's questions with target labels.
    """

    method: str
    setting: str
    task: str
    seed: int
    split: ClassSplit
    source: str
    target: str
    source_digest: str
    target_digest: str
    features: str
    backbone: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    threads: int = 1
    draw: TargetDraw | None = None
    dataset: str = ""
    oracle_selection: int = 0
    oracle_answers: bool = False
    images: Mapping[str, Value] = field(default_factory=dict)
    store: str = ""

    def __str__(self) -> str:
        of_set = f"{self.dataset}, " if self.dataset else ""
        return f"{of_set}{self.method}, {self.setting}, {self.task}, seed {self.seed}"

    def folder(self, out: Path) -> Path:
        """Return the job's folder below the folder of a benchmark."""
        return out / "jobs" / self.dataset / self.method / self.setting / self.task / str(self.seed)

    def full_settings(self) -> Settings:
        """Return every setting with its value; raise SettingsError for a wrong one."""
        return Settings.checked(**self.settings, method=self.method, method_options=self.options, seed=self.seed)

    def image_settings(self) -> ImageSettings | None:
        """Return the settings of the network that is trained; None if the features are embeddings."""
        return ImageSettings.checked(**self.images) if self.images else None

    @property
    def digest(self) -> str:
        """Return a SHA-256 digest of everything that determines the result, defaults included."""
        values = {name: value for name, value in asdict(self).items() if name not in _LEFT_OUT}
        images = self.image_settings()
        # Jobs on embeddings keep the digests of earlier versions.
        values.pop("images")
        if images is not None:
            values["images"] = images.model_dump(exclude={"weights"})
        settings = self.full_settings()
        values["settings"] = settings.model_dump(exclude=settings.outside_fingerprint)
        values["options"] = method_info(self.method).options.checked(**self.options).model_dump()
        return hashlib.sha256(f"{PROTOCOL} {json.dumps(values, sort_keys=True)}".encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write job.json."""
        write_text(folder / "job.json", json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Job:
        """Return the job of a folder, from its job.json."""
        try:
            values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
            split = ClassSplit(**{name: tuple(part) for name, part in values.pop("split").items()})
            draw = values.pop("draw", None)
            if draw is not None:
                draw = TargetDraw(tuple((name, count) for name, count in draw["counts"]), draw["seed"])
            return cls(split=split, draw=draw, **values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{folder / 'job.json'} cannot be read as a job ({error}). Run `uniot benchmark` again."
            ) from None


# Set by the protocol: they differ between jobs, or would give a method knowledge of the target.
_OF_THE_PROTOCOL = frozenset({"method", "method_options", "seed", "network", "n_private_classes", "private_prior"})
# All methods must get the same batches.
_SAME_FOR_ALL = frozenset({"steps", "batch_size", "input_norm"})


@dataclass(frozen=True)
class Options:
    """Settings that differ from their defaults.

    Attributes:
        shared: settings for all methods.
        of_method: settings and hyper-parameters by method.
        of_dataset: hyper-parameters of UniOT and its variants for the data set; the others take precedence.
    """

    shared: Mapping[str, Value] = field(default_factory=dict)
    of_method: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    of_dataset: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Options:
        """Return the options of a TOML file: values outside tables are for all methods, a table is for its method."""
        try:
            values: dict[str, Any] = tomllib.loads(read_text(path, "Write settings as TOML."))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not valid TOML ({error}). Correct it.") from None
        tables = {name: value for name, value in values.items() if isinstance(value, dict)}
        unknown = [name for name in tables if name not in METHODS]
        if unknown:
            raise SettingsError(
                f"{path} has a table [{unknown[0]}], which is not the name of a method. Methods are {listed(METHODS)}."
            )
        return cls({name: value for name, value in values.items() if name not in tables}, tables)

    def of(self, method: str) -> tuple[dict[str, Value], dict[str, Value]]:
        """Return the settings of a job and the options of its method."""
        own = self.of_method.get(method, {})
        _check_allowed(self.shared, _OF_THE_PROTOCOL, "the protocol sets it. Leave it out")
        _check_allowed(own, _OF_THE_PROTOCOL, "the protocol sets it. Leave it out")
        _check_allowed(own, _SAME_FOR_ALL, "it is the same for all methods. Give it outside the tables")
        known = {*Settings.model_fields, *method_info(method).options.model_fields}
        for name in self.shared:
            if name not in known and not any(name in info.options.model_fields for info in METHODS.values()):
                raise SettingsError(f"there is no setting called {name!r}, and no method has such a hyper-parameter.")
        of_dataset = self.of_dataset if "class_mass_momentum" in known else {}
        given = {**of_dataset, **{name: value for name, value in self.shared.items() if name in known}, **own}
        settings = {name: value for name, value in given.items() if name in Settings.model_fields}
        return settings, {name: value for name, value in given.items() if name not in settings}


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
    oracle_selection: int = 0,
    images: ImageSettings | None = None,
    store: Path | None = None,
) -> list[Job]:
    """Return a job for every seed, setting, task and method.

    Seeds come first: a benchmark that is stopped early has compared all methods on the same tasks.

    Args:
        tasks: domains and tasks.
        features: file or folder with the embeddings of the domains, or with their image lists if `images` is given.
        splits: splits by name of the setting.
        methods: names as `uniot methods` lists them.
        task_names: tasks to run; all if empty.
        n_seeds: number of seeds: 0, 1, …, `n_seeds` - 1.
        backbone: network that made the features, for the tables.
        options: settings that differ from their defaults.
        threads: number of threads per job.
        incomplete: whether the data may lack classes of a split.
        oracle_selection: number of steps at which the model is scored with target labels; the largest score has a
            column of its own and enters no table.
        images: settings of a network of which a part is trained; None for embeddings.
        store: folder that keeps the outputs of its frozen part; None for the user's.

    Returns:
        The jobs, in the order in which they are run.
    """
    if n_seeds < 1:
        raise SettingsError(f"the number of seeds is {n_seeds}. Give one or more.")
    chosen = check_methods(methods, options or Options())
    pairs = {folder_name(task, "a task"): tasks.pair(task) for task in task_names or tasks.tasks}
    letters = {letter for pair in pairs.values() for letter in pair}
    domains = _domains(tasks, features, letters) if images is None else _listed_domains(tasks, features, letters)
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
            oracle_selection=oracle_selection,
            images={} if images is None else images.model_dump(exclude_none=True),
            store="" if store is None else str(store.absolute()),
        )
        for seed in range(n_seeds)
        for setting, split in splits.items()
        for task, (source, target) in pairs.items()
        for method, (settings, own) in chosen.items()
    ]


def check_methods(methods: Sequence[str], options: Options) -> dict[str, tuple[dict[str, Value], dict[str, Value]]]:
    """Return settings and options of each method; raise SettingsError for a wrong name or value."""
    if not methods:
        raise SettingsError(f"no method is named. Choose from {listed(METHODS)}.")
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


def _listed_domains(tasks: TaskSet, folder: Path, letters: set[str]) -> dict[str, DomainFacts]:
    return {letter: list_facts(folder, tasks.domains[letter]) for letter in sorted(letters)}


def _check_allowed(values: Mapping[str, Value], forbidden: frozenset[str], why: str) -> None:
    for name in values:
        if name in forbidden:
            raise SettingsError(f"{name} cannot be chosen here: {why}.")
