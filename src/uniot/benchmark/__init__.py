"""Every method on every task with every seed, and tables of what came of it beside the paper's numbers."""

from uniot.benchmark.reported import AVERAGE, PaperPart, PaperTables, paper_tables
from uniot.benchmark.results import SCORES, Result, read_results, write_results
from uniot.benchmark.score_grid import Cell
from uniot.benchmark.significance import holm_corrected, sign_flip_p_value
from uniot.benchmark.table_formats import FORMATS, to_csv, to_html, to_latex, to_markdown, write_table
from uniot.benchmark.tables import Comparison, Row, Table, make_table, make_tables

__all__ = [
    "AVERAGE",
    "FORMATS",
    "SCORES",
    "Cell",
    "Comparison",
    "PaperPart",
    "PaperTables",
    "Result",
    "Row",
    "Table",
    "holm_corrected",
    "make_table",
    "make_tables",
    "paper_tables",
    "read_results",
    "sign_flip_p_value",
    "to_csv",
    "to_html",
    "to_latex",
    "to_markdown",
    "write_results",
    "write_table",
]
