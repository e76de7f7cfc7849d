"""The list of mutants fits the sources, and a mutant is killed only by a test that fails."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "mutants.py"))
Mutant, faults, outcome = SCRIPT["Mutant"], SCRIPT["faults"], SCRIPT["outcome"]


def test_every_mutant_changes_a_text_that_the_sources_have_once():
    assert faults(SCRIPT["mutants"]()) == []


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A module of one line, with a test that needs half of it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src" / "small.py").write_text("A, B, C = 1, 2, 1\n", encoding="utf-8")
    test = "from small import A, B\n\n\ndef test_sum():\n    assert A + B == 3\n"
    (tmp_path / "tests" / "test_small.py").write_text(test, encoding="utf-8")
    return tmp_path


def mutant(old: str, new: str, test: str = "tests/test_small.py") -> Mutant:
    return Mutant("name", "about", "src/small.py", old, new, (test,))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (mutant("D", "1"), "src/small.py has 0 times 'D', not once"),
        (mutant("1", "2"), "src/small.py has 2 times '1', not once"),
        (mutant("C", "C"), "nothing is changed"),
        (mutant("C", "D", "tests/test_large.py"), "there is no tests/test_large.py"),
    ],
)
def test_mutant_that_no_longer_fits_is_named(sources, wrong, words):
    assert faults([wrong], sources) == [f"name: {words}"]


def test_name_that_is_given_twice_is_named(sources):
    assert faults([mutant("B", "D"), mutant("C", "D")], sources) == ["name: listed twice"]


def test_mutant_is_killed_by_a_failing_test_and_leaves_the_copy_as_it_was(sources):
    before = (sources / "src" / "small.py").read_text(encoding="utf-8")
    assert outcome(mutant("1, 2", "1, 3"), sources) == "killed"
    assert outcome(mutant("2, 1", "2, 4"), sources) == "survived"
    # What no test can import says nothing about the tests.
    assert outcome(mutant("A, B", "A B"), sources).startswith("pytest returned 2")
    assert (sources / "src" / "small.py").read_text(encoding="utf-8") == before


def test_mutant_whose_tests_do_not_end_is_told_from_one_whose_tests_fail(sources, monkeypatch):
    monkeypatch.setitem(outcome.__globals__, "_SECONDS", 0.01)
    assert outcome(mutant("2, 1", "2, 4"), sources) == "timed out"
