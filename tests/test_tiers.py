"""The tiers of the suite: what `make quick` and `make test` leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

import tiers
from processors import NUMERICAL
from uniot.methods.registry import METHODS

HERE = Path(__file__).parent
pytest_plugins = ["pytester"]


def test_places_of_the_tiers_exist():
    assert [name for name in (*tiers.MEDIUM, *NUMERICAL) if not (HERE / name).exists()] == []
    assert set(tiers.FAMILIES) <= set(METHODS)


def test_other_parameters_are_slow_and_keep_their_order():
    found = tiers.slow_unless([("a", 1), ("b", 2), "c"], [("b", 2)])
    assert [getattr(one, "values", one) for one in found] == [("a", 1), ("b", 2), ("c",)]
    assert [[mark.name for mark in getattr(one, "marks", ())] for one in found] == [["slow"], [], ["slow"]]


@pytest.mark.parametrize(("thorough", "expected"), [(False, [tiers.FEW_EXAMPLES, 5]), (True, [300, 5])])
def test_property_tests_have_few_examples_before_the_slow_tier(monkeypatch, thorough, expected):
    monkeypatch.setattr(tiers, "THOROUGH", thorough)
    assert [tiers.examples(count).max_examples for count in (300, 5)] == expected
    assert tiers.examples(5, derandomize=True).derandomize


def test_profile_is_that_of_the_tier():
    assert settings().max_examples == (100 if tiers.THOROUGH else tiers.FEW_EXAMPLES)


@pytest.mark.medium
@pytest.mark.parametrize("processes", [pytest.param((), marks=pytest.mark.slow), ("-n", "2")])
def test_summary_says_how_many_slow_tests_were_left_out(pytester, processes):
    hooks = (HERE / "conftest.py").read_text(encoding="utf-8")
    begin, end = hooks.index("LEFT_OUT = "), hooks.index("class Answer(")
    pytester.makeconftest("import pytest\nfrom pathlib import Path\nMEDIUM = ()\n" + hooks[begin:end])
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    medium\n")
    pytester.makepyfile(
        "import pytest\n"
        "def test_one(): pass\n"
        "@pytest.mark.slow\ndef test_two(): pass\n"
        "@pytest.mark.slow\ndef test_three(): pass\n"
    )
    result = pytester.runpytest_subprocess("-m", "not slow", *processes)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["Slow tests left out: 2. `make test-slow` runs them."])
