"""Results as a table of methods and tasks, with what the paper reports beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from uniot.benchmark.captions import table_caption
from uniot.benchmark.reported import AVERAGE, paper_tables
from uniot.benchmark.results import SCORES, Result
from uniot.benchmark.score_grid import Cell, ScoreGrid
from uniot.benchmark.significance import holm_corrected, sign_flip_p_value
from uniot.data.benchmark_sets import benchmark_set
from uniot.data.published_set import BenchmarkSet
from uniot.errors import DataError
from uniot.methods.registry import METHODS


@dataclass(frozen=True)
class Comparison:
    """The best method against another one.

    Attributes:
        n_pairs: tasks and seeds that both have a score for; pairs of a task that are exactly alike count once.
        p_value: of `sign_flip_p_value`, corrected after Holm for the number of methods that the best is compared
            with, though not for having been chosen as the best; None where there are too few pairs.
    """

    n_pairs: int
    p_value: float | None


@dataclass(frozen=True)
class Row:
    """A method.

    Attributes:
        method: its name.
        title: what a table calls it.
        cells: one for each column.
        comparison: with the best; None for the best itself, and where there is no best.
    """

    method: str
    title: str
    cells: tuple[Cell, ...]
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Table:
    """One score of several methods on the tasks of a data set.

    Attributes:
        caption: what a reader must know, in sentences.
        columns: tasks, and `AVERAGE` where there is more than one.
        rows: one for each method.
        best: method that is best in the last column; None where fewer than two have a score there.
        setting: that all numbers are of.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    best: str | None
    setting: str

    @property
    def has_p_values(self) -> bool:
        """Whether there were pairs enough for any method."""
        return any(row.comparison and row.comparison.p_value is not None for row in self.rows)


def make_tables(results: Iterable[Result], score: str = "h", *, dataset: str) -> list[Table]:
    """A table for each setting and backbone, in the order in which they come; the rest is that of `make_table`."""
    apart: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        apart.setdefault((result.setting, result.backbone), []).append(result)
    return [make_table(together, score, dataset=dataset) for together in apart.values()]


def make_table(
    results: Iterable[Result],
    score: str = "h",
    *,
    dataset: str,
    methods: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
) -> Table:
    """Mean and standard deviation over seeds of every method on every task.

    The mean over tasks is there only where every task has a score; its deviation is that of the means of each seed,
    and there only where every task has the same seeds.

    Args:
        results: of one setting and one backbone, at most one for each method, task and seed.
        score: one of `SCORES`.
        dataset: name or title of a published set, or of one's own. Only a published set in the setting of the paper
            has the paper's numbers beside it.
        methods: rows, in this order; those of the results if left out.
        tasks: columns, in this order; those of the results, in the order of the published set, if left out.
    """
    if score not in SCORES:
        raise DataError(f"there is no score called {score!r}. Take one of: {', '.join(SCORES)}.")
    known = _published(dataset)
    results = [
        result
        for result in results
        if (methods is None or result.method in methods) and (tasks is None or result.task in tasks)
    ]
    _check(results)
    methods = list(dict.fromkeys(methods or (result.method for result in results)))
    tasks = list(dict.fromkeys(tasks or _in_order([result.task for result in results], known)))
    beside = known if known and results[0].setting == paper_tables().setting else None
    grid = ScoreGrid(results, score, tasks, beside)
    rows = [Row(method, method_title(method), grid.cells(method)) for method in methods]
    best = _best_method(rows)
    rows = _with_best(rows)
    if best is not None:
        rows = _with_comparisons(rows, best, grid)
    columns = (*tasks, AVERAGE) if len(tasks) > 1 else tuple(tasks)
    caption = table_caption(
        f"{SCORES[score]} (%) on {known.title if known else dataset}",
        results,
        [cell for row in rows for cell in row.cells],
        best=None if best is None else method_title(best),
        n_pairs=[row.comparison.n_pairs for row in rows if row.comparison and row.comparison.p_value is not None],
    )
    return Table(caption, columns, tuple(rows), best, results[0].setting)


def _published(dataset: str) -> BenchmarkSet | None:
    try:
        return benchmark_set(dataset)
    except DataError:
        return None


def _check(results: Sequence[Result]) -> None:
    if not results:
        raise DataError("there is no result to make a table of. Give results of the methods and tasks asked for.")
    for name in ("setting", "backbone"):
        found = list(dict.fromkeys(getattr(result, name) for result in results))
        if len(found) > 1:
            raise DataError(
                f"the results are of more than one {name}: {', '.join(found)}. Give those of one, or call "
                "`make_tables`, which makes a table of each."
            )
    seen: set[tuple[str, str, int]] = set()
    for result in results:
        if (place := (result.method, result.task, result.seed)) in seen:
            raise DataError(f"there are two results of {result.job}. Give one.")
        seen.add(place)


def _in_order(tasks: Sequence[str], known: BenchmarkSet | None) -> list[str]:
    published = known.tasks if known else ()
    return [*(task for task in published if task in tasks), *(task for task in tasks if task not in published)]


def method_title(method: str) -> str:
    """What tables and figures call a method."""
    if method in METHODS:
        return METHODS[method].title
    return paper_tables().labels.get(method, method)


def _best_method(rows: Sequence[Row]) -> str | None:
    top = _largest([row.cells[-1] for row in rows])
    return next((row.method for row in rows if row.cells[-1] is top), None)


def _with_best(rows: Sequence[Row]) -> list[Row]:
    best = [_largest(column) for column in zip(*(row.cells for row in rows), strict=True)]
    marked = [
        tuple(
            # What looks alike is marked alike.
            replace(cell, is_best=top is not None and not cell.n_failed and cell.mean_text == top.mean_text)
            for cell, top in zip(row.cells, best, strict=True)
        )
        for row in rows
    ]
    return [replace(row, cells=cells) for row, cells in zip(rows, marked, strict=True)]


def _largest(column: Sequence[Cell]) -> Cell | None:
    """Cell of the largest mean; None where there is nothing to compare it with."""
    with_mean = [(cell.mean, cell) for cell in column if cell.mean is not None]
    whole = [(mean, cell) for mean, cell in with_mean if not cell.n_failed]
    return max(whole, key=lambda pair: pair[0])[1] if whole and len(with_mean) > 1 else None


def _with_comparisons(rows: Sequence[Row], best: str, grid: ScoreGrid) -> list[Row]:
    pairs = {row.method: grid.pairs(best, row.method) for row in rows if row.method != best}
    p_values = [sign_flip_p_value([one - two for one, two in found]) for found in pairs.values()]
    corrected = dict(zip(pairs, holm_corrected(p_values), strict=True))
    return [
        row
        if row.method == best
        else replace(row, comparison=Comparison(len(pairs[row.method]), corrected[row.method]))
        for row in rows
    ]
