from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from uniot.benchmark.reported_scores import AVERAGE, PaperPart, paper_tables
from uniot.datasets.catalogue import benchmark_set

Place = tuple[str, str, str, str, str]
"""Table, data set, method, task and score of a number."""

# Tables in the order of the text; the appendix counts anew.
NUMBERS = ("1", "2", "3", "4", "S1", "S2", "S3")
DOMAINS = {"office31": "A D W", "office-home": "Ar Cl Pr Rw", "domainnet": "P R S"}
METHOD_OF_LABEL = {"ResNet": "source-only"}

# The only averages that are not the rounded mean of their row: what is printed, and the mean.
OTHER_AVERAGES = {
    ("1", "office31", "source-only"): (50.94, 50.95),
    ("1", "office31", "dance"): (66.62, 69.13),
    ("2", "office-home", "tnt"): (74.70, 74.68),
    ("3", "office-home", "source-only"): (46.18, 46.19),
}
# The only number that two tables give differently.
CONTRADICTIONS = {("visda", "uniot", "S2R", "h3_oracle"): {"S1": 47.23, "S3": 60.33}}


@pytest.fixture(scope="module")
def latex() -> list[str]:
    """Every table of the paper, as LaTeX."""
    data = Path(os.environ.get("UNIOT_DATA", Path(__file__).parents[3] / "shared" / "data"))
    paper = data.parent / "paper" / "uniot.tex"
    if not paper.is_file():
        pytest.skip(f"the paper is absent: {paper}; UNIOT_DATA names the folder beside paper/")
    return re.findall(r"\\begin\{table\*\}.*?\\end\{table\*\}", paper.read_text(encoding="utf-8"), re.S)


def rows_of(table: str) -> list[list[str]]:
    """Text of each cell, one for each column that it spans."""
    (body,) = re.findall(r"\\begin\{tabular\}\{@\{\}[lc|]+@\{\}\}(.*)\\end\{tabular\}", table, re.S)
    body = re.sub(r"\\(top|mid|bottom)rule|\\cmidrule\(\w+\)\{[\d-]+\}", "", body)
    return [[text for cell in row.split("&") for text in spread(cell)] for row in re.split(r"\\\\", body)]


def spread(cell: str) -> list[str]:
    spanning = re.fullmatch(r"\s*\\multicolumn\{(\d+)\}\{[lc|]+\}\{(.*)\}\s*", cell)
    number, text = (int(spanning[1]), spanning[2]) if spanning else (1, cell)
    text = re.sub(r"\\cite\{\w+\}|\\textbf\{\\ddag\}", "", text)
    while bold := re.search(r"\\textbf\{([^{}]*)\}", text):
        text = text.replace(bold[0], bold[1])
    return [text.strip()] * number


def is_number(text: str) -> bool:
    return re.fullmatch(r"-|\d+\.\d\d(\$\\pm\$\d\.\d\d)?", text) is not None


METHOD_OF_LOSSES = {
    "ccd+global+local": "uniot",
    "ccd+pcd": "uniot",
    "ccd": "uniot-without-pcd",
    "ccd+local": "uniot-without-global",
    "ccd+global": "uniot-without-local",
    "global+local": "uniot-without-ccd",
    "unfilled-ccd+global+local": "uniot-without-filling",
    "ccd+global+swav": "uniot-swav",
    "ccd+simsiam": "uniot-simsiam",
}


def task_of(headers: list[str]) -> str | None:
    """Lowest heading of a column that names a task, or VisDA, which has but one."""
    named = [text for text in headers if re.fullmatch(r"\w+2\w+|VisDA|Avg.*", text)]
    return named[-1] if named else None


def method_of(row: list[str], number: str) -> str:
    if number == "S2":
        return "uniot"
    if number == "4":
        losses = ("ccd", "unfilled-ccd", "global", "local")
        return variant([loss for loss, mark in zip(losses, row, strict=False) if mark])
    if number == "S3":
        return variant(re.findall(r"mathcal\{L\}_\{(\w+)\}", row[0].lower().replace("mathcal{l}", "mathcal{L}")))
    return METHOD_OF_LABEL.get(row[0], row[0].lower())


def variant(losses: list[str]) -> str:
    return METHOD_OF_LOSSES["+".join(losses)]


def numbers_of(table: str, number: str) -> dict[Place, str]:
    """Every cell of a table that holds a number, or the dash of a missing one."""
    (caption,) = re.findall(r"\\caption\{(.*?)\n\}", table, re.S)
    found: dict[Place, str] = {}
    headers: list[list[str]] = []
    below_numbers = False
    for row in rows_of(table):
        if not any(map(is_number, row)):
            headers = [row] if below_numbers else [*headers, row]
            below_numbers = False
            continue
        below_numbers = True
        dataset = ""
        for column, text in enumerate(row):
            above = [header[column] for header in headers if column < len(header)]
            task = task_of(above)
            if not is_number(text) or task is None:
                continue
            # An average stands to the right of its tasks.
            dataset = dataset if task.startswith("Avg") else dataset_of(task)
            score = "h3_oracle" if "H$^3$" in " ".join([*above, caption]) else "h"
            name = AVERAGE if task.startswith("Avg") else {"VisDA": "S2R"}.get(task, task)
            place = (number, dataset, method_of(row, number), name, score)
            assert place not in found
            found[place] = text
    return found


