"""The tables of README.md and of pages in docs/, made from the results in benchmarks/results/.

    python benchmarks/written_tables.py            # writes them, and the critical-difference diagram
    python benchmarks/written_tables.py --check    # fails where one is not as the results are

A table stands between two comments, `<!-- table NAME -->` and `<!-- end of table -->`; `table` knows the names.
The diagram is docs/figures/every-method.svg.
Each file of results is the results.csv of a `uniot benchmark`, which docs/results.md names.
"""

from __future__ import annotations

import math
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from uniot.benchmark.averages import MeanScore, ScoreGrid
from uniot.benchmark.ranking import rank_methods, write_critical_difference
from uniot.benchmark.reported_scores import AVERAGE, paper_tables
from uniot.benchmark.results import Result, read_results
from uniot.benchmark.significance import holm_corrected, sign_flip_p_value
from uniot.benchmark.studies import Finding, make_study, study_findings
from uniot.benchmark.table_formats import to_markdown
from uniot.benchmark.tables import make_table, method_title
from uniot.benchmark.tasks import TaskSet
from uniot.datasets.catalogue import benchmark_set
from uniot.io.csv_tables import dict_reader

ROOT = Path(__file__).parents[1]
PAGE_NAMES = ("results", "beyond-the-paper", "rejection", "methods/maths")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in PAGE_NAMES))
DIAGRAM = ROOT / "docs" / "figures" / "every-method.svg"
DATASET = "office31"
_SETTINGS = {
    "open-partial": "open-partial, H",
    "open": "open, H",
    "partial": "partial, accuracy",
    "closed": "closed, accuracy",
}
# The methods of README.md and of the tables that have no room for all.
_SHOWN = ("unincm", "uniot", "ppot", "lead", "dance", "source-only")
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
# Without a rejection rule, or, MATHS, with one that rarely rejects: their H-scores say little about them.
APART = ("rtn", "pada", "deepjdot", "jumbot", "ts-pot", "maths")
ESTIMATES = {
    "rule": "UniNCM: its rule, and its interval without answers",
    "bbe": "BBE",
    "dedpul": "DEDPUL",
    "pulse": "PULSE",
    "one-tilt": "exponential tilt, common classes fixed",
    "double-tilt": "double exponential tilt",
    "half": "always one half, from 0 to 1",
}
# Methods with one seed, and not of every setting: they have a table of their own, beside two others with that seed.
NEWEST = ("clip-distill", "color", "tasc", "unijdot")
_BESIDE_NEWEST = ("unincm", "calibrated")
_MAIN_SETS = {"pacs": "PACS", "digits": "digits", "plants": "plants"}


def main() -> None:
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(made, encoding="utf-8")
    if not diagram_is_current():
        stale.append(DIAGRAM.name)
        if "--check" not in sys.argv[1:]:
            write_diagram()
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)}: not as the results are. Run python benchmarks/written_tables.py.")


