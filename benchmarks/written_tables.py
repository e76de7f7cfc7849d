"""The tables of README.md, docs/results.md and docs/beyond-the-paper.md, made from the results in benchmarks/results/.

    python benchmarks/written_tables.py            # writes them
    python benchmarks/written_tables.py --check    # fails where one is not as the results are

A table stands between two comments, `<!-- table NAME -->` and `<!-- end of table -->`; `table` knows the names.
Each file of results is the results.csv of a `uniot benchmark`, which docs/results.md names.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from uniot.benchmark.averages import Cell, ScoreGrid
from uniot.benchmark.protocol import AVERAGE, TaskSet, paper_tables
from uniot.benchmark.ranking import rank_methods
from uniot.benchmark.results import Result, read_results
from uniot.benchmark.studies import Finding, make_study, study_findings
from uniot.benchmark.table_formats import to_markdown
from uniot.benchmark.tables import make_table, method_title
from uniot.datasets.catalogue import benchmark_set

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "beyond-the-paper.md")
DATASET = "office31"
# What the papers of the later methods report on Office-31, open-partial, fine-tuned; notes are below the table.
_LATER = {
    "mlnet": "92.8 ¹",
    "ppot": "90.4 ¹ ²",
    "glc": "87.8 ¹ ³",
    "glc-plus": "–",
    "lead": "87.8 ¹ ³",
    "maths": "–",
    "calibrated": "–",
    "deepjdot": "–",
    "jumbot": "–",
    "ts-pot": "–",
}
_BLOCK = re.compile(r"(<!-- table ([a-z0-9-]+) -->\n).*?(<!-- end of table -->)", re.S)


def main() -> None:
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(made, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)}: tables are not as the results are. Run python benchmarks/written_tables.py.")


def filled(text: str) -> str:
    """Return the page with every table made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


def table(name: str) -> str:
    """Return a table by its name, as Markdown."""
    if name == "results":
        return several_sets()
    if name == "every":
        return every()
    if name == "later":
        return later()
    if name == "oracle-selection":
        return oracle_selection()
    if name == "compared":
        return compared()
    if name == "settings":
        return settings("unincm", "settings", "open-partial")
    if name == "settings-efficientnet":
        return settings("unincm-efficientnet")
    if name == "tasks-efficientnet":
        return tasks([one for one in results("unincm-efficientnet") if one.setting == "open-partial"])
    if name == "settings-beyond":
        return settings("beyond")
    if name == "number-of-classes":
        return number_of_classes("unincm", "unincm-efficientnet")
    if name == "ablation":
        return whole("ablation", "h")
    kind, _, rest = name.partition("-")
    if kind == "whole":
        return whole("open-partial", rest.replace("-", "_"))
    if kind == "study":
        return study(rest)
    raise ValueError(f"there is no table called {name!r}")


@cache
def results(name: str) -> Sequence[Result]:
    return read_results(ROOT / "benchmarks" / "results" / f"{DATASET}-{name}.csv")


def several_sets() -> str:
    """Return the mean H-score of five methods on several data sets, open-partial."""
    methods = ("unincm", "uniot", "dance", "ovanet", "source-only")
    office31 = [*results("open-partial"), *(one for one in results("unincm") if one.setting == "open-partial")]
    others = read_results(ROOT / "benchmarks" / "results" / "several-sets-open-partial.csv")
    columns = {"Office-31": office31}
    for name, title in (("pacs", "PACS"), ("digits", "digits"), ("plants", "plants")):
        columns[title] = [one for one in others if one.dataset == name]
    lines = [["method", *columns], [":--", *["--:"] * len(columns)]]
    for method in methods:
        cells = []
        for found in columns.values():
            tasks = list(dict.fromkeys(one.task for one in found))
            cells.append(f"{ScoreGrid(found, 'h', tasks, None).cells(method)[-1].mean:.1f}")
        lines.append([method_title(method), *cells])
    return _pipes(lines)


