"""The paper's studies: what each part of UniOT adds, and how scores depend on splits and hyper-parameters.

`plan_study` returns the jobs of a study, `study_findings` averages their results, and `write_study` writes and draws
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from uniot.benchmark.averages import ScoreGrid
from uniot.benchmark.jobs import Job, Options, Value, plan_jobs
from uniot.benchmark.reported_scores import paper_tables
from uniot.benchmark.results import SCORES, Result
from uniot.benchmark.tables import method_title
from uniot.benchmark.tasks import TaskSet
from uniot.config import ImageSettings
from uniot.datasets.catalogue import BenchmarkSet, ClassSplit
from uniot.errors import SettingsError
from uniot.io.csv_tables import table_text
from uniot.io.files import write_text
from uniot.methods.registry import METHODS
from uniot.report.figures import drawing, new_figure, save_figure
from uniot.report.map import distinct_colours

_NUMBERS_OF_CLASSES = 6
# Other ways to learn from the target in place of private-class discovery; the first two are in the ablation as well.
_LEARNERS = ("uniot-swav", "uniot-simsiam", "uniot-selflabel", "uniot-deepcluster", "uniot-pica", "uniot-scan")


@dataclass(frozen=True)
class Point:
    """One value on an axis.

    Attributes:
        value: value of the varied quantity.
        setting: name of the setting of its jobs; two axes share the jobs of their common point.
        split: common and private classes.
        changed: settings that differ at this point.
    """

    value: float
    setting: str
    split: ClassSplit
    changed: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Axis:
    """A setting or number of classes that varies, with everything else fixed.

    Attributes:
        name: name in file names and settings.
        label: label in figures.
        points: points by increasing value.
        usual: value in the rest of the benchmark; None if it depends on the data.
        is_logarithmic: whether figures have a logarithmic axis.
    """

    name: str
    label: str
    points: tuple[Point, ...]
    usual: float | None = None
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Study:
    """Methods, tasks and axes of a study.

    Attributes:
        name: name on the command line.
        methods: methods that the paper compares.
        tasks: tasks that the paper uses; empty for all.
        setting: name of the unvaried split.
        split: the unvaried split.
        axes: what is varied; empty if only the methods differ.
        further: further splits by setting, in which the methods are compared too.
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
        """Return every point once, by the setting of its jobs."""
        points = [point for axis in self.axes for point in axis.points] or [Point(0, self.setting, self.split)]
        points += [Point(0, setting, split) for setting, split in self.further.items()]
        return {point.setting: point for point in points}


STUDIES = ("ablation", "robustness", "sensitivity", "target-learners", "beyond")
"""Names of the studies: Tables 4 and S3, Fig. 3, Fig. S1b to d with the number of clusters; the last two are ours.

Those of several data sets are in `uniot.benchmark.universality` and `uniot.benchmark.answers`.
"""


def make_study(name: str, tasks: TaskSet, setting: str, split: ClassSplit) -> Study:
    """Return a study by its name.

    Args:
        name: one of `STUDIES`.
        tasks: tasks of the data set.
        setting: name of the split.
        split: split at the usual values.
    """
    if name == "ablation":
        variants = [variant for variant in _variants("uniot") if variant not in _LEARNERS[2:]]
        return Study(name, ("uniot", *variants), (), setting, split)
    if name == "robustness":
        # The paper has A2W of Office-31.
        task = "A2W" if "A2W" in tasks.tasks else tasks.tasks[0]
        axes = _numbers_of_classes(setting, split)
        return Study(name, ("uniot", "dance", "dcc", "uan"), (task,), setting, split, axes)
    if name == "sensitivity":
        return Study(name, ("uniot",), (), setting, split, _hyper_parameters(setting, split))
    if name == "target-learners":
        return Study(name, ("uniot", "uniot-without-pcd", *_LEARNERS), (), setting, split)
    if name == "beyond":
        methods = ("uniot", "unincm", *_variants("unincm"))
        # The study is about all settings: with a published split, the other published splits are run too.
        published = {} if tasks.published is None else tasks.splits([])
        further = {other: classes for other, classes in published.items() if other != setting}
        return Study(name, methods, (), setting, split, further=further if setting in published else {})
    raise SettingsError(f"there is no study called {name!r}. Take one of: {', '.join(STUDIES)}, universality, answers.")