def filled(text: str) -> str:
    """Return the page with every table made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


def table(name: str) -> str:
    """Return a table by its name, as Markdown."""
    if name == "results":
        return several_sets()
    if name == "every":
        return every()
    if name == "newest":
        return newest()
    if name == "maths-test":
        return maths_test()
    if name == "without-rule":
        return without_rule()
    if name == "private-share":
        return private_share_table(rows_of("private-share"))
    if name == "oracle-selection":
        return oracle_selection()
    if name == "compared":
        return compared()
    if name == "settings":
        return settings([one for name in _SHOWN for one in of_method(name)])
    if name == "settings-efficientnet":
        return settings(results("unincm-efficientnet"))
    if name == "tasks-efficientnet":
        return tasks([one for one in results("unincm-efficientnet") if one.setting == "open-partial"])
    if name == "settings-beyond":
        return settings(results("beyond"))
    if name == "number-of-classes":
        return number_of_classes(of_method("unincm"), results("unincm-efficientnet"))
    if name == "whole-h":
        return whole(open_partial(DATASET), by_score=True)
    if name == "target-learners":
        return target_learners()
    if name == "ablation":
        return whole(results("ablation"))
    kind, _, rest = name.partition("-")
    if kind == "study":
        return study(rest)
    raise ValueError(f"there is no table called {name!r}")


@cache
def results(name: str) -> Sequence[Result]:
    return read_results(ROOT / "benchmarks" / "results" / f"{DATASET}-{name}.csv")


@cache
def every_result() -> Sequence[Result]:
    """Return the results of benchmarks/every_method.py."""
    return read_results(ROOT / "benchmarks" / "results" / "every-method.csv")


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of results whose columns are those of its own script."""
    with (ROOT / "benchmarks" / "results" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(dict_reader(file))


def open_partial(dataset: str) -> list[Result]:
    """Return what they are on a data set, open-partial, of the methods that were run in full."""
    return [one for one in three_seeds() if (one.dataset, one.setting) == (dataset, "open-partial")]


def of_method(name: str) -> list[Result]:
    """Return what they are of a method on Office-31, in all settings."""
    return [one for one in every_result() if (one.dataset, one.method) == (DATASET, name)]


def several_sets() -> str:
    """Return the mean H-score of some methods on several data sets, open-partial."""
    columns = {"Office-31": DATASET, "PACS": "pacs", "digits": "digits", "plants": "plants"}
    grids = [_grid(open_partial(dataset)) for dataset in columns.values()]
    lines = [["method", *columns], [":--", *["--:"] * len(columns)]]
    rows = [[method_title(name), *(f"{grid.cells(name)[-1].mean:.1f}" for grid in grids)] for name in _SHOWN]
    return _pipes([*lines, *rows])


def every() -> str:
    """Return every method in all settings and on all data sets, by mean rank, with the processor time of a fit."""
    found = with_rule()
    columns = {
        "Office-31": (DATASET, "open-partial"),
        "open": (DATASET, "open"),
        "partial": (DATASET, "partial"),
        "closed": (DATASET, "closed"),
        "PACS": ("pacs", "open-partial"),
        "digits": ("digits", "open-partial"),
        "plants": ("plants", "open-partial"),
    }
    grids = [_grid([one for one in found if (one.dataset, one.setting) == place]) for place in columns.values()]
    ranking = rank_methods(found)
    others = rank_methods([one for one in found if one.dataset != DATASET])
    elsewhere = dict(zip(others.methods, others.mean_ranks, strict=True))
    lines = [["method", *columns, "rank", "elsewhere", "seconds"], [":--", *["--:"] * (len(columns) + 3)]]
    for method, rank in zip(ranking.methods, ranking.mean_ranks, strict=True):
        seconds = [one.cpu_seconds for one in found if one.method == method and one.cpu_seconds]
        means = [grid.cells(method)[-1].mean for grid in grids]
        cells = ["–" if mean is None else f"{mean:.1f}" for mean in means]
        ranks = [f"{rank:.1f}", f"{elsewhere[method]:.1f}"]
        lines.append([method_title(method), *cells, *ranks, f"{statistics.median(seconds):.0f}"])
    return _pipes(lines)


def with_rule() -> list[Result]:
    """Return the results of the methods that are ranked: those with a rejection rule and all seeds, and source only."""
    return [one for one in three_seeds() if one.method not in APART]


def three_seeds() -> list[Result]:
    """Return the results of the methods and data sets that were run in full."""
    return [one for one in every_result() if one.method not in NEWEST and one.dataset in (DATASET, *_MAIN_SETS)]


def newest() -> str:
    """Return H of the newest methods, and after a slash that of the best threshold; open-partial, first seed."""
    every = {one.dataset for one in every_result()}
    columns = {DATASET: "Office-31", **_MAIN_SETS} | {name: name for name in ("cells", "sentences") if name in every}
    found = [one for one in every_result() if one.setting == "open-partial" and one.seed in (0, 900)]
    lines = []
    for method in (*_BESIDE_NEWEST, *NEWEST):
        cells, seconds = [], []
        for dataset in columns:
            own = [one for one in found if (one.method, one.dataset) == (method, dataset)]
            means = [statistics.fmean(100 * getattr(one, score) for one in own) for score in ("h", "h_oracle") if own]
            cells.append(" / ".join(f"{mean:.1f}" for mean in means) or "–")
            seconds += [one.cpu_seconds for one in own if one.cpu_seconds]
        auroc = statistics.fmean(
            100 * one.auroc for one in found if (one.method, one.dataset) == (method, DATASET) and one.auroc is not None
        )
        lines.append([method_title(method), *cells, f"{auroc:.1f}", f"{statistics.median(seconds):.1f}"])
    header = ["method", *columns.values(), "AUROC, Office-31", "seconds"]
    return _pipes([header, [":--", *["--:"] * (len(header) - 1)], *lines])


def maths_test() -> str:
    """Return in how many jobs MATHS rejects anything, by data set and setting."""
    header = ["data set", "private classes in the target", "jobs", "rejects any sample", "AUROC"]
    lines = [header, [":--", ":--", "--:", "--:", "--:"]]
    for dataset, title in {DATASET: "Office-31", **_MAIN_SETS}.items():
        own = [one for one in every_result() if (one.method, one.dataset) == ("maths", dataset)]
        for is_private in (True, False):
            here = [one for one in own if (one.setting in ("open", "open-partial")) == is_private]
            if here:
                rejects = [
                    bool(one.unknown_recall) or (one.common_accuracy or 0) < (one.nothing_rejected or 0) for one in here
                ]
                aurocs = [one.auroc for one in here if one.auroc is not None]
                auroc = f"{100 * statistics.fmean(aurocs):.1f}" if aurocs else "–"
                lines.append([title, "yes" if is_private else "no", f"{len(here)}", f"{sum(rejects)}", auroc])
    return _pipes(lines)


def without_rule() -> str:
    """Return the methods without a rule, and two others, by scores that do not depend on it."""
    rows = rows_of("without-rule")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    tasks = {row["task"] for row in rows}
    # A run that was stopped has some tasks of some methods only.
    whole = {task for task in tasks if all(any((r["method"], r["task"]) == (m, task) for r in rows) for m in methods)}
    header = ["method", "H by the rule", "best threshold", "after ten answers", "OSCR", "nothing rejected"]
    header += ["partial, by the rule", "nothing rejected", "closed, by the rule", "nothing rejected"]
    header += ["elsewhere, by the rule", "best threshold"]
    lines = []
    for method in methods:
        own = [row for row in rows if row["method"] == method and row["task"] in whole]
        scores = [
            [float(row[score]) for row in own]
            for score in ("h", "h_oracle", "h_after_answers", "oscr", "nothing_rejected")
        ]
        every_one = [one for one in every_result() if one.method == method]
        for setting in ("partial", "closed"):
            here = [one for one in every_one if (one.dataset, one.setting) == (DATASET, setting)]
            scores += _values(here, "h"), _values(here, "nothing_rejected")
        here = [one for one in every_one if one.dataset in _MAIN_SETS]
        scores += _values(here, "h"), _values(here, "h_oracle")
        cells = [f"{100 * statistics.fmean(values):.1f}" if values else "–" for values in scores]
        lines.append([method_title(method), *cells])
    lines.sort(key=lambda line: -float(line[2]))
    table = _pipes([header, [":--", *["--:"] * (len(header) - 1)], *lines])
    return f"Tasks of the first five columns: {', '.join(sorted(whole))}.\n\n{table}"


def _values(found: Sequence[Result], score: str) -> list[float]:
    return [value for one in found if (value := getattr(one, score)) is not None]


def private_share_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return mean absolute errors of the estimates by data set, and coverage and width of their intervals."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    header = ["estimate", *datasets, "mean", "bias", "if 0", "if 90 or 100", "covered, %", "width", "seconds"]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]

    def signed(row: Mapping[str, str]) -> float:
        return 100 * (float(row["share"]) - float(row["true"]))

    for method, title in ESTIMATES.items():
        own = [row for row in rows if row["method"] == method]
        of_sets = [statistics.fmean(abs(signed(row)) for row in own if row["dataset"] == name) for name in datasets]
        nothing, most = (
            [100 * float(row["share"]) for row in own if low <= float(row["true"]) <= high]
            for low, high in ((0, 0), (0.85, 1))
        )
        averages = [of_sets, [*map(signed, own)], nothing, most]
        cells = [*of_sets, *(statistics.fmean(values) if values else math.nan for values in averages)]
        covered = [float(row["low"]) - 0.02 <= float(row["true"]) <= float(row["high"]) + 0.02 for row in own]
        width = statistics.fmean(float(row["high"]) - float(row["low"]) for row in own)
        seconds = statistics.median(float(row["seconds"]) for row in own)
        shown = ["–" if math.isnan(cell) else f"{cell:.0f}".replace("-", "−") for cell in cells]
        lines.append([title, *shown, f"{100 * statistics.fmean(covered):.0f}", f"{width:.2f}", f"{seconds:.1f}"])
    return _pipes(lines)


def diagram_is_current() -> bool:
    """Return whether the diagram has every ranked method with its mean rank."""
    ranking = rank_methods(with_rule())
    text = DIAGRAM.read_text(encoding="utf-8") if DIAGRAM.exists() else ""
    labels = zip(ranking.methods, ranking.mean_ranks, strict=True)
    return all(f"{method_title(method)} {rank:.1f}" in text for method, rank in labels)


def write_diagram() -> None:
    """Draw the mean ranks of the methods with a rule; see `write_critical_difference`."""
    with tempfile.TemporaryDirectory() as folder:
        for path in write_critical_difference(Path(folder), DIAGRAM.stem, rank_methods(with_rule())):
            if path.suffix == DIAGRAM.suffix:
                shutil.copyfile(path, DIAGRAM)


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
    """Return the means over the tasks of every method beside its paper's numbers, by decreasing H-score."""
    means = _means(open_partial(DATASET), ("h", "h3_oracle", "h3_honest", "auroc"))
    header = ["method", "H", "H³ oracle", "H³ honest", "AUROC", "H, paper", "H³, paper"]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]
    for method, cells in means.items():
        reported = [paper_tables().reported(DATASET, method, AVERAGE, score) for score in ("h", "h3_oracle")]
        paper = ["–" if number is None else f"{number:.2f}" for number in reported]
        lines.append([method_title(method), *map(_spread, cells), _LATER.get(method, paper[0]), paper[1]])
    return _pipes(lines)