@cache
def every_result() -> Sequence[Result]:
    """Return the results of benchmarks/every_method.py."""
    return read_results(ROOT / "benchmarks" / "results" / "every-method.csv")


def every() -> str:
    """Return every method in all settings and on all data sets, by mean rank, with the processor time of a fit."""
    found = every_result()
    columns = {
        "Office-31": (DATASET, "open-partial"),
        "open": (DATASET, "open"),
        "partial": (DATASET, "partial"),
        "closed": (DATASET, "closed"),
        "PACS": ("pacs", "open-partial"),
        "digits": ("digits", "open-partial"),
        "plants": ("plants", "open-partial"),
    }
    grids = []
    for place in columns.values():
        here = [one for one in found if (one.dataset, one.setting) == place]
        grids.append(ScoreGrid(here, "h", list(dict.fromkeys(one.task for one in here)), None))
    ranking = rank_methods(found)
    lines = [["method", *columns, "mean rank", "seconds"], [":--", *["--:"] * (len(columns) + 2)]]
    for method, rank in zip(ranking.methods, ranking.mean_ranks, strict=True):
        seconds = [one.cpu_seconds for one in found if one.method == method and one.cpu_seconds]
        means = [grid.cells(method)[-1].mean for grid in grids]
        cells = ["–" if mean is None else f"{mean:.1f}" for mean in means]
        lines.append([method_title(method), *cells, f"{rank:.1f}", f"{statistics.median(seconds):.0f}"])
    return _pipes(lines)


def later() -> str:
    """Return the later methods on Office-31, open-partial, seed 0, beside the numbers of their papers."""
    tasks = benchmark_set(DATASET).tasks
    place = (DATASET, "open-partial", 0)
    found = [one for one in every_result() if (one.dataset, one.setting, one.seed) == place]
    lines = [["method", *tasks, "average", "seconds", "paper"], [":--", *["--:"] * (len(tasks) + 3)]]
    grid = ScoreGrid(found, "h", tasks, None)
    for method in sorted(_LATER, key=lambda method: -(grid.cells(method)[-1].mean or 0)):
        seconds = [one.cpu_seconds for one in found if one.method == method and one.cpu_seconds]
        cells = [f"{cell.mean:.1f}" if cell.mean is not None else "–" for cell in grid.cells(method)]
        lines.append([method_title(method), *cells, f"{statistics.median(seconds):.0f}", _LATER[method]])
    return _pipes(lines)


def oracle_selection() -> str:
    """Return what a choice of the step, or of the threshold, by target labels would add to the later methods."""
    found = results("oracle-selection")
    header = ["method", "last step", "oracle step", "oracle threshold", "paper"]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]
    for method in dict.fromkeys(one.method for one in found):
        own = [one for one in found if one.method == method]
        scores = [[getattr(one, name) for one in own] for name in ("h", "h_oracle_selection", "h_oracle")]
        lines.append([method_title(method), *(f"{100 * statistics.fmean(of):.1f}" for of in scores), _LATER[method]])
    return _pipes(lines)


def compared() -> str:
    """Return the means over the tasks of every method beside the paper's numbers, by decreasing H-score."""
    found = [*results("open-partial"), *(one for one in results("unincm") if one.setting == "open-partial")]
    tasks = benchmark_set(DATASET).tasks
    methods = list(dict.fromkeys(result.method for result in found))
    cells = {
        score: {method: ScoreGrid(found, score, tasks, None).cells(method)[-1] for method in methods}
        for score in ("h", "h3_oracle", "h3_honest")
    }
    lines = [["method", "H", "H³ oracle", "H³ honest", "H, paper", "H³, paper"], [":--", *["--:"] * 5]]
    for method in sorted(methods, key=lambda method: -(cells["h"][method].mean or 0)):
        own = [_spread(cells[score][method]) for score in cells]
        paper = [paper_tables().reported(DATASET, method, AVERAGE, score) for score in ("h", "h3_oracle")]
        lines.append([method_title(method), *own, *("–" if number is None else f"{number:.2f}" for number in paper)])
    return _pipes(lines)


