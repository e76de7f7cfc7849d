from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.benchmark.results import SCORES, Result, read_results, write_results
from uniot.errors import DataError

DONE = Result(
    method="uniot",
    task="A2W",
    seed=1,
    setting="open-partial",
    backbone="resnet50, frozen",
    steps=1000,
    seconds=31.25,
    h=0.8125,
    h3_oracle=0.75,
    h3_honest=0.7,
    nmi_oracle=0.65,
    common_accuracy=0.9,
    unknown_recall=0.74,
    auroc=0.95,
    oscr=0.85,
    n_groups=12,
    n_private_true=11,
    h_oracle=0.875,
    nothing_rejected=0.95,
    true_accuracy=0.8,
    estimated_accuracy=0.75,
    warned=False,
    h_oracle_selection=0.83,
    cpu_seconds=30.5,
    version="0.2.0",
    dataset="office31",
)
FAILED = Result(
    method="dcc", task="A2W", seed=0, setting="open-partial", backbone="b", steps=9, seconds=0.5, failure="no memory"
)

FURTHER_SCORES = ("h_oracle", "nothing_rejected", "true_accuracy", "estimated_accuracy", "h_oracle_selection")
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda text: len(text.splitlines()) == 1 and text.splitlines() == [text]
)
shares = st.none() | st.floats(0, 1)
results = st.builds(
    Result,
    method=words,
    task=words,
    seed=st.integers(0, 2**63 - 1),
    setting=words,
    backbone=words,
    steps=st.integers(0, 10**7),
    seconds=st.floats(0, 1e9),
    n_groups=st.none() | st.integers(0, 1000),
    n_private_true=st.none() | st.integers(0, 1000),
    warned=st.none() | st.booleans(),
    dataset=st.just("") | words,
    cpu_seconds=st.none() | st.floats(0, 1e9),
    version=st.just("") | words,
    h=st.floats(0, 1),
    **dict.fromkeys([name for name in (*SCORES, *FURTHER_SCORES) if name != "h"], shares),
)


@given(st.lists(results, max_size=4))
def test_results_come_back_from_csv_as_they_were(tmp_path_factory, written):
    path = tmp_path_factory.getbasetemp() / "results.csv"
    write_results(path, [*written, FAILED])
    assert read_results(path) == [*written, FAILED]


def test_a_job_is_a_line_and_what_it_does_not_have_is_empty(tmp_path):
    path = tmp_path / "results.csv"
    write_results(path, [DONE, FAILED])
    header, done, failed = path.read_text().splitlines()
    assert header.split(",") == [field.name for field in fields(Result)]
    scores = "0.8125,0.75,0.7,0.65,0.9,0.74,0.95,0.85,12,11,0.875,0.95,0.8,0.75,False,0.83,30.5,0.2.0"
    assert done == f'uniot,A2W,1,open-partial,"resnet50, frozen",1000,31.25,{scores},office31,'
    assert failed == f"dcc,A2W,0,open-partial,b,9,0.5{',' * 20}no memory"


def test_a_failure_of_many_lines_is_one_line_of_the_file(tmp_path):
    path = tmp_path / "results.csv"
    write_results(path, [replace(FAILED, failure="99 %\r100 %\nno memory, again\n"), DONE])
    assert len(path.read_text().splitlines()) == 3
    assert [result.failure for result in read_results(path)] == ["99 % 100 % no memory, again", ""]


def test_columns_may_stand_in_any_order_beside_others(tmp_path):
    path = tmp_path / "results.csv"
    write_results(path, [DONE])
    header, line = (text.replace('"resnet50, frozen"', "b").split(",") for text in path.read_text().splitlines())
    path.write_text("\n".join(",".join(["note", *cells[::-1]]) for cells in (header, line)), encoding="utf-8-sig")
    assert read_results(path) == [replace(DONE, backbone="b")]


def test_a_file_that_a_spreadsheet_saved_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "results.csv"
    write_results(path, [DONE, FAILED])
    path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert read_results(path) == [DONE, FAILED]


@pytest.mark.parametrize("cell", ['"resnet50, frozen" pool', '"resnet50, frozen'])
def test_a_cell_with_a_broken_quote_is_refused(tmp_path, cell):
    path = tmp_path / "results.csv"
    write_results(path, [DONE])
    path.write_text(path.read_text().replace('"resnet50, frozen"', cell))
    with pytest.raises(DataError, match="cannot be read as UTF-8 text with commas"):
        read_results(path)


def test_a_file_without_a_column_is_refused_with_its_name(tmp_path):
    path = tmp_path / "results.csv"
    write_results(path, [DONE, FAILED])
    path.write_text(path.read_text().replace("nmi_oracle,", "nmi,"))
    with pytest.raises(DataError, match="has no column nmi_oracle. Results have the columns method, task"):
        read_results(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"h": 81.25}, "uniot on A2W .* with seed 1 has 81.25 as h. Give a fraction from 0 to 1, or None"),
        ({"auroc": float("nan")}, "has nan as auroc"),
        ({"oscr": -0.1}, "has -0.1 as oscr"),
        ({"h_oracle": 1.5}, "on A2W of office31 .* has 1.5 as h_oracle"),
        ({"h": None}, "has no h, and no reason of a failure"),
        ({"h": None, "failure": " \n"}, "has no h, and no reason of a failure"),
        ({"failure": "killed"}, r"failed \(killed\) and has scores"),
        ({"task": ""}, "a result has '' as task. Give a name, in one line."),
        ({"method": "a\rb"}, r"a result has 'a\\rb' as method. Give a name, in one line."),
        ({"seed": -1}, "has -1 as seed. Give a number from 0 on"),
        ({"seconds": float("inf")}, "has inf as seconds"),
        ({"cpu_seconds": -1.0}, "has -1.0 as cpu_seconds"),
    ],
)
def test_a_result_that_cannot_be_is_refused(changes, words):
    with pytest.raises(DataError, match=words):
        replace(DONE, **changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("0.8125", "81.25"), "line 2: uniot on A2W .* has 81.25 as h"),
        (("0.8125", "good"), "line 2 has 'good' as h. Give a number"),
        ((",1000,", ",many,"), "line 2 has 'many' as steps. Give a whole number"),
        ((",31.25,", ",,"), "line 2 has '' as seconds. Give a number"),
        ((",False,", ",maybe,"), "line 2 has 'maybe' as warned. Give True or False"),
        ((",0.95,0.85,12,", ""), "line 2 does not have one cell per column"),
        ((",0.95,", ",0.95,0.95,"), "line 2 does not have one cell per column"),
        (("method,task", "name,task"), "has no column method. Results have the columns method, task, seed"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path, change, words):
    path = tmp_path / "results.csv"
    write_results(path, [DONE])
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(DataError, match=words):
        read_results(path)


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path):
    path = tmp_path / "results.csv"
    with pytest.raises(DataError, match="cannot be read as UTF-8 text with commas"):
        read_results(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read as UTF-8 text with commas"):
        read_results(path)
    path.write_text("")
    with pytest.raises(DataError, match="has no column method, task"):
        read_results(path)


def test_a_score_is_asked_for_by_name():
    assert DONE.score("h3_honest") == 0.7
    with pytest.raises(DataError, match="no score called 'accuracy'. Take one of: h, h3_oracle, h3_honest"):
        DONE.score("accuracy")