def target_learners() -> str:
    """Return UniOT with each loss in place of L_PCD, and a test of its H-scores against those with nothing there."""
    found = results("target-learners")
    means, nothing = _means(found, ("h", "h3_oracle", "h3_honest")), "uniot-without-pcd"
    scores = {(one.method, (one.task, one.seed)): one.h for one in found}
    others, places = [name for name in means if name != nothing], {(one.task, one.seed) for one in found}
    differences = [[scores[name, at] - scores[nothing, at] for at in sorted(places)] for name in others]
    p_values = dict(zip(others, holm_corrected([sign_flip_p_value(own) for own in differences]), strict=True))
    lines = [["method", "H", "H³ oracle", "H³ honest", "p"], [":--", *["--:"] * 4]]
    for name, cells in means.items():
        lines.append([method_title(name), *map(_spread, cells), f"{p_values[name]:.3f}" if name != nothing else "–"])
    return _pipes(lines)


def whole(found: Sequence[Result], *, by_score: bool = False) -> str:
    """Return the H-score of every method on every task, by decreasing mean if asked."""
    methods = list(dict.fromkeys(result.method for result in found))
    if by_score:
        methods.sort(key=lambda method: -(_grid(found).cells(method)[-1].mean or 0))
    return to_markdown(make_table(found, "h", dataset=DATASET, methods=methods)).strip()