def _variants(method: str) -> list[str]:
    return [info.name for info in METHODS.values() if info.variant_of == method]


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
    images: ImageSettings | None = None,
    store: Path | None = None,
) -> list[Job]:
    """Return a job for every seed, point, task and method; the arguments are those of `plan_jobs`."""
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
            images=images,
            store=store,
        )
    ]
    # Seeds come first: a study that is stopped early has the same number of seeds at all points.
    return sorted(jobs, key=lambda job: job.seed)


def _numbers_of_classes(setting: str, split: ClassSplit) -> tuple[Axis, ...]:
    """Return the axes of the number of source-private and of target-private classes."""
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
        axis("similarity_threshold", "γ, similarity threshold of adaptive filling", (0.5, 0.6, 0.7, 0.8, 0.9), 0.7),
        axis("class_mass_momentum", "μ, momentum of the class mass", (0.0, 0.3, 0.5, 0.7, 0.9, 1.0), 0.7),
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
    """Return a point; at the usual value its jobs are those of every other study."""
    if value == usual:
        return Point(value, setting, split)
    return Point(value, f"{name}={value:g}", split, changed)


def _first_classes(split: ClassSplit, n_source: int | None = None, n_target: int | None = None) -> ClassSplit:
    """Return the split with only its first private classes."""
    return ClassSplit(split.common, split.source_private[:n_source], split.target_private[:n_target])


def _evenly(first: int, last: int) -> list[int]:
    return sorted({round(float(number)) for number in np.linspace(first, last, _NUMBERS_OF_CLASSES)})


@dataclass(frozen=True)
class Finding:
    """Mean of one score over the tasks, for one method at one point.

    Attributes:
        axis: name of the axis; empty if only the methods differ.
        value: value on the axis.
        setting: setting of the jobs.
        method: name of the method.
        score: name of the score.
        mean: mean in per cent; None if a task has no score.
        deviation: standard deviation of the means per seed; None for fewer than two seeds.
        n_seeds: smallest number of seeds of all tasks.
        n_failed: number of failed jobs.
        paper: the paper's number, if it has one.
    """

    axis: str
    value: float | None
    setting: str
    method: str
    score: str
    mean: float | None
    deviation: float | None
    n_seeds: int
    n_failed: int
    paper: float | None


def study_findings(study: Study, results: Sequence[Result], published: BenchmarkSet | None = None) -> list[Finding]:
    """Return the means over tasks and seeds of every method at every point.

    Args:
        study: the study.
        results: results of its jobs.
        published: the published data set, whose numbers in the paper are added; None for none.
    """
    findings = []
    for axis in study.axes or (None,):
        for value, setting in (
            [(None, name) for name in study.points]
            if axis is None
            else [(point.value, point.setting) for point in axis.points]
        ):
            here = [result for result in results if result.setting == setting]
            tasks = list(dict.fromkeys(result.task for result in here))
            is_papers = axis is None and published is not None and setting == paper_tables().setting
            for score in SCORES:
                grid = ScoreGrid(here, score, tasks, published if is_papers else None)
                for method in dict.fromkeys(result.method for result in here):
                    cell = grid.cells(method)[-1]
                    findings.append(
                        Finding(
                            "" if axis is None else axis.name,
                            value,
                            setting,
                            method,
                            score,
                            cell.mean,
                            cell.deviation,
                            cell.n_seeds,
                            cell.n_failed,
                            cell.reported,
                        )
                    )
    return findings


_DRAWN = ("h", "h3_oracle")


