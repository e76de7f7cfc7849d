"""The paper's studies: what each part of UniOT adds, and how much depends on the split and on the hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from uniot.benchmark.jobs import Job, Value
from uniot.benchmark.planning import Options, plan_jobs
from uniot.benchmark.protocol import TaskSet
from uniot.data.published_set import ClassSplit
from uniot.errors import SettingsError
from uniot.methods import uniot_universal, uniot_universal_variants
from uniot.methods.uniot_variants import INFOS

_NUMBERS_OF_CLASSES = 6


@dataclass(frozen=True)
class Point:
    """A place on an axis.

    Attributes:
        value: where it lies.
        setting: what its jobs are called. Where two axes meet, both have the same jobs.
        split: of the classes.
        changed: settings that differ there.
    """

    value: float
    setting: str
    split: ClassSplit
    changed: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Axis:
    """Something that a study varies while all else stays as it is.

    Attributes:
        name: in names of files and of settings.
        label: in figures.
        points: by rising value.
        usual: value that everything else in the benchmark has; None where it follows the data.
        is_logarithmic: whether points lie evenly by their logarithm.
    """

    name: str
    label: str
    points: tuple[Point, ...]
    usual: float | None = None
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Study:
    """Jobs with a question.

    Attributes:
        name: as on the command line.
        methods: that the paper compares in it.
        tasks: that the paper looks at; none for all.
        setting: name of the split that is not varied.
        split: the split.
        axes: what is varied; nothing where the methods are what differs.
        further: settings and splits in which the methods are compared as well.
    """

    name: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    setting: str
    split: ClassSplit
    axes: tuple[Axis, ...] = ()
    further: Mapping[str, ClassSplit] = field(default_factory=dict)

    @property
    def points(self) -> dict[str, Point]:
        """Every point once, by the setting of its jobs."""
        points = [point for axis in self.axes for point in axis.points] or [Point(0, self.setting, self.split)]
        points += [Point(0, setting, split) for setting, split in self.further.items()]
        return {point.setting: point for point in points}


STUDIES = ("ablation", "robustness", "sensitivity", "beyond")
"""Names of the studies: Tables 4 and S3, Fig. 3, Fig. S1b to d with the number of clusters; the last is ours.

The study of several data sets is in `uniot.benchmark.universality`.
"""


def make_study(name: str, tasks: TaskSet, setting: str, split: ClassSplit) -> Study:
    """A study by its name.

    Args:
        name: one of `STUDIES`.
        tasks: of the data set.
        setting: name of the split.
        split: from which the study sets out.
    """
    if name == "ablation":
        return Study(name, ("uniot", *(info.name for info in INFOS)), (), setting, split)
    if name == "robustness":
        # The paper has A2W of Office-31.
        task = "A2W" if "A2W" in tasks.tasks else tasks.tasks[0]
        axes = _numbers_of_classes(setting, split)
        return Study(name, ("uniot", "dance", "dcc", "uan"), (task,), setting, split, axes)
    if name == "sensitivity":
        return Study(name, ("uniot",), (), setting, split, _hyper_parameters(setting, split))
    if name == "beyond":
        methods = ("uniot", uniot_universal.INFO.name, *(info.name for info in uniot_universal_variants.INFOS))
        # It is about being universal: where the split is a published one, so are the others.
        published = {} if tasks.published is None else tasks.splits([])
        further = {other: classes for other, classes in published.items() if other != setting}
        return Study(name, methods, (), setting, split, further=further if setting in published else {})
    raise SettingsError(f"there is no study called {name!r}. Take one of: {', '.join(STUDIES)}, universality.")


def plan_study(
    study: Study,
    tasks: TaskSet,
    features: Path,
    *,
    methods: Sequence[str],
    task_names: Sequence[str],
    n_seeds: int,
    backbone: str,
    options: Options | None = None,
    threads: int = 1,
    incomplete: bool = False,
) -> list[Job]:
    """A job for every seed, point, task and method; arguments are those of `plan_jobs`."""
    options = options or Options()
    jobs = [
        job
        for setting, point in study.points.items()
        for job in plan_jobs(
            tasks,
            features,
            {setting: point.split},
            methods=methods,
            task_names=task_names,
            n_seeds=n_seeds,
            backbone=backbone,
            options=replace(options, shared={**options.shared, **dict(point.changed)}),
            threads=threads,
            incomplete=incomplete,
        )
    ]
    # Seeds come first: a study that is stopped early has seen all points as often.
    return sorted(jobs, key=lambda job: job.seed)


def _numbers_of_classes(setting: str, split: ClassSplit) -> tuple[Axis, ...]:
    """From no private class of the source to all of them, and from one of the target."""
    n_source, n_target = len(split.source_private), len(split.target_private)
    if not n_source or not n_target:
        raise SettingsError(
            f"the robustness study leaves out private classes, and {setting} has {n_source} of the source and "
            f"{n_target} of the target. Give a split that has both."
        )
    return (
        Axis(
            "source-private",
            "private classes of the source",
            tuple(
                _point("source-private", number, n_source, setting, _first_classes(split, n_source=number))
                for number in _evenly(0, n_source)
            ),
            n_source,
        ),
        Axis(
            "target-private",
            "private classes of the target",
            tuple(
                _point("target-private", number, n_target, setting, _first_classes(split, n_target=number))
                for number in _evenly(1, n_target)
            ),
            n_target,
        ),
    )


def _hyper_parameters(setting: str, split: ClassSplit) -> tuple[Axis, ...]:
    def axis(
        name: str, label: str, values: Sequence[float], usual: float | None, *, is_logarithmic: bool = False
    ) -> Axis:
        points = (_point(name, value, usual, setting, split, changed=((name, value),)) for value in values)
        return Axis(name, label, tuple(points), usual, is_logarithmic)

    return (
        axis("similarity_threshold", "γ, rough border of adaptive filling", (0.5, 0.6, 0.7, 0.8, 0.9), 0.7),
        axis("class_mass_momentum", "μ, memory of the class mass", (0.0, 0.3, 0.5, 0.7, 0.9, 1.0), 0.7),
        axis(
            "adaptation_weight", "λ, weight of the target losses", (0.03, 0.1, 0.2, 0.5, 1.0), 0.1, is_logarithmic=True
        ),
        axis("n_clusters", "K, cluster prototypes", (25, 50, 100, 200, 400), None, is_logarithmic=True),
    )


def _point(
    name: str,
    value: float,
    usual: float | None,
    setting: str,
    split: ClassSplit,
    changed: tuple[tuple[str, Value], ...] = (),
) -> Point:
    """A point, whose jobs are those of every other study where its value is the usual one."""
    if value == usual:
        return Point(value, setting, split)
    return Point(value, f"{name}={value:g}", split, changed)


def _first_classes(split: ClassSplit, n_source: int | None = None, n_target: int | None = None) -> ClassSplit:
    """The split with its first private classes alone."""
    return ClassSplit(split.common, split.source_private[:n_source], split.target_private[:n_target])


def _evenly(first: int, last: int) -> list[int]:
    return sorted({round(float(number)) for number in np.linspace(first, last, _NUMBERS_OF_CLASSES)})
