"""What a study found: its numbers as CSV, and a figure of each thing that it varies."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from uniot.benchmark.reported import paper_tables
from uniot.benchmark.results import SCORES, Result
from uniot.benchmark.score_grid import ScoreGrid
from uniot.benchmark.studies import Axis, Study
from uniot.benchmark.tables import method_title
from uniot.data.published_set import BenchmarkSet
from uniot.report.colours import distinct_colours
from uniot.report.drawing import drawing, new_figure, save_figure
from uniot.run_folder import write_text

_DRAWN = ("h", "h3_oracle")


@dataclass(frozen=True)
class Finding:
    """One score of one method at one point; the mean over the tasks.

    Attributes:
        axis: what was varied; empty where the methods are what differs.
        value: of it.
        setting: that the jobs have.
        method: its name.
        score: its name.
        mean: in per cent; None where a task has no score.
        deviation: of the means of the seeds; None with fewer than two.
        n_seeds: in the task with the fewest.
        n_failed: jobs that failed.
        paper: what the paper reports, which it does for the methods alone.
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
    """Means over tasks and seeds of every method at every point.

    Args:
        study: that was run.
        results: of its jobs.
        published: the data set, where it is one: the paper's numbers are of its published split.
    """
    findings = []
    for axis in study.axes or (None,):
        for value, setting in [(None, name) for name in study.points] if axis is None else _places(axis):
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


def _places(axis: Axis) -> list[tuple[float, str]]:
    return [(point.value, point.setting) for point in axis.points]


def write_study(out: Path, study: Study, findings: Sequence[Finding]) -> list[Path]:
    """Writes STUDY.csv, and a figure of each axis (or of the methods) as PDF and SVG; returns where."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Finding)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(finding) | _rounded(finding) for finding in findings)
    table = out / f"{study.name}.csv"
    write_text(table, text.getvalue())
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
    """A panel for each score; a line for each method, with a band of one standard deviation over the seeds."""
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
    """A panel for each score, or for each setting; a dot for each method, and a mark where the paper has it."""
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
    """Beside the panels, where it hides nothing."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