def settings(found: Sequence[Result]) -> str:
    """Return H, or the accuracy if nothing is private, in the four settings; means over the tasks."""
    methods = list(dict.fromkeys(result.method for result in found))
    grids = {setting: _grid([result for result in found if result.setting == setting]) for setting in _SETTINGS}
    header = [["method", *_SETTINGS.values()], [":--", *["--:"] * len(_SETTINGS)]]
    rows = [[method_title(name), *(_spread(grid.cells(name)[-1]) for grid in grids.values())] for name in methods]
    return _pipes([*header, *rows])


def tasks(found: Sequence[Result]) -> str:
    """Return the scores of one method on every task beside those of the paper's UniOT."""
    (method,) = {one.method for one in found}
    columns = [_grid(found, score).cells(method) for score in ("h", "h3_oracle", "h3_honest")]
    header = ["task", "H", "H³ oracle", "H³ honest", "H, paper", "H³, paper"]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]
    for place, task in enumerate((*dict.fromkeys(one.task for one in found), AVERAGE)):
        paper = [paper_tables().reported(DATASET, "uniot", task, score) for score in ("h", "h3_oracle")]
        lines.append([task, *(_spread(column[place]) for column in columns), *(f"{number:.2f}" for number in paper)])
    return _pipes(lines)


def number_of_classes(*several: Sequence[Result]) -> str:
    """Return the number of private classes found and its error; means over tasks and seeds."""
    published, rows = benchmark_set(DATASET), []
    for found in several:
        for setting in _SETTINGS:
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


def _grid(found: Sequence[Result], score: str = "h") -> ScoreGrid:
    """Return a score of each method on each of the tasks, in per cent."""
    return ScoreGrid(found, score, list(dict.fromkeys(one.task for one in found)), None)


def _means(found: Sequence[Result], scores: Sequence[str]) -> dict[str, list[MeanScore]]:
    """Return the mean over the tasks of each score, by method; the method with the best first score is first."""
    methods = dict.fromkeys(result.method for result in found)
    means = {method: [_grid(found, score).cells(method)[-1] for score in scores] for method in methods}
    return dict(sorted(means.items(), key=lambda item: -(item[1][0].mean or 0)))


def _spread(cell: MeanScore | Finding) -> str:
    mean, deviation = cell.mean, cell.deviation
    if mean is None:
        return "–"
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def _pipes(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
