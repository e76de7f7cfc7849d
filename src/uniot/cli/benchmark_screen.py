"""What `uniot benchmark` shows and writes when the jobs are over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.cli.screen import console
from uniot.words import counted

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from uniot.benchmark.protocol import TaskSet
    from uniot.benchmark.runner import Summary
    from uniot.benchmark.score_grid import Cell
    from uniot.benchmark.studies import Study
    from uniot.benchmark.study_files import Finding
    from uniot.benchmark.tables import Table

_MOST_FAILURES = 20
# Columns of a table in a file, where no terminal sets the width.
_WIDTH_OF_A_FILE = 240


def show(summary: Summary, out: Path, dataset: str) -> list[Path]:
    """The H-scores on the screen, and every table in files."""
    from uniot.benchmark.table_files import write_tables
    from uniot.benchmark.tables import make_tables

    screen = console(_WIDTH_OF_A_FILE)
    for table in make_tables(summary.results, "h", dataset=dataset):
        screen.print(_on_screen(table))
        screen.print(table.caption)
    return write_tables(out, summary.results, dataset=dataset)


def show_study(study: Study, summary: Summary, out: Path, task_set: TaskSet) -> list[Path]:
    """What is varied against H on the screen; everything, with figures, in files."""
    from rich.table import Table as RichTable

    from uniot.benchmark.study_files import study_findings, write_study

    if not study.axes:
        tables = show(summary, out, task_set.name)
        return [*write_study(out, study, study_findings(study, summary.results, task_set.published)), *tables]
    findings = study_findings(study, summary.results)
    screen = console(_WIDTH_OF_A_FILE)
    for axis in study.axes:
        of_axis = [finding for finding in findings if (finding.axis, finding.score) == (axis.name, "h")]
        methods = list(dict.fromkeys(finding.method for finding in of_axis))
        shown = RichTable(box=None, pad_edge=False)
        for number, column in enumerate((axis.label, *methods)):
            shown.add_column(column, justify="right" if number else "left")
        for point in axis.points:
            cells = {finding.method: finding for finding in of_axis if finding.value == point.value}
            usual = " (usual)" if point.value == axis.usual else ""
            shown.add_row(f"{point.value:g}{usual}", *(_spread(cells[method]) for method in methods))
        screen.print(shown)
    screen.print("H-score, %: mean over the tasks ± standard deviation over the seeds.")
    return write_study(out, study, findings)


def _spread(finding: Finding) -> str:
    if finding.mean is None:
        return "failed" if finding.n_failed else "–"
    return f"{finding.mean:.1f}" if finding.deviation is None else f"{finding.mean:.1f} ± {finding.deviation:.1f}"


def conclude(summary: Summary, out: Path, written: list[Path]) -> None:
    """What failed, how many jobs there were, and where the numbers are."""
    screen = console()
    for failure in summary.failures[:_MOST_FAILURES]:
        screen.print(f"Failed: {failure.job}: {failure.reason} See {failure.folder}/")
    n_jobs, n_failed = len(summary.results), len(summary.failures)
    if n_failed > _MOST_FAILURES:
        screen.print(f"… and {n_failed - _MOST_FAILURES} more, each in results.csv with its reason")
    before = f", {summary.n_kept} of them before" if summary.n_kept else ""
    tops = dict.fromkeys(out / path.relative_to(out).parts[0] for path in written)
    names = [f"{top.name}/" if top.is_dir() else top.name for top in tops]
    screen.print(
        f"{n_jobs - n_failed} of {counted(n_jobs, 'job')} finished{before}. Every number is in {out / 'results.csv'}, "
        f"the rest in {', '.join(names)} beside it."
    )
    if n_failed:
        screen.print(
            f"Next: look into error.txt of {counted(n_failed, 'failed job')}; the same command runs them again."
        )


def _on_screen(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, pad_edge=False)
    for number, column in enumerate(("method", *table.columns)):
        shown.add_column(Text(column), justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(Text(row.title), *(Text(_cell(cell), "bold" if cell.is_best else "") for cell in row.cells))
    return shown


def _cell(cell: Cell) -> str:
    deviation = "" if cell.deviation is None else f" ± {cell.deviation:.1f}"
    failed = f" ({cell.n_failed} failed)" if cell.n_failed and cell.mean is not None else ""
    reported = "" if cell.reported is None else f" [{cell.reported:.1f}]"
    mean = cell.mean_text if cell.mean is None else f"{cell.mean:.1f}"
    # Where there are no bold letters, as in a file, the mark of Markdown tells the best.
    mark = "**" if cell.is_best and not sys.stdout.isatty() else ""
    return f"{mark}{mean}{deviation}{mark}{failed}{reported}"
