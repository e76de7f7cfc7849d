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
    found = SCRIPT["three_seeds"]()
    methods = {name for name, info in METHODS.items() if not info.variant_of} - set(SCRIPT["NEWEST"])
    seeds = Counter((one.method, one.dataset, one.setting, one.task) for one in found)
    office31, others = 4 * 6, 3 * 2
    assert {one.method for one in found} == methods
    assert len(seeds) == len(methods) * (office31 + others)
    assert set(seeds.values()) == {3}
    assert len({one.job for one in found}) == len(found)
    assert not [one.job for one in SCRIPT["every_result"]() if one.failure]


def test_the_newest_methods_have_one_seed_of_the_open_partial_tasks():
    found = [one for one in SCRIPT["every_result"]() if one.method in SCRIPT["NEWEST"] and one.seed in (0, 900)]
    tasks = Counter((one.method, one.dataset) for one in found if one.setting == "open-partial")
    numbers = {"office31": 6, "pacs": 2, "digits": 2, "plants": 2, "cells": 1}
    assert tasks == {(method, name): number for method in SCRIPT["NEWEST"] for name, number in numbers.items()}


def test_the_diagram_is_of_the_results():
    assert SCRIPT["diagram_is_current"](), "run python benchmarks/written_tables.py"


def test_a_diagram_with_another_rank_is_noticed(tmp_path, monkeypatch):
    text = SCRIPT["DIAGRAM"].read_text(encoding="utf-8")
    changed = tmp_path / "ranks.svg"
    changed.write_text(text.replace("UniNCM", "UniOT"), encoding="utf-8")
    monkeypatch.setitem(SCRIPT["diagram_is_current"].__globals__, "DIAGRAM", changed)
    assert not SCRIPT["diagram_is_current"]()


def test_table_of_the_private_share_by_hand():
    """Errors of 0.1 and 0.3 in one data set and 0 in the other: 20, 0, mean 10; an interval may be off by 0.02."""

    def row(dataset: str, true: float, share: float, low: float, high: float) -> dict[str, str]:
        numbers = {"true": true, "share": share, "low": low, "high": high, "seconds": 1.5}
        return {"dataset": dataset, "method": "bbe", **{name: str(value) for name, value in numbers.items()}}

    rows = [row("a", 0.5, 0.6, 0.51, 0.7), row("a", 0.5, 0.2, 0.1, 0.4), row("b", 0.0, 0.0, 0.0, 0.1)]
    # Every estimate of the table has rows; they are the same here.
    rows = [one | {"method": name} for name in SCRIPT["ESTIMATES"] for one in rows]
    header, _, first, *others = SCRIPT["private_share_table"](rows).splitlines()
    assert header.split(" | ")[1:4] == ["a", "b", "mean"]
    assert first.split(" | ")[1:] == ["20", "0", "10", "−7", "0", "–", "67", "0.20", "1.5 |"]
    assert len(others) == len(SCRIPT["ESTIMATES"]) - 1


def test_methods_without_a_rule_stand_apart():
    apart = SCRIPT["APART"]
    assert all("itself has no rule" in METHODS[name].rule for name in apart if name != "maths")
    assert not {one.method for one in SCRIPT["with_rule"]()} & {*apart}
    table = SCRIPT["without_rule"]()
    assert all(METHODS[name].title in table for name in apart)