def write_study(out: Path, study: Study, findings: Sequence[Finding]) -> list[Path]:
    """Write STUDY.csv and a figure per axis, or one of the methods if there is no axis, as PDF and SVG.

    Args:
        out: folder of the benchmark.
        study: the study.
        findings: what `study_findings` returned.

    Returns:
        The files that were written.
    """
    table = out / f"{study.name}.csv"
    rows = [asdict(finding) | _rounded(finding) for finding in findings]
    write_text(table, table_text([field.name for field in fields(Finding)], (row.values() for row in rows)))
    written = [table]
    with drawing():
        for axis in study.axes:
            figure = new_figure(2.6)
            _draw_axis(figure, axis, [finding for finding in findings if finding.axis == axis.name])
            written += save_figure(figure, out / "figures", axis.name)
        if not study.axes:
            methods = dict.fromkeys(finding.method for finding in findings)
            figure = new_figure(0.8 + 0.3 * len(methods))
            _draw_methods(figure, list(methods), findings)
            written += save_figure(figure, out / "figures", study.name)
    return written


def _rounded(finding: Finding) -> dict[str, str]:
    numbers = {"mean": finding.mean, "deviation": finding.deviation, "paper": finding.paper}
    return {name: "" if number is None else f"{number:.2f}" for name, number in numbers.items()}


def _draw_axis(figure: Any, axis: Axis, findings: Sequence[Finding]) -> None:
    """Draw a panel per score and a line per method, with a band of one standard deviation over the seeds."""
    methods = list(dict.fromkeys(finding.method for finding in findings))
    colours = distinct_colours(len(methods))
    for place, panel in enumerate(figure.subplots(1, len(_DRAWN), squeeze=False)[0]):
        if axis.usual is not None:
            panel.axvline(axis.usual, color="#9aa3ad", linewidth=0.8, linestyle=":", zorder=0)
        for method, colour in zip(methods, colours, strict=True):
            line = [one for one in findings if (one.method, one.score) == (method, _DRAWN[place])]
            line = [one for one in line if one.mean is not None]
            values, means = [one.value for one in line], [float(one.mean or 0) for one in line]
            spread = [one.deviation or 0.0 for one in line]
            panel.plot(values, means, marker="o", markersize=3, linewidth=1.2, color=colour, label=method_title(method))
            low = [max(0.0, mean - by) for mean, by in zip(means, spread, strict=True)]
            high = [min(100.0, mean + by) for mean, by in zip(means, spread, strict=True)]
            panel.fill_between(values, low, high, color=colour, alpha=0.18, linewidth=0)
        if axis.is_logarithmic:
            panel.set_xscale("log")
            panel.set_xticks([point.value for point in axis.points], [f"{point.value:g}" for point in axis.points])
            panel.minorticks_off()
        panel.set_xlabel(axis.label)
        panel.set_ylabel(f"{SCORES[_DRAWN[place]]}, %")
    if len(methods) > 1:
        _legend(figure, panel)


def _draw_methods(figure: Any, methods: Sequence[str], findings: Sequence[Finding]) -> None:
    """Draw a panel per score or setting, a dot per method, and a mark for the paper's number."""
    settings = list(dict.fromkeys(one.setting for one in findings))
    several = len(settings) > 1
    panels = [(setting, "h") for setting in settings] if several else [(settings[0], score) for score in _DRAWN]
    drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (setting, score) in zip(drawn, panels, strict=True):
        here = [one for one in findings if (one.setting, one.score) == (setting, score) and one.mean is not None]
        bars = {one.method: one for one in here}
        rows = [row for row, method in enumerate(methods) if method in bars]
        shown = [bars[methods[row]] for row in rows]
        panel.errorbar(
            [one.mean for one in shown],
            rows,
            xerr=[one.deviation or 0 for one in shown],
            fmt="o",
            markersize=4,
            color="#0b736e",
            linewidth=0.8,
            label="measured",
        )
        reported = [(one.paper, row) for one, row in zip(shown, rows, strict=True) if one.paper is not None]
        if reported:
            marks = {"marker": "|", "s": 60, "color": "#c98a1b", "label": "paper (fine-tuned)", "zorder": 3}
            panel.scatter(*zip(*reported, strict=True), **marks)
        panel.set_yticks(range(len(methods)), [method_title(method) for method in methods])
        panel.set_xlabel(f"{setting}, %" if several else f"{SCORES[score]}, %")
        panel.grid(axis="y", color="#e3e8ea", linewidth=0.6)
    panel.invert_yaxis()
    _legend(figure, panel)


def _legend(figure: Any, panel: Any) -> None:
    """Draw the legend outside the panels, so that it covers nothing."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