def whole(name: str, score: str) -> str:
    """Return one score of every method on every task."""
    return to_markdown(make_table(results(name), score, dataset=DATASET)).strip()


def settings(first: str, *others: str) -> str:
    """Return H, or the accuracy if nothing is private, in the four settings; means over the tasks.

    Args:
        first: a file of results in all settings.
        others: further ones, of methods in several settings.
    """
    found = [result for name in (first, *others) for result in results(name)]
    tasks = benchmark_set(DATASET).tasks
    names = {
        "open-partial": "open-partial, H",
        "open": "open, H",
        "partial": "partial, accuracy",
        "closed": "closed, accuracy",
    }
    several = [result.method for result in found if result.setting != "open-partial"]
    methods = list(dict.fromkeys(several))
    grids = {
        setting: ScoreGrid([result for result in found if result.setting == setting], "h", tasks, None)
        for setting in names
    }
    header = [["method", *names.values()], [":--", *["--:"] * len(names)]]
    rows = [[method_title(name), *(_spread(grid.cells(name)[-1]) for grid in grids.values())] for name in methods]
    return _pipes([*header, *rows])


def tasks(found: Sequence[Result]) -> str:
    """Return the scores of one method on every task beside those of the paper's UniOT."""
    (method,) = {one.method for one in found}
    names = list(dict.fromkeys(one.task for one in found))
    columns = [ScoreGrid(found, score, names, None).cells(method) for score in ("h", "h3_oracle", "h3_honest")]
    header = ["task", "H", "H³ oracle", "H³ honest", "H, paper", "H³, paper"]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]
    for place, task in enumerate((*names, AVERAGE)):
        paper = [paper_tables().reported(DATASET, "uniot", task, score) for score in ("h", "h3_oracle")]
        lines.append([task, *(_spread(column[place]) for column in columns), *(f"{number:.2f}" for number in paper)])
    return _pipes(lines)


def number_of_classes(*names: str) -> str:
    """Return the number of private classes found and its error; means over tasks and seeds."""
    published, rows = benchmark_set(DATASET), []
    for name in names:
        found = results(name)
        for setting in dict.fromkeys(result.setting for result in found):
            true = len(TaskSet.of_published(DATASET).splits([setting])[setting].target_private)
            here = [result.n_groups for result in found if result.setting == setting and result.n_groups is not None]
            off = [abs(number - true) for number in here]
            backbone = next(result.backbone for result in found)
            rows.append([backbone, setting, str(true), f"{sum(here) / len(here):.1f}", f"{sum(off) / len(off):.1f}"])
        assert len(here) == 3 * len(published.tasks)
    return _pipes([["features", "setting", "in truth", "found", "off by"], [":--", ":--", *["--:"] * 3], *rows])


def study(name: str) -> str:
    """Return the H-scores along each axis of a study, a table per axis."""
    tasks = TaskSet.of_published(DATASET)
    ((setting, split),) = tasks.splits(["open-partial"]).items()
    asked = make_study(name, tasks, setting, split)
    findings = [finding for finding in study_findings(asked, results(name)) if finding.score == "h"]
    tables = []
    for axis in asked.axes:
        here = {(finding.value, finding.method): finding for finding in findings if finding.axis == axis.name}
        methods = list(dict.fromkeys(method for _, method in here))
        lines = [[axis.label, *map(method_title, methods)], [":--", *["--:"] * len(methods)]]
        for point in axis.points:
            value = f"**{point.value:g}**" if point.value == axis.usual else f"{point.value:g}"
            lines.append([value, *(_spread(here[point.value, method]) for method in methods)])
        tables.append(_pipes(lines))
    return "\n\n".join(tables)


def _spread(cell: Cell | Finding) -> str:
    mean, deviation = cell.mean, cell.deviation
    if mean is None:
        return "–"
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def _pipes(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
