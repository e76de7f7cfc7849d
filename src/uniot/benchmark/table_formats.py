"""Write tables as CSV, Markdown, LaTeX or HTML. Names are arbitrary user text, so each format escapes all text."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from uniot.benchmark.averages import MeanScore
from uniot.benchmark.results import SCORES, Result
from uniot.benchmark.tables import MethodRow, Table, make_tables
from uniot.errors import DataError
from uniot.io.csv_tables import table_text
from uniot.io.files import write_text


def write_table(path: Path, table: Table) -> None:
    """Write a table in the format of the file name's suffix: .csv, .md, .tex or .html."""
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path} ends with {path.suffix!r}. Tables are written to {', '.join(FORMATS)} files.")
    write_text(path, FORMATS[path.suffix.lower()](table))


def to_csv(table: Table) -> str:
    """Return the table as CSV: per method and task the mean, deviation, seeds, failed jobs and the paper's number."""
    parts = ("", " deviation", " seeds", " failed", " paper")
    columns = ["method", *(f"{name}{part}" for name in table.columns for part in parts), "p", "pairs"]
    rows = []
    for row in table.rows:
        numbers = [number for cell in row.cells for number in _csv_cells(cell)]
        against = row.comparison
        p_value = "" if against is None or against.p_value is None else f"{against.p_value:.6g}"
        rows.append([row.method, *numbers, p_value, "" if against is None else against.n_pairs])
    return table_text(columns, rows)


def _csv_cells(cell: MeanScore) -> tuple[str, ...]:
    deviation, reported = ("" if number is None else f"{number:.2f}" for number in (cell.deviation, cell.reported))
    return cell.mean_text, deviation, str(cell.n_seeds), str(cell.n_failed), reported


def to_markdown(table: Table) -> str:
    """Return the table as Markdown, with the caption above it."""
    header = [_markdown(name) for name in _header(table)]
    lines = [header, [":--", *["--:"] * (len(header) - 1)]]
    for row in table.rows:
        cells = [_beside(f"**{_own(cell)}**" if cell.is_best else _own(cell), _paper(cell)) for cell in row.cells]
        lines.append([_markdown(row.title), *cells, *map(_markdown, _p_cells(table, row))])
    pipes = "\n".join(map(markdown_row, lines))
    return f"{_markdown(table.caption)}\n\n{pipes}\n"


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table; a pipe in a cell is escaped."""
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def to_latex(table: Table) -> str:
    """Return the table as a LaTeX float, for documents that use the package booktabs."""
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
    """Return the table as an HTML figure with its own style."""
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


def _html_cell(cell: MeanScore) -> str:
    own = _html(_own(cell))
    paper = f"<small>{_html(_paper(cell))}</small>" if cell.reported is not None else ""
    return _beside(f"<strong>{own}</strong>" if cell.is_best else own, paper)


def _header(table: Table) -> list[str]:
    return ["method", *table.columns, *(["p"] if table.has_p_values else [])]


def _own(cell: MeanScore) -> str:
    deviation = "" if cell.deviation is None else f" ± {cell.deviation:.2f}"
    failed = f" ({cell.n_failed} failed)" if cell.n_failed and cell.mean is not None else ""
    return f"{cell.mean_text}{deviation}{failed}"


def _paper(cell: MeanScore) -> str:
    return "" if cell.reported is None else f"[{cell.reported:.2f}]"


def _beside(own: str, paper: str) -> str:
    return f"{own} {paper}" if paper else own


def _p_cells(table: Table, row: MethodRow) -> list[str]:
    """Return the last cell of a row if the table has p-values."""
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
    # Not every dialect of Markdown escapes these with a backslash.
    | {character: f"&#{ord(character)};" for character in "&<>[]|$~"}
)
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "±": r"$\pm$", "³": "$^3$", "–": "--"}
    # LaTeX reads a bracket at the start of a row as an option of the preceding line break.
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
"""Functions that format a table, by the suffix of the file."""
TABLES = "tables"
"""Name of the files with all tables, and of the folder of the CSV files."""


def write_tables(out: Path, results: Sequence[Result], *, dataset: str) -> list[Path]:
    """Write a table per score and setting.

    All tables are written to tables.md, tables.tex and tables.html, and each to tables/SETTING-SCORE.csv.

    Args:
        out: folder of the benchmark.
        results: results of one data set and one backbone.
        dataset: name of the data set.

    Returns:
        The files with all tables, and the folder of the CSV files.
    """
    made = {score: make_tables(results, score, dataset=dataset) for score in SCORES}
    tables = [(score, table) for score, of_settings in made.items() for table in of_settings if _has_numbers(table)]
    all_in_one: dict[str, Callable[[Table], str]] = {".md": to_markdown, ".tex": to_latex, ".html": to_html}
    written = []
    for suffix, text_of in all_in_one.items():
        text = "\n".join(text_of(table) for _, table in tables)
        path = out / f"{TABLES}{suffix}"
        write_text(path, _page(text, dataset) if suffix == ".html" else text)
        written.append(path)
    (out / TABLES).mkdir(exist_ok=True)
    for score, table in tables:
        write_text(out / TABLES / f"{table.setting}-{score}.csv", to_csv(table))
    return [*written, out / TABLES]


def _has_numbers(table: Table) -> bool:
    """Return whether the table has any number: without private classes, some scores are undefined."""
    return any(cell.mean is not None for row in table.rows for cell in row.cells)


def _page(body: str, title: str) -> str:
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    style = "<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:2em}</style>"
    head += f"<title>{html.escape(title)}</title>{style}"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n'
