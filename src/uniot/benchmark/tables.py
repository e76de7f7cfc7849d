"""Make tables of results: a row per method, a column per task, and p-values of the best method against the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from uniot.benchmark.averages import MeanScore, ScoreGrid
from uniot.benchmark.reported_scores import AVERAGE, paper_tables
from uniot.benchmark.results import SCORES, Result
from uniot.benchmark.significance import holm_corrected, sign_flip_p_value
from uniot.datasets.catalogue import BenchmarkSet, benchmark_set
from uniot.errors import DataError
from uniot.io.text import listed
from uniot.methods.registry import METHODS


def table_caption(
    what: str, results: Sequence[Result], cells: Sequence[MeanScore], *, best: str | None, n_pairs: Sequence[int]
) -> str:
    """Return the caption of a table.

    Args:
        what: score and data set.
        results: results of one setting and one backbone.
        cells: cells of the table.
        best: title of the method that the others are compared with.
        n_pairs: number of pairs of each comparison that has a p-value.
    """
    setting, backbone = results[0].setting, results[0].backbone
    ran = [result for result in results if not result.failure] or results
    sentences = [f"{what}, {setting}.", f"Backbone: {backbone}; {_span([result.steps for result in ran], 'step')}."]
    n_seeds = [cell.n_seeds for cell in cells if cell.mean is not None]
    if n_seeds:
        spread = "Mean ± standard deviation over" if max(n_seeds) > 1 else "From"
        sentences.append(f"{spread} {_span(n_seeds, 'seed')}.")
    if any(cell.is_best for cell in cells):
        sentences.append("Bold: best of its column.")
    if any(cell.n_failed for cell in cells):
        sentences.append("If jobs failed, the mean is over the others and never bold.")
    if any(cell.reported is not None for cell in cells):
        paper = paper_tables()
        sentences.append(
            f"In brackets: as the paper reports ({paper.backbone}; {paper.labels['uniot']} with {paper.steps} steps)."
        )
    if best is not None and n_pairs:
        sentences.append(
            f"p: {best} against each other method, two-sided sign-flip test over {_span(n_pairs, 'pair')} of task and "
            "seed, corrected after Holm for the number of methods, not for the choice of the best."
        )
    return " ".join(sentences)


def _span(numbers: Sequence[int], unit: str) -> str:
    low, high = min(numbers), max(numbers)
    amount = f"{low}" if low == high else f"{low} to {high}"
    return f"{amount} {unit}" if high == 1 else f"{amount} {unit}s"


@dataclass(frozen=True)
class Comparison:
    """Comparison of the best method with another one.

    Attributes:
        n_pairs: number of tasks and seeds for which both have a score; equal pairs of a task count once.
        p_value: `sign_flip_p_value` with Holm's correction for the number of methods, but not for the choice of the
            best; None for too few pairs.
    """

    n_pairs: int
    p_value: float | None


@dataclass(frozen=True)
class MethodRow:
    """Row of a table: the scores of a method.

    Attributes:
        method: name of the method.
        title: name in the table.
        cells: one cell per column.
        comparison: comparison with the best method; None for the best, or if there is none.
    """

    method: str
    title: str
    cells: tuple[MeanScore, ...]
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Table:
    """One score of several methods on the tasks of a data set.

    Attributes:
        caption: caption.
        columns: tasks, and `AVERAGE` if there are several.
        rows: one row per method.
        best: best method in the last column; None if fewer than two methods have a score there.
        setting: setting of all numbers.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[MethodRow, ...]
    best: str | None
    setting: str

    @property
    def has_p_values(self) -> bool:
        """Return whether any comparison has a p-value."""
        return any(row.comparison and row.comparison.p_value is not None for row in self.rows)


def make_tables(results: Iterable[Result], score: str = "h", *, dataset: str) -> list[Table]:
    """Return a table per setting and backbone, in the order of the results; see `make_table`."""
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
    """Return the means and standard deviations over seeds of every method on every task.

    The mean over tasks needs a score of every task. Its deviation is that of the means per seed, and needs the same
    seeds in every task.

    Args:
        results: results of one setting and one backbone, at most one per method, task and seed.
        score: one of `SCORES`.
        dataset: name or title of the data set. The paper's numbers are shown beside those of a published data set in
            the paper's setting.
        methods: rows, in this order; those of the results if None.
        tasks: columns, in this order; those of the results if None.
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
    rows = [MethodRow(method, method_title(method), grid.cells(method)) for method in methods]
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
        raise DataError("there is no result to make a table of. Give results of these methods and tasks.")
    for name in ("setting", "backbone"):
        found = list(dict.fromkeys(getattr(result, name) for result in results))
        if len(found) > 1:
            raise DataError(
                f"the results are of more than one {name}: {listed(found)}. Give those of one, or call "
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
    """Return the name of a method in tables and figures."""
    if method in METHODS:
        return METHODS[method].title
    return paper_tables().labels.get(method, method)


def _best_method(rows: Sequence[MethodRow]) -> str | None:
    top = _largest([row.cells[-1] for row in rows])
    return next((row.method for row in rows if row.cells[-1] is top), None)


def _with_best(rows: Sequence[MethodRow]) -> list[MethodRow]:
    best = [_largest(column) for column in zip(*(row.cells for row in rows), strict=True)]
    marked = [
        tuple(
            # Cells that show the same number are marked alike.
            replace(cell, is_best=top is not None and not cell.n_failed and cell.mean_text == top.mean_text)
            for cell, top in zip(row.cells, best, strict=True)
        )
        for row in rows
    ]
    return [replace(row, cells=cells) for row, cells in zip(rows, marked, strict=True)]


def _largest(column: Sequence[MeanScore]) -> MeanScore | None:
    """Return the cell of the largest mean; None if fewer than two cells have a mean."""
    with_mean = [(cell.mean, cell) for cell in column if cell.mean is not None]
    whole = [(mean, cell) for mean, cell in with_mean if not cell.n_failed]
    return max(whole, key=lambda pair: pair[0])[1] if whole and len(with_mean) > 1 else None


def _with_comparisons(rows: Sequence[MethodRow], best: str, grid: ScoreGrid) -> list[MethodRow]:
    pairs = {row.method: grid.pairs(best, row.method) for row in rows if row.method != best}
    p_values = [sign_flip_p_value([one - two for one, two in found]) for found in pairs.values()]
    corrected = dict(zip(pairs, holm_corrected(p_values), strict=True))
    against = {method: Comparison(len(found), corrected[method]) for method, found in pairs.items()}
    return [replace(row, comparison=against.get(row.method)) for row in rows]
