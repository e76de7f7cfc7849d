"""Run methods on tasks with several seeds, and write tables of the results beside the paper's numbers."""

from uniot.benchmark.averages import MeanScore
from uniot.benchmark.reported_scores import AVERAGE, PaperPart, PaperTables, paper_tables
from uniot.benchmark.results import SCORES, Result, read_results, write_results
from uniot.benchmark.significance import holm_corrected, sign_flip_p_value
from uniot.benchmark.table_formats import FORMATS, to_csv, to_html, to_latex, to_markdown, write_table
from uniot.benchmark.tables import Comparison, MethodRow, Table, make_table, make_tables

__all__ = [
    "AVERAGE",
    "FORMATS",
    "SCORES",
    "Comparison",
    "MeanScore",
    "MethodRow",
    "PaperPart",
    "PaperTables",
    "Result",
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
