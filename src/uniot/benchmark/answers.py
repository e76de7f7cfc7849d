"""Plan and summarise the study `answers`: what a person's answers are worth, on several data sets and for any method.

Answers are simulated from true labels, see `uniot.benchmark.oracle_answers`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from uniot.benchmark.features import DataSet
from uniot.benchmark.jobs import Job, Options
from uniot.benchmark.oracle_answers import ASKED, COUNTS, PROPAGATION, AnswerScore
from uniot.benchmark.table_formats import markdown_row
from uniot.benchmark.tables import method_title
from uniot.benchmark.universality import plan_universality
from uniot.io.csv_tables import table_text
from uniot.io.files import write_text
from uniot.report.figures import drawing, new_figure, save_figure
from uniot.report.map import distinct_colours

ANSWERS = "answers"
"""Name of the study on the command line and of its files."""
NOTHING_COMMON = "private-prior=1"
SCENARIOS = (
    *("open-partial", "open", "partial", "closed"),
    *(f"{kind}={number}" for kind in ("source-classes", "closed-classes") for number in (2, 3, 5)),
    NOTHING_COMMON,
)
"""Scenarios that the study runs unless others are named: the four settings, few classes, and nothing in common."""
# An interval that misses the true fraction by less contains it: the fraction of a finite target is no parameter.
_ROUNDING = 0.02


def plan_answers(
    data_sets: Sequence[DataSet],
    *,
    methods: Sequence[str],
    purpose: str = "choice",
    n_splits: int = 3,
    task_names: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    options: Options | None = None,
    threads: int = 1,
    quick: bool = False,
) -> list[Job]:
    """Return the jobs; the arguments are those of `plan_universality`."""
    jobs = plan_universality(
        data_sets,
        methods=methods,
        purpose=purpose,
        n_splits=n_splits,
        task_names=task_names,
        scenarios=scenarios or SCENARIOS,
        options=options,
        threads=threads,
        quick=quick,
    )
    return [replace(job, oracle_answers=True) for job in jobs]


@dataclass(frozen=True)
class AnswerRow:
    """Scores of one job after some answers; see `AnswerScore`.

    Attributes:
        dataset: name of the data set.
        task: source and target.
        scenario: name of the scenario.
        split: seed of the split.
        method: name of the method.
        scores: after the answers.
    """

    dataset: str
    task: str
    scenario: str
    split: int
    method: str
    scores: AnswerScore

    @property
    def regret(self) -> float:
        """Return the score of the best threshold less that of the model, in points."""
        return 100 * (self.scores.oracle - self.scores.score)


def answer_rows(jobs: Sequence[Job], scores: Iterable[Sequence[AnswerScore]]) -> list[AnswerRow]:
    """Return a row per job and number of answers.

    Args:
        jobs: finished jobs.
        scores: of each job, in the same order.
    """
    return [
        AnswerRow(job.dataset, job.task, job.setting, job.seed, job.method, one)
        for job, found in zip(jobs, scores, strict=True)
        for one in found
    ]


@dataclass(frozen=True)
class AnswerSummary:
    """Regret of one method with answers of one kind, by the number of answers: means over data sets of equal weight.

    Attributes:
        method: name of the method.
        order: how samples are chosen.
        wrong: fraction of wrong answers.
        regret: mean regret in points by number of answers; negative if the answers do more than any threshold.
        worst: largest mean regret of a data set by number of answers.
        rejected: where nothing is common, mean fraction labelled unknown by number of answers.
        covered: fraction of jobs whose interval contains the true fraction of unknown samples, by number of answers.
        width: mean width of these intervals by number of answers.
    """

    method: str
    order: str
    wrong: float
    regret: dict[int, float]
    worst: dict[int, float]
    rejected: dict[int, float]
    covered: dict[int, float]
    width: dict[int, float]


def summarise_answers(rows: Sequence[AnswerRow]) -> list[AnswerSummary]:
    """Return a summary per method, order and fraction of wrong answers."""
    kinds = dict.fromkeys((row.method, row.scores.order, row.scores.wrong) for row in rows)
    return [_summary(*kind, rows) for kind in kinds]


def _summary(method: str, order: str, wrong: float, rows: Sequence[AnswerRow]) -> AnswerSummary:
    of_method = [row for row in rows if row.method == method]
    by_count: dict[int, list[AnswerRow]] = {}
    for row in of_method:
        # Without answers all kinds are the same.
        if (row.scores.order, row.scores.wrong) == (order, wrong) or not row.scores.n_answers:
            by_count.setdefault(row.scores.n_answers, []).append(row)
    of_sets = {count: _of_sets(found) for count, found in by_count.items()}
    none_common = {count: [row for row in found if row.scenario == NOTHING_COMMON] for count, found in by_count.items()}
    has_interval = {} if order == PROPAGATION else by_count
    return AnswerSummary(
        method,
        order,
        wrong,
        regret={count: statistics.fmean(found) for count, found in of_sets.items()},
        worst={count: max(found) for count, found in of_sets.items()},
        rejected={
            count: statistics.fmean(row.scores.rejected for row in found)
            for count, found in none_common.items()
            if found
        },
        covered={count: statistics.fmean(map(_is_covered, found)) for count, found in has_interval.items()},
        width={
            count: statistics.fmean(row.scores.high - row.scores.low for row in found)
            for count, found in has_interval.items()
        },
    )


def _of_sets(rows: Sequence[AnswerRow]) -> list[float]:
    """Return the mean regret of each data set."""
    regrets: dict[str, list[float]] = {}
    for row in rows:
        regrets.setdefault(row.dataset, []).append(row.regret)
    return [statistics.fmean(found) for found in regrets.values()]


def _is_covered(row: AnswerRow) -> bool:
    return row.scores.low - _ROUNDING <= row.scores.private <= row.scores.high + _ROUNDING


COLUMNS = ("method", "samples chosen", "wrong", "what", *map(str, COUNTS))
"""Columns of the table of summaries: the last ones are numbers of answers."""


def summary_lines(summary: AnswerSummary) -> list[list[str]]:
    """Return the lines of a summary, with a cell for each of `COLUMNS`."""
    numbers = {"regret": (summary.regret, 1, 1), "regret, worst data set": (summary.worst, 1, 1)}
    if summary.order == ASKED:
        numbers["nothing common: % unknown"] = (summary.rejected, 100, 0)
        numbers["interval contains share, %"] = (summary.covered, 100, 0)
        numbers["width of the interval"] = (summary.width, 1, 2)
    head = [method_title(summary.method), summary.order, f"{100 * summary.wrong:g} %"]
    lines = []
    for what, (found, factor, digits) in numbers.items():
        cells = [f"{factor * found[count]:.{digits}f}" if count in found else "–" for count in COUNTS]
        lines.append([*head, what, *cells])
        head = ["", "", ""]
    return lines


_CAPTION = (
    "Regret: score of the best threshold on the scores of the method, less that of the method, in points, on samples "
    "without an answer; mean over data sets. Answers are simulated from true labels."
)


def write_answers(out: Path, rows: Sequence[AnswerRow], *, purpose: str) -> list[Path]:
    """Write answers.csv, answers.md, and a figure of the regret as PDF and SVG.

    Args:
        out: folder of the benchmark.
        rows: scores of every job.
        purpose: purpose of the splits, for the caption.

    Returns:
        The files that were written.
    """
    table, text = out / f"{ANSWERS}.csv", out / f"{ANSWERS}.md"
    columns = ["dataset", "task", "scenario", "split", "method", *(field.name for field in fields(AnswerScore))]
    write_text(table, table_text(columns, map(_cells, rows)))
    summaries = summarise_answers(rows)
    splits = ", ".join(map(str, sorted({row.split for row in rows})))
    lines = [
        f"Splits: {purpose} ({splits}). {_CAPTION}",
        "",
        markdown_row(COLUMNS),
        markdown_row(":--" for _ in COLUMNS),
    ]
    lines += [markdown_row(line) for summary in summaries for line in summary_lines(summary)]
    write_text(text, "\n".join(lines) + "\n")
    written = [table, text]
    if summaries:
        with drawing():
            figure = new_figure(2.6)
            _draw(figure, summaries)
            written += save_figure(figure, out / "figures", ANSWERS)
    return written


def _cells(row: AnswerRow) -> list[object]:
    values = asdict(row.scores).values()
    return [
        *(row.dataset, row.task, row.scenario, row.split, row.method),
        *(f"{value:.4f}" if isinstance(value, float) else value for value in values),
    ]


def _draw(figure: Any, summaries: Sequence[AnswerSummary]) -> None:
    """Draw the regret by the number of answers: a line per kind of answers if there is one method, else per method."""
    methods = {one.method for one in summaries}
    drawn = [one for one in summaries if len(methods) == 1 or (one.order, one.wrong) == (ASKED, 0.0)]
    panel = figure.subplots()
    for one, colour in zip(drawn, distinct_colours(len(drawn)), strict=True):
        wrong = f", {100 * one.wrong:g} % wrong" if one.wrong else ""
        label = f"{one.order}{wrong}" if len(methods) == 1 else method_title(one.method)
        counts = sorted(one.regret)
        panel.plot(
            range(len(counts)),
            [one.regret[count] for count in counts],
            marker="o",
            markersize=3,
            color=colour,
            label=label,
        )
    panel.axhline(0, color="#9aa3ad", linewidth=0.8, linestyle=":", zorder=0)
    panel.set_xticks(range(len(COUNTS)), [str(count) for count in COUNTS])
    panel.set_xlabel("answers")
    panel.set_ylabel("regret in points")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside right upper")