def dataset_of(task: str) -> str:
    if task == "VisDA":
        return "visda"
    (dataset,) = (name for name, letters in DOMAINS.items() if set(task.split("2")) <= set(letters.split()))
    return dataset


def shipped(kind: str) -> dict[Place, float]:
    """Every number of the file."""
    return {
        (part.table, part.dataset, method, column, part.score): number
        for part in paper_tables().parts
        for method, numbers in getattr(part, kind).items()
        for column, number in zip(part.columns, numbers, strict=True)
    }


def test_every_number_is_the_one_in_the_paper(latex):
    printed: dict[Place, str] = {}
    for number, table in zip(NUMBERS, latex, strict=True):
        printed |= numbers_of(table, number)
    printed = {place: text for place, text in printed.items() if text != "-"}
    assert shipped("rows") == {place: float(text.split("$")[0]) for place, text in printed.items()}
    assert shipped("deviations") == {
        place: float(text.rsplit("$")[-1]) for place, text in printed.items() if "$" in text
    }


def test_no_number_of_the_paper_is_left_out(latex):
    # Knows nothing of rows and columns, so that a cell cannot be overlooked in both readings.
    printed = re.findall(r"\d+\.\d\d(?!\\linewidth)", "".join(latex))
    numbers = [*shipped("rows").values(), *shipped("deviations").values()]
    assert Counter(map(float, printed)) == Counter(numbers)
    assert len(numbers) == 617


def test_a_dash_in_the_paper_is_no_number(latex):
    dashes = [place for number, table in zip(NUMBERS, latex, strict=True) for place in dashes_of(table, number)]
    assert len(dashes) == 15
    for _, dataset, method, task, score in dashes:
        assert paper_tables().reported(dataset, method, task, score) is None


def dashes_of(table: str, number: str) -> list[Place]:
    return [place for place, text in numbers_of(table, number).items() if text == "-"]


def test_tables_call_methods_by_their_labels(latex):
    printed = {
        row[0]
        for number, table in zip(NUMBERS, latex, strict=True)
        if number in ("1", "2", "3", "S1")
        for row in rows_of(table)
    }
    named = {label for method, label in paper_tables().labels.items() if not method.startswith("uniot-")}
    assert named == {label for label in printed if label}


WITH_AVERAGE = [part for part in paper_tables().parts if AVERAGE in part.columns and len(part.columns) > 3]


@pytest.mark.parametrize("part", WITH_AVERAGE, ids=lambda part: f"{part.table}-{part.dataset}")
def test_averages_are_the_means_of_their_rows(part: PaperPart):
    assert part.columns[-1] == AVERAGE
    assert part.columns[:-1] == benchmark_set(part.dataset).tasks
    for method, (*numbers, average) in part.rows.items():
        mean = sum(numbers) / len(numbers)
        if (part.table, part.dataset, method) in OTHER_AVERAGES:
            assert (average, round(mean, 2)) == OTHER_AVERAGES[part.table, part.dataset, method]
        else:
            assert abs(average - mean) < 0.005 + 1e-9, method


def test_tables_agree_where_they_give_the_same_number():
    given: dict[tuple[str, ...], dict[str, float]] = {}
    for (table, *rest), number in shipped("rows").items():
        given.setdefault(tuple(rest), {})[table] = number
    assert {place: of for place, of in given.items() if len(set(of.values())) > 1} == CONTRADICTIONS
    # Table S2 repeats 20, Table 4 six of H³, Table S3 eight.
    assert sum(len(of) > 1 for of in given.values()) == 34


def test_parts_speak_the_names_of_the_library():
    tables = paper_tables()
    for part in tables.parts:
        known = benchmark_set(part.dataset)
        assert part.dataset == known.name
        assert set(part.columns) <= {*known.tasks, AVERAGE}
        assert tables.setting in known.splits
        assert part.score in ("h", "h3_oracle")
        assert set(part.rows) <= set(tables.labels)
        assert all(0 < number < 100 for numbers in part.rows.values() for number in numbers)


@pytest.mark.parametrize(
    ("dataset", "method", "task", "score", "number"),
    [
        ("office31", "uniot", "A2W", "h", 88.48),
        ("office31", "uniot", AVERAGE, "h", 91.13),
        ("office31", "source-only", "W2D", "h3_oracle", 61.32),
        ("visda", "uniot", "S2R", "h", 57.32),
        ("domainnet", "uniot", "S2R", "h", 58.25),
        ("domainnet", "tnt", "S2R", "h", None),
        ("office31", "uniot", "A2W", "h3_honest", None),
        ("office31", "ovanet", "A2W", "h", None),
        ("office31", "uniot", "P2R", "h", None),
        ("digits", "uniot", "A2W", "h", None),
    ],
)
def test_a_number_is_found_by_its_place(dataset, method, task, score, number):
    assert paper_tables().reported(dataset, method, task, score) == number


def test_a_comparison_of_methods_counts_before_an_ablation():
    assert paper_tables().reported("visda", "uniot", "S2R", "h3_oracle") == 47.23


def test_deviations_are_reported_where_the_paper_has_them():
    tables = paper_tables()
    assert tables.reported_deviation("office31", "uniot", "A2D", "h") == 1.08
    assert tables.reported_deviation("office-home", "uniot", AVERAGE, "h") == 0.17
    assert tables.reported_deviation("visda", "uniot", "S2R", "h") is None
