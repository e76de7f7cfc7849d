"""The tables of the README and of the page of results are what the committed results say."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

from uniot.methods.registry import METHODS

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


def test_every_method_has_results_of_every_task_and_no_job_failed():
    found = SCRIPT["every_result"]()
    methods = {name for name, info in METHODS.items() if not info.variant_of} - set(SCRIPT["NOT_RUN_YET"])
    seeds = Counter((one.method, one.dataset, one.setting, one.task) for one in found)
    office31, others = 4 * 6, 3 * 2
    assert {one.method for one in found} == methods
    assert len(seeds) == len(methods) * (office31 + others)
    assert set(seeds.values()) == {3}
    assert len({one.job for one in found}) == len(found)
    assert not [one.job for one in found if one.failure]


def test_the_diagram_is_of_the_results():
    assert SCRIPT["diagram_is_current"](), "run python benchmarks/written_tables.py"


def test_a_diagram_with_another_rank_is_noticed(tmp_path, monkeypatch):
    text = SCRIPT["DIAGRAM"].read_text(encoding="utf-8")
    changed = tmp_path / "ranks.svg"
    changed.write_text(text.replace("UniNCM", "UniOT"), encoding="utf-8")
    monkeypatch.setitem(SCRIPT["diagram_is_current"].__globals__, "DIAGRAM", changed)
    assert not SCRIPT["diagram_is_current"]()
