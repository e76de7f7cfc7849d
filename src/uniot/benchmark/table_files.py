"""All tables of a benchmark as files: one for a reader of each kind, and a CSV of each table."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path

from uniot.benchmark.results import SCORES, Result
from uniot.benchmark.table_formats import to_csv, to_html, to_latex, to_markdown
from uniot.benchmark.tables import Table, make_tables
from uniot.run_folder import write_text

TABLES = "tables"
"""Name of the files that hold all tables, and of the folder of the CSV files."""


def write_tables(out: Path, results: Sequence[Result], *, dataset: str) -> list[Path]:
    """Writes a table of every score and setting, and returns where.

    Into tables.md, tables.tex and tables.html, which hold all of them; and each as tables/SETTING-SCORE.csv.

    Args:
        out: folder for them.
        results: of one data set and one backbone.
        dataset: its name.
    """
    made = {score: make_tables(results, score, dataset=dataset) for score in SCORES}
    tables = [(score, table) for score, of_settings in made.items() for table in of_settings if _says(table)]
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


def _says(table: Table) -> bool:
    """Whether there is any number in it: without private classes, some scores have no value."""
    return any(cell.mean is not None for row in table.rows for cell in row.cells)


def _page(body: str, title: str) -> str:
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    style = "<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:2em}</style>"
    head += f"<title>{html.escape(title)}</title>{style}"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n'
