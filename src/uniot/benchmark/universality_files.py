"""What the universality study found: a row for each job as CSV, a table of the scenario families, and a heat map."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from uniot.benchmark.jobs import Job
from uniot.benchmark.results import Result
from uniot.benchmark.scenarios import family_of, scenario_order
from uniot.benchmark.tables import method_title
from uniot.benchmark.universality import UNIVERSALITY
from uniot.report.drawing import drawing, new_figure, save_figure
from uniot.run_folder import write_text

ALL = "all"
"""Family of a row over all scenarios, and data set of a row over all data sets."""
# Regret of the darkest colour, in points.
_DARKEST = 50
_CAPTION = (
    "Score: H-score if the target has common and private samples, accuracy (mean over classes) if nothing is private, "
    "share called unknown if nothing is common. Oracle: score of the best threshold on the same confidence. Regret: "
    "oracle − score, in points. Below half: jobs whose score is less than half of the oracle. Means over jobs; in the "
    "last row over data sets."
)


@dataclass(frozen=True)
class ScenarioScore:
    """What came of one job; scores are per cent, and None if the job failed or there is no value.

    Attributes:
        dataset: name of the data set.
        task: source and target.
        family: of the scenario.
        scenario: its name.
        split: seed of the split, of the samples and of the method.
        method: its name.
        n_source_classes: classes that the source has.
        n_target: target samples.
        score: H-score; accuracy on common classes if nothing is private; share called unknown if nothing is common.
        oracle: score of the best threshold on the same confidence, with the same nearest classes.
        nothing_rejected: accuracy on common classes if no sample is called unknown.
        regret: oracle − score.
        n_private_found: groups among the samples called unknown.
        n_private_true: private classes that have a target sample.
        estimated_accuracy: what the model expects `true_accuracy` to be, without labels.
        true_accuracy: share of target samples that are right, "unknown" being right for private ones.
        warned: whether the model warned that its answers are unreliable.
        seconds: that the fit took.
        failure: why the job failed; empty otherwise.
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
    """Return what came of each job; results are in the order of the jobs."""
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
    """One method on one family of scenarios of one data set.

    Attributes:
        method: its name.
        dataset: name of the data set, or `ALL`.
        family: of the scenarios, or `ALL`.
        n_jobs: jobs that gave a score.
        n_failed: jobs that failed.
        score: mean over the jobs; None if all failed. This and the following are per cent or points.
        oracle: mean.
        regret: mean.
        worst_regret: largest of a job.
        worst: scenario and task that have it.
        n_below_half: jobs whose score is less than half of the oracle.
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
    """Summarise each family of each data set and method, each data set, and last all data sets of the method."""
    found = []
    for method in _distinct(scores, lambda one: one.method):
        of_method = [one for one in scores if one.method == method]
        of_sets = []
        for dataset in _distinct(of_method, lambda one: one.dataset):
            of_set = [one for one in of_method if one.dataset == dataset]
            found += [
                _summary(method, dataset, family, [one for one in of_set if one.family == family])
                for family in _distinct(of_set, lambda one: one.family)
            ]
            of_sets.append(_summary(method, dataset, ALL, of_set))
            found.append(of_sets[-1])
        if len(of_sets) > 1:
            found.append(_over_sets(method, of_sets))
    return found


def _summary(method: str, dataset: str, family: str, scores: Sequence[ScenarioScore]) -> FamilySummary:
    rows = [(one, one.score, one.oracle, one.regret) for one in scores]
    known = [
        (one, score, oracle, regret)
        for one, score, oracle, regret in rows
        if score is not None and oracle is not None and regret is not None
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
    """Average over data sets: each counts the same, however many pairs of domains it has."""
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


def _distinct(scores: Sequence[ScenarioScore], of: Callable[[ScenarioScore], str]) -> list[str]:
    return list(dict.fromkeys(of(one) for one in scores))


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


def write_universality(out: Path, scores: Sequence[ScenarioScore], *, purpose: str) -> list[Path]:
    """Write universality.csv, universality.md, and the heat map as PDF and SVG to figures/; return where.

    Args:
        out: folder for them.
        scores: of every job.
        purpose: of the splits, for the caption.
    """
    table, text = out / f"{UNIVERSALITY}.csv", out / f"{UNIVERSALITY}.md"
    write_text(table, _csv(scores))
    write_text(text, to_markdown(scores, purpose=purpose))
    written = [table, text]
    with drawing():
        figure = _heat_map(scores)
        if figure is not None:
            written += save_figure(figure, out / "figures", UNIVERSALITY)
    return written


def _csv(scores: Sequence[ScenarioScore]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(ScenarioScore)], lineterminator="\n")
    writer.writeheader()
    for one in scores:
        values = {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in asdict(one).items()}
        writer.writerow(values | {"failure": " ".join(one.failure.split())})
    return text.getvalue()


def to_markdown(scores: Sequence[ScenarioScore], *, purpose: str) -> str:
    """Return a table with pipes of each method, with a caption above all of them."""
    splits = sorted({one.split for one in scores})
    lines = [f"Splits: {purpose} ({', '.join(map(str, splits))}). {_CAPTION}"]
    summaries = summarise(scores)
    for method in dict.fromkeys(summary.method for summary in summaries):
        lines += ["", f"**{method_title(method)}**", "", _row(COLUMNS), _row([":--", ":--", *["--:"] * 6])]
        lines += [_row(summary_cells(summary)) for summary in summaries if summary.method == method]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _heat_map(scores: Sequence[ScenarioScore]) -> Any:
    """Draw the mean and the worst regret of each scenario and data set; None if every job failed.

    A panel for each method.
    """
    regrets: dict[tuple[str, str, str], list[float]] = {}
    for one in scores:
        if one.regret is not None:
            regrets.setdefault((one.method, one.scenario, one.dataset), []).append(one.regret)
    if not regrets:
        return None
    methods, datasets = _distinct(scores, lambda one: one.method), _distinct(scores, lambda one: one.dataset)
    scenarios = sorted(_distinct(scores, lambda one: one.scenario), key=scenario_order)
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
