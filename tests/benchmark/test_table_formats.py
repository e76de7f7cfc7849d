from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser

import pytest

from uniot.benchmark.averages import MeanScore
from uniot.benchmark.table_formats import FORMATS, to_csv, to_html, to_latex, to_markdown, write_table
from uniot.benchmark.tables import Comparison, MethodRow, Table
from uniot.errors import DataError

BEST = MeanScore(mean=86.314, deviation=0.42, n_seeds=3, reported=88.48, is_best=True)
PARTLY = MeanScore(mean=60.0, n_seeds=1, n_failed=2)
MISSING = MeanScore(reported=85.7)
GONE = MeanScore(n_failed=3)

TABLE = Table(
    caption="H³-score (%), 3 seeds. Mean ± deviation.",
    columns=("A2D", "average"),
    rows=(
        MethodRow("uniot", "UniOT", (BEST, BEST)),
        MethodRow("dann", "DANN", (PARTLY, GONE), Comparison(9, 0.0312)),
        MethodRow("tnt", "TNT", (MISSING, MeanScore()), Comparison(0, None)),
        MethodRow("uan", "UAN", (PARTLY, GONE), Comparison(18, 2e-5)),
    ),
    best="uniot",
    setting="open-partial",
)
HOSTILE = r"""a|b & <script>alert("1")</script> 50% $x$ #1 _i_ *j* `k` {l} ~m^n \o [p](q)
r"""


def hostile() -> Table:
    return Table(HOSTILE, (HOSTILE,), (MethodRow(HOSTILE, HOSTILE, (BEST,)),), None, HOSTILE)


def test_markdown_has_a_line_for_each_method():
    assert to_markdown(TABLE) == (
        "H³-score (%), 3 seeds. Mean ± deviation.\n\n"
        "| method | A2D | average | p |\n"
        "| :-- | --: | --: | --: |\n"
        "| UniOT | **86.31 ± 0.42** [88.48] | **86.31 ± 0.42** [88.48] | best |\n"
        "| DANN | 60.00 (2 failed) | failed | 0.031 |\n"
        "| TNT | – [85.70] | – | – |\n"
        "| UAN | 60.00 (2 failed) | failed | &#60; 0.001 |\n"
    )


def test_latex_is_a_booktabs_table():
    assert to_latex(TABLE).splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{H$^3$-score (\%), 3 seeds. Mean $\pm$ deviation.}",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"method & A2D & average & p \\",
        r"\midrule",
        r"UniOT & \textbf{86.31 $\pm$ 0.42} {[}88.48{]} & \textbf{86.31 $\pm$ 0.42} {[}88.48{]} & best \\",
        r"DANN & 60.00 (2 failed) & failed & 0.031 \\",
        r"TNT & -- {[}85.70{]} & -- & -- \\",
        r"UAN & 60.00 (2 failed) & failed & $<$ 0.001 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_csv_keeps_numbers_apart():
    first, *_, second = csv.DictReader(io.StringIO(to_csv(TABLE)))
    assert first == {
        "method": "uniot",
        "A2D": "86.31",
        "A2D deviation": "0.42",
        "A2D seeds": "3",
        "A2D failed": "0",
        "A2D paper": "88.48",
        "average": "86.31",
        "average deviation": "0.42",
        "average seeds": "3",
        "average failed": "0",
        "average paper": "88.48",
        "p": "",
        "pairs": "",
    }
    assert (second["A2D"], second["A2D failed"], second["average"]) == ("60.00", "2", "failed")
    assert (second["p"], second["pairs"]) == ("2e-05", "18")


class Reader(HTMLParser):
    """Text of every cell, with the elements that are open around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.seen.append((self.open[-1], data.strip()))


def test_html_is_whole_and_marks_the_best():
    page = Reader(to_html(TABLE))
    assert page.open == []
    said = [(tag, text) for tag, text in page.seen if tag != "style"]
    assert said[:6] == [
        ("caption", TABLE.caption),
        *(("th", name) for name in ("method", "A2D", "average", "p")),
        ("th", "UniOT"),
    ]
    assert said[6:11] == [("strong", "86.31 ± 0.42"), ("small", "[88.48]")] * 2 + [("td", "best")]
    assert said[-4:] == [("th", "UAN"), ("td", "60.00 (2 failed)"), ("td", "failed"), ("td", "< 0.001")]


def test_html_asks_for_nothing_from_elsewhere():
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script", to_html(TABLE))


def test_html_shows_hostile_names_as_text():
    page = Reader(to_html(hostile()))
    assert page.open == []
    assert [text for tag, text in page.seen if tag in ("caption", "th")].count(" ".join(HOSTILE.split())) == 3
    assert "<script" not in to_html(hostile())


def test_markdown_keeps_hostile_names_in_their_cells():
    header, rule, line = to_markdown(hostile()).splitlines()[2:]
    assert [text.count("|") for text in (header, rule, line)] == [3, 3, 3]
    name = line.split("|")[1].strip()
    assert not re.search(r"[<>\[\]$~]", name)
    assert not re.search(r"(?<!\\)[*_`{}]", name)
    assert r"\\o" in name


def test_latex_escapes_what_is_special_to_it():
    name = to_latex(hostile()).splitlines()[8].split(r" \\")[0]
    for written in (r"\&", r"50\%", r"\$x\$", r"\#1", r"\_i\_", r"\{l\}", r"\textasciitilde{}m\textasciicircum{}n"):
        assert written in name
    assert r"\textbackslash{}o {[}p{]}(q) r & \textbf" in name
    # The only cell separators are those of the table.
    assert len(re.findall(r"(?<!\\)&", name)) == 1


def test_a_table_without_tests_has_no_column_for_them():
    untested = Table(
        "c",
        ("A2D",),
        (MethodRow("uniot", "UniOT", (BEST,)), MethodRow("tnt", "TNT", (GONE,), Comparison(1, None))),
        "uniot",
        "open",
    )
    assert "| method | A2D |\n" in to_markdown(untested)
    assert "| TNT | failed |\n" in to_markdown(untested)
    assert r"\begin{tabular}{lr}" in to_latex(untested)
    assert "best" not in to_html(untested)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_is_written_in_the_format_of_its_name(tmp_path, ending):
    path = tmp_path / f"table{ending.upper()}"
    write_table(path, TABLE)
    assert path.read_text(encoding="utf-8") == FORMATS[ending](TABLE)


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(DataError, match="ends with '.xlsx'. Tables are written to .csv, .md, .tex, .html files"):
        write_table(tmp_path / "table.xlsx", TABLE)
    assert not list(tmp_path.iterdir())
