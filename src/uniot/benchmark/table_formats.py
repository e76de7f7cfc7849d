"""A table as CSV, Markdown, LaTeX or HTML. Names come from anywhere, so each format escapes all text."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from uniot.benchmark.score_grid import Cell
from uniot.benchmark.tables import Row, Table
from uniot.errors import DataError
from uniot.run_folder import write_text


def write_table(path: Path, table: Table) -> None:
    """Writes a table in the format that the file's name ends with: .csv, .md, .tex or .html."""
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path} ends with {path.suffix!r}. Tables are written to {', '.join(FORMATS)} files.")
    write_text(path, FORMATS[path.suffix.lower()](table))


def to_csv(table: Table) -> str:
    """One line for each method, and for each task the mean, deviation, seeds, failed jobs and the paper's number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("", " deviation", " seeds", " failed", " paper")
    writer.writerow(["method", *(f"{name}{part}" for name in table.columns for part in parts), "p", "pairs"])
    for row in table.rows:
        numbers = [number for cell in row.cells for number in _csv_cells(cell)]
        against = row.comparison
        p_value = "" if against is None or against.p_value is None else f"{against.p_value:.6g}"
        writer.writerow([row.method, *numbers, p_value, "" if against is None else against.n_pairs])
    return text.getvalue()


def _csv_cells(cell: Cell) -> tuple[str, ...]:
    deviation, reported = ("" if number is None else f"{number:.2f}" for number in (cell.deviation, cell.reported))
    return cell.mean_text, deviation, str(cell.n_seeds), str(cell.n_failed), reported


def to_markdown(table: Table) -> str:
    """A table with pipes, the caption above it."""
    header = [_markdown(name) for name in _header(table)]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]
    for row in table.rows:
        cells = [_beside(f"**{_own(cell)}**" if cell.is_best else _own(cell), _paper(cell)) for cell in row.cells]
        lines.append([_markdown(row.title), *cells, *map(_markdown, _p_cells(table, row))])
    pipes = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_markdown(table.caption)}\n\n{pipes}\n"


def to_latex(table: Table) -> str:
    """A floating table, for documents that use the package booktabs."""
    header = [_latex(name) for name in _header(table)]
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_latex(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        rf"{' & '.join(header)} \\",
        r"\midrule",
    ]
    for row in table.rows:
        cells = [
            _beside(rf"\textbf{{{_latex(_own(cell))}}}" if cell.is_best else _latex(_own(cell)), _latex(_paper(cell)))
            for cell in row.cells
        ]
        lines.append(rf"{' & '.join([_latex(row.title), *cells, *map(_latex, _p_cells(table, row))])} \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def to_html(table: Table) -> str:
    """A figure that needs nothing but itself, to be put into a page."""
    header = "".join(f'<th scope="col">{_html(name)}</th>' for name in _header(table))
    lines = [
        '<figure class="uniot-table">',
        f"<style>{_STYLE}</style>",
        "<table>",
        f"<caption>{_html(table.caption)}</caption>",
        f"<thead><tr>{header}</tr></thead>",
        "<tbody>",
    ]
    for row in table.rows:
        cells = [f"<td>{_html_cell(cell)}</td>" for cell in row.cells]
        cells += [f"<td>{_html(text)}</td>" for text in _p_cells(table, row)]
        lines.append(f'<tr><th scope="row">{_html(row.title)}</th>{"".join(cells)}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>", "</figure>"]) + "\n"


def _html_cell(cell: Cell) -> str:
    own = _html(_own(cell))
    paper = f"<small>{_html(_paper(cell))}</small>" if cell.reported is not None else ""
    return _beside(f"<strong>{own}</strong>" if cell.is_best else own, paper)


def _header(table: Table) -> list[str]:
    return ["method", *table.columns, *(["p"] if table.has_p_values else [])]


def _own(cell: Cell) -> str:
    deviation = "" if cell.deviation is None else f" ± {cell.deviation:.2f}"
    failed = f" ({cell.n_failed} failed)" if cell.n_failed and cell.mean is not None else ""
    return f"{cell.mean_text}{deviation}{failed}"


def _paper(cell: Cell) -> str:
    return "" if cell.reported is None else f"[{cell.reported:.2f}]"


def _beside(own: str, paper: str) -> str:
    return f"{own} {paper}" if paper else own


def _p_cells(table: Table, row: Row) -> list[str]:
    """The last cell of a row, where the table has that column."""
    if not table.has_p_values:
        return []
    if row.comparison is None:
        return ["best" if row.method == table.best else "–"]
    p_value = row.comparison.p_value
    if p_value is None:
        return ["–"]
    return ["< 0.001" if p_value < 0.001 else f"{p_value:.3f}"]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    return _one_line(text).translate(_MARKDOWN)


def _latex(text: str) -> str:
    return _one_line(text).translate(_LATEX)


def _html(text: str) -> str:
    return html.escape(_one_line(text))


_MARKDOWN = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_{}#"}
    # Before these, a backslash means something else to one dialect or another.
    | {character: f"&#{ord(character)};" for character in "&<>[]|$~"}
)
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "±": r"$\pm$", "³": "$^3$", "–": "--"}
    # A row that opens with a bracket would be read as an option of the line break before it.
    | {"[": "{[}", "]": "{]}"}
)

_STYLE = (
    ".uniot-table{margin:1em 0;overflow-x:auto}"
    ".uniot-table table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".uniot-table caption{text-align:left;padding-bottom:.5em}"
    ".uniot-table th,.uniot-table td{padding:.2em .6em;text-align:right;white-space:nowrap}"
    ".uniot-table th:first-child{text-align:left}"
    ".uniot-table thead th{border-block:1px solid}"
    ".uniot-table tbody tr:last-child>*{border-bottom:1px solid}"
)

FORMATS: Mapping[str, Callable[[Table], str]] = {
    ".csv": to_csv,
    ".md": to_markdown,
    ".tex": to_latex,
    ".html": to_html,
}
"""How a file's name ends, to the function that writes a table so."""
