"""Write the files of a study: CSV, Markdown, and figures as PDF and SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from uniot.benchmark.results import SCORES
from uniot.benchmark.scenarios import scenario_order
from uniot.benchmark.studies import Axis, Finding, Study
from uniot.benchmark.tables import method_title
from uniot.benchmark.universality import UNIVERSALITY, FamilySummary, ScenarioScore, distinct, summarise
from uniot.io.csv_tables import table_text
from uniot.io.files import write_text
from uniot.report.figures import drawing, new_figure, save_figure
from uniot.report.map import distinct_colours

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
        lines += ["", f"**{method_title(method)}**", "", _row(COLUMNS), _row([":--", ":--", *["--:"] * 6])]
        lines += [_row(summary_cells(summary)) for summary in summaries if summary.method == method]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"
