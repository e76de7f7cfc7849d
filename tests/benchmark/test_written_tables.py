"""The tables of the README and of the page of results are what the committed results say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "written_tables.py"))


@pytest.mark.parametrize("page", SCRIPT["PAGES"], ids=lambda page: page.name)
def test_tables_are_made_from_the_results(page: Path):
    text = page.read_text(encoding="utf-8")
    assert "<!-- table " in text
    assert SCRIPT["filled"](text) == text, "run python benchmarks/written_tables.py"


def test_a_table_that_was_changed_by_hand_is_made_anew():
    text = SCRIPT["PAGES"][0].read_text(encoding="utf-8")
    changed = text.replace("| UniOT | 8", "| UniOT | 9")
    assert changed != text
    assert SCRIPT["filled"](changed) == text


def test_the_whole_comparison_is_complete_and_no_job_failed():
    found = SCRIPT["results"]("open-partial")
    methods = {result.method for result in found}
    assert len(methods) == 14
    assert len(found) == 14 * 6 * 3
    assert not [result.job for result in (*found, *SCRIPT["results"]("settings")) if result.failure]
