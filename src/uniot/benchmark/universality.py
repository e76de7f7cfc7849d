"""The study `universality`: how robust a method is to the class split and the target, on several data sets.

Defaults are chosen on one list of seeds and checked on another, on which nothing is ever chosen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniot.benchmark.features import DataSet, DomainFacts, features_backbone, shared_class_sizes
from uniot.benchmark.jobs import Job, Options, check_methods
from uniot.benchmark.scenarios import check_scenarios, family_of, make_scenarios, scenario_order
from uniot.benchmark.table_formats import markdown_row
from uniot.benchmark.tables import method_title
from uniot.errors import DataError, SettingsError
from uniot.io.csv_tables import table_text
from uniot.io.files import write_text
from uniot.io.text import listed
from uniot.report.figures import drawing, new_figure, save_figure

if TYPE_CHECKING:
    from uniot.benchmark.results import Result

UNIVERSALITY = "universality"
"""Name of the study on the command line and of its files."""
PURPOSES: Mapping[str, tuple[int, ...]] = {
    "choice": (300, 301, 302, 303, 304, 305),
    "check": (900, 901, 902, 903, 904, 905),
}
"""Seeds of the splits: defaults may be chosen by results on the first, and are reported on the second."""
DEFAULT_METHODS = ("unincm",)
"""Methods that the study runs unless others are named."""
ALL = "all"
"""Family of a row over all scenarios, and data set of a row over all data sets."""


def plan_universality(
    data_sets: Sequence[DataSet],
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    purpose: str = "choice",
    n_splits: int = 3,
    task_names: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    options: Options | None = None,
    threads: int = 1,
    quick: bool = False,
) -> list[Job]:
    """Return a job for every split, data set, pair of domains, scenario and method.

    Splits come first: a study that is stopped early has the same number of splits of all data sets.

    Args:
        data_sets: the data sets.
        methods: names as `uniot methods` lists them.
        purpose: one of `PURPOSES`: which seeds.
        n_splits: number of seeds, from the first on.
        task_names: which pairs, such as `amazon2webcam`; all if none is named.
        scenarios: names of the scenarios, such as `open-partial` or `private-prior=0.9`; all if none is named.
        options: settings that differ from their defaults.
        threads: number of threads of a job.
        quick: use one split and two pairs of each data set.

    Returns:
        The jobs, in the order in which they are run.
    """
    check_scenarios(scenarios)
    if purpose not in PURPOSES:
        raise SettingsError(f"there is no purpose called {purpose!r}. Take one of: {', '.join(PURPOSES)}.")
    if not 1 <= n_splits <= len(PURPOSES[purpose]):
        raise SettingsError(f"the number of splits is {n_splits}. Give 1 to {len(PURPOSES[purpose])}.")
    chosen = check_methods(methods, options or Options())
    seeds = PURPOSES[purpose][: 1 if quick else n_splits]
    pairs = {one.name: _chosen_pairs(one, task_names, quick=quick) for one in data_sets}
    if not any(pairs.values()):
        known = [task for one in data_sets for task in one.pairs()]
        raise DataError(
            f"no data set has a task called {listed(task_names)}. Take some of: {listed(known)}."
            if task_names and known
            else "no two domains have two classes in common. Give domains with the same classes."
        )
    return [
        Job(
            method=method,
            setting=scenario.name,
            task=task,
            seed=seed,
            split=scenario.split,
            source=source.name,
            target=target.name,
            source_digest=source.digest,
            target_digest=target.digest,
            features=str(data_set.features.absolute()),
            backbone=features_backbone(data_set.features),
            settings=settings,
            options=own,
            threads=threads,
            draw=scenario.draw,
            dataset=data_set.name,
        )
        for seed in seeds
        for data_set in data_sets
        for task, (source, target) in pairs[data_set.name].items()
        for scenario in make_scenarios(
            source.name, target.name, source.class_sizes.keys(), shared_class_sizes(source, target), seed
        )
        if not scenarios or scenario.name in scenarios
        for method, (settings, own) in chosen.items()
    ]


def _chosen_pairs(
    data_set: DataSet, task_names: Sequence[str], *, quick: bool
) -> dict[str, tuple[DomainFacts, DomainFacts]]:
    pairs = {task: pair for task, pair in data_set.pairs().items() if not task_names or task in task_names}
    if not quick or not pairs:
        return pairs
    first = next(iter(pairs.values()))
    # Another source and another target than those of the first pair.
    others = {task: pair for task, pair in pairs.items() if all(a is not b for a, b in zip(pair, first, strict=True))}
    return dict(list(pairs.items())[:1] + list(others.items())[-1:])


@dataclass(frozen=True)
class ScenarioScore:
    """Scores of one job in per cent; None if the job failed or the score is undefined.

    Attributes:
        dataset: name of the data set.
        task: source and target.
        family: family of the scenario.
        scenario: name of the scenario.
        split: seed of the split, of the samples and of the method.
        method: name of the method.
        n_source_classes: number of source classes.
        n_target: number of target samples.
        score: H-score; accuracy on common classes if nothing is private; recall of unknown if nothing is common.
        oracle: score of the best threshold on the same confidence, with the same nearest classes.
        nothing_rejected: accuracy on common classes if no sample is rejected.
        regret: oracle − score.
        n_private_found: number of groups of the rejected samples.
        n_private_true: number of private classes with a target sample.
        estimated_accuracy: estimate of `true_accuracy` by the model, without labels.
        true_accuracy: accuracy over target samples; "unknown" is correct for private ones.
        warned: whether the model warned that its predictions are unreliable.
        seconds: duration of the fit.
        failure: reason of the failure; empty otherwise.
    """

    dataset: str
    task: str
    family: str
    scenario: str
    split: int
    method: str
    n_source_classes: int
    n_target: int
    score: float | None
    oracle: float | None
    nothing_rejected: float | None
    regret: float | None
    n_private_found: int | None
    n_private_true: int | None
    estimated_accuracy: float | None
    true_accuracy: float | None
    warned: bool | None
    seconds: float
    failure: str


def scenario_scores(jobs: Sequence[Job], results: Sequence[Result]) -> list[ScenarioScore]:
    """Return the scores of each job, in the order of jobs and results."""
    return [_scenario_score(job, result) for job, result in zip(jobs, results, strict=True)]


def _scenario_score(job: Job, result: Result) -> ScenarioScore:
    score, oracle = _per_cent(result.h), _per_cent(result.h_oracle)
    return ScenarioScore(
        dataset=job.dataset,
        task=job.task,
        family=family_of(job.setting),
        scenario=job.setting,
        split=job.seed,
        method=job.method,
        n_source_classes=len(job.split.source),
        n_target=0 if job.draw is None else job.draw.n_samples,
        score=score,
        oracle=oracle,
        nothing_rejected=_per_cent(result.nothing_rejected),
        regret=None if score is None or oracle is None else oracle - score,
        n_private_found=result.n_groups,
        n_private_true=result.n_private_true,
        estimated_accuracy=_per_cent(result.estimated_accuracy),
        true_accuracy=_per_cent(result.true_accuracy),
        warned=result.warned,
        seconds=result.seconds,
        failure=result.failure,
    )


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


@dataclass(frozen=True)
class FamilySummary:
    """Mean scores of one method over one family of scenarios of one data set.

    Attributes:
        method: name of the method.
        dataset: name of the data set, or `ALL`.
        family: family of the scenarios, or `ALL`.
        n_jobs: number of jobs with a score.
        n_failed: number of failed jobs.
        score: mean score over the jobs in per cent; None if all failed.
        oracle: mean oracle score in per cent.
        regret: mean regret in points.
        worst_regret: largest regret of a job in points.
        worst: scenario and task with the largest regret.
        n_below_half: number of jobs whose score is less than half of the oracle.
    """

    method: str
    dataset: str
    family: str
    n_jobs: int
    n_failed: int
    score: float | None
    oracle: float | None
    regret: float | None
    worst_regret: float | None
    worst: str
    n_below_half: int


def summarise(scores: Sequence[ScenarioScore]) -> list[FamilySummary]:
    """Return a summary per method, data set and family, then per data set, and last over all data sets."""
    found = []
    for method in distinct(scores, lambda one: one.method):
        of_method = [one for one in scores if one.method == method]
        of_sets = []
        for dataset in distinct(of_method, lambda one: one.dataset):
            of_set = [one for one in of_method if one.dataset == dataset]
            found += [
                _summary(method, dataset, family, [one for one in of_set if one.family == family])
                for family in distinct(of_set, lambda one: one.family)
            ]
            of_sets.append(_summary(method, dataset, ALL, of_set))
            found.append(of_sets[-1])
        if len(of_sets) > 1:
            found.append(_over_sets(method, of_sets))
    return found


def _summary(method: str, dataset: str, family: str, scores: Sequence[ScenarioScore]) -> FamilySummary:
    known = [
        (one, one.score, one.oracle, one.regret)
        for one in scores
        if one.score is not None and one.oracle is not None and one.regret is not None
    ]
    worst = max(known, key=lambda row: row[3], default=None)
    return FamilySummary(
        method=method,
        dataset=dataset,
        family=family,
        n_jobs=len(known),
        n_failed=len(scores) - len(known),
        score=_mean(score for _, score, _, _ in known),
        oracle=_mean(oracle for _, _, oracle, _ in known),
        regret=_mean(regret for _, _, _, regret in known),
        worst_regret=None if worst is None else worst[3],
        worst="" if worst is None else f"{worst[0].scenario}, {worst[0].task}",
        n_below_half=sum(score < oracle / 2 for _, score, oracle, _ in known),
    )


def _over_sets(method: str, of_sets: Sequence[FamilySummary]) -> FamilySummary:
    """Return the mean over data sets, each with the same weight."""
    worst = max(of_sets, key=lambda one: -1.0 if one.worst_regret is None else one.worst_regret)
    return FamilySummary(
        method=method,
        dataset=ALL,
        family=ALL,
        n_jobs=sum(one.n_jobs for one in of_sets),
        n_failed=sum(one.n_failed for one in of_sets),
        score=_mean(one.score for one in of_sets),
        oracle=_mean(one.oracle for one in of_sets),
        regret=_mean(one.regret for one in of_sets),
        worst_regret=worst.worst_regret,
        worst=f"{worst.dataset}, {worst.worst}" if worst.worst else "",
        n_below_half=sum(one.n_below_half for one in of_sets),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def distinct(scores: Sequence[ScenarioScore], of: Callable[[ScenarioScore], str]) -> list[str]:
    """Return each value of `of` once, in the order of the scores."""
    return list(dict.fromkeys(of(one) for one in scores))


# Regret of the darkest colour, in points.
_DARKEST = 50


def write_universality(out: Path, scores: Sequence[ScenarioScore], *, purpose: str) -> list[Path]:
    """Write universality.csv, universality.md, and the heat map as PDF and SVG to figures/.

    Args:
        out: folder of the benchmark.
        scores: scores of every job.
        purpose: purpose of the splits, for the caption.

    Returns:
        The files that were written.
    """
    table, text = out / f"{UNIVERSALITY}.csv", out / f"{UNIVERSALITY}.md"
    write_text(table, _csv(scores))
    write_text(text, summaries_to_markdown(scores, purpose=purpose))
    written = [table, text]
    with drawing():
        figure = _heat_map(scores)
        if figure is not None:
            written += save_figure(figure, out / "figures", UNIVERSALITY)
    return written


def _heat_map(scores: Sequence[ScenarioScore]) -> Any:
    """Draw the mean and the worst regret per scenario and data set, in a panel per method.

    Returns:
        The figure; None if every job failed.
    """
    regrets: dict[tuple[str, str, str], list[float]] = {}
    for one in scores:
        if one.regret is not None:
            regrets.setdefault((one.method, one.scenario, one.dataset), []).append(one.regret)
    if not regrets:
        return None
    methods, datasets = distinct(scores, lambda one: one.method), distinct(scores, lambda one: one.dataset)
    scenarios = sorted(distinct(scores, lambda one: one.scenario), key=scenario_order)
    figure = new_figure(1.2 + 0.17 * len(scenarios))
    panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    panels[0].invert_yaxis()
    for panel, method in zip(panels, methods, strict=True):
        cells = [[regrets.get((method, scenario, dataset), []) for dataset in datasets] for scenario in scenarios]
        means = [[statistics.fmean(cell) if cell else math.nan for cell in row] for row in cells]
        colours = panel.pcolormesh(means, vmin=0, vmax=_DARKEST, cmap="YlOrBr", edgecolors="white", linewidth=0.5)
        for y, row in enumerate(cells):
            for x, cell in enumerate(row):
                if cell:
                    colour = "white" if means[y][x] > 0.6 * _DARKEST else "black"
                    text = f"{means[y][x]:.0f} ({max(cell):.0f})"
                    panel.text(x + 0.5, y + 0.5, text, ha="center", va="center", color=colour, fontsize=6)
        panel.set_xticks([x + 0.5 for x in range(len(datasets))], datasets, rotation=30, ha="right")
        panel.set_yticks([y + 0.5 for y in range(len(scenarios))], scenarios)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        panel.set_title(method_title(method))
    figure.colorbar(colours, ax=panels, shrink=0.5, extend="max").set_label("regret in points: mean (worst)")
    return figure


_CAPTION = (
    "Score: H-score if the target has common and private samples, accuracy (mean over classes) if nothing is private, "
    "fraction rejected as unknown if nothing is common. Oracle: score of the best threshold on the same confidence. "
    "Regret: oracle − score, in points. Below half: jobs whose score is less than half of the oracle. Means over jobs; "
    "in the last row over data sets."
)
COLUMNS = ("data set", "scenarios", "jobs", "score", "oracle", "regret", "worst regret", "below half")
"""Columns of the table of summaries."""


def summary_cells(summary: FamilySummary) -> list[str]:
    """Return the cells of a summary, one for each of `COLUMNS`."""
    failed = f" ({summary.n_failed} failed)" if summary.n_failed else ""
    worst = f" ({summary.worst})" if summary.worst else ""
    return [
        summary.dataset,
        summary.family,
        f"{summary.n_jobs}{failed}",
        *(_number(value) for value in (summary.score, summary.oracle, summary.regret)),
        f"{_number(summary.worst_regret)}{worst}",
        str(summary.n_below_half),
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _csv(scores: Sequence[ScenarioScore]) -> str:
    rows = []
    for one in scores:
        values = {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in asdict(one).items()}
        rows.append((values | {"failure": " ".join(one.failure.split())}).values())
    return table_text([field.name for field in fields(ScenarioScore)], rows)


def summaries_to_markdown(scores: Sequence[ScenarioScore], *, purpose: str) -> str:
    """Return a Markdown table per method, with a caption above all of them."""
    splits = sorted({one.split for one in scores})
    lines = [f"Splits: {purpose} ({', '.join(map(str, splits))}). {_CAPTION}"]
    summaries = summarise(scores)
    for method in dict.fromkeys(summary.method for summary in summaries):
        lines += [
            "",
            f"**{method_title(method)}**",
            "",
            markdown_row(COLUMNS),
            markdown_row([":--", ":--", *["--:"] * 6]),
        ]
        lines += [markdown_row(summary_cells(summary)) for summary in summaries if summary.method == method]
    return "\n".join(lines) + "\n"
