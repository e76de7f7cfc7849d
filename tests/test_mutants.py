"""The list of mutants fits the sources, and a mutant is killed only by a test that fails."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "mutants.py"
SCRIPT = runpy.run_path(str(PATH))
Mutant, faults = SCRIPT["Mutant"], SCRIPT["faults"]


def test_every_mutant_changes_a_text_that_the_sources_have_once():
    assert faults(SCRIPT["mutants"]()) == []


def test_the_list_has_sixty_first_mutants_and_thirty_of_later_methods():
    groups = Counter(one.group for one in SCRIPT["mutants"]())
    assert groups["first sixty"] == 60
    assert groups["later methods"] >= 30


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


def run(sources: Path, *mutants: tuple[str, str, str], options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Return the exit code and the output of the script for mutants of the small module: name, old and new text."""
    entries = [
        f'[[mutant]]\nname = "{name}"\nabout = "about"\nfile = "src/small.py"\nold = "{old}"\nnew = "{new}"\n'
        'tests = ["tests/test_small.py"]\n'
        for name, old, new in mutants
    ]
    (sources / "list.toml").write_text("\n".join(entries), encoding="utf-8")
    arguments = ["--sources", str(sources), "--list", str(sources / "list.toml"), *options]
    found = subprocess.run([sys.executable, str(PATH), *arguments], capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


SUM = ("sum", "1, 2", "1, 3")


def test_mutant_is_killed_by_a_failing_test_and_leaves_the_sources_as_they_were(sources):
    before = (sources / "src" / "small.py").read_text(encoding="utf-8")
    code, printed = run(sources, SUM, ("last", "2, 1", "2, 4"), ("syntax", "A, B", "A B"))
    words = [line.split()[:2] for line in printed.splitlines()[:2]]
    assert words == [["sum", "killed"], ["last", "survived"]]
    # What no test can import says nothing about the tests.
    assert "syntax" in printed
    assert "pytest returned 2" in printed
    assert "1 of 3 killed (33 %)" in printed
    assert code == 1
    assert (sources / "src" / "small.py").read_text(encoding="utf-8") == before


def test_test_that_killed_is_recorded_and_runs_first(sources):
    slow = "\n\ndef test_after():\n    open('ran-all', 'w').close()\n"
    path = sources / "tests" / "test_small.py"
    path.write_text(path.read_text(encoding="utf-8") + slow, encoding="utf-8")
    assert run(sources, SUM, options=("--record",))[0] == 0
    (found,) = SCRIPT["mutants"](sources / "list.toml")
    assert found.killer == "tests/test_small.py::test_sum"
    assert found.tests == ("tests/test_small.py",)


def test_killer_that_is_no_longer_there_is_replaced_by_the_files(sources):
    run(sources, SUM, options=("--record",))
    path = sources / "tests" / "test_small.py"
    path.write_text(path.read_text(encoding="utf-8").replace("test_sum", "test_total"), encoding="utf-8")
    arguments = ["--sources", str(sources), "--list", str(sources / "list.toml")]
    found = subprocess.run([sys.executable, str(PATH), *arguments], capture_output=True, text=True, check=False)
    assert "1 of 1 killed" in found.stdout, found.stdout + found.stderr


def test_test_that_fails_without_a_change_kills_nothing(sources):
    (sources / "src" / "small.py").write_text("A, B, C = 1, 3, 1\n", encoding="utf-8")
    code, printed = run(sources, ("last", "3, 1", "3, 4"))
    assert code == 1
    assert "tests/test_small.py::test_sum fails without the change" in printed
    assert "0 of 1 killed" in printed


def test_error_of_a_fixture_kills_too(sources):
    fixture = "import pytest\nfrom small import A\n\n@pytest.fixture\ndef one():\n    assert A == 1\n"
    text = f"{fixture}\ndef test_it(one):\n    pass\n"
    (sources / "tests" / "test_small.py").write_text(text, encoding="utf-8")
    code, printed = run(sources, ("one", "= 1", "= 2"))
    assert (code, printed.split()[:2]) == (0, ["one", "killed"])


def test_sample_is_drawn_by_the_seed(sources):
    several = [(f"sum-{number}", "1, 2", f"1, {number}") for number in range(3, 9)]
    drawn = [run(sources, *several, options=("--sample", "2", "--seed", seed))[1] for seed in ("0", "0", "1")]
    names = [[line.split()[0] for line in one.splitlines()[:2]] for one in drawn]
    assert names[0] == names[1] != names[2]
    assert "2 of 2 killed (100 %)" in drawn[0]


def test_mutant_whose_tests_do_not_end_is_told_from_one_whose_tests_fail(sources, monkeypatch):
    path = sources / "tests" / "test_small.py"
    path.write_text(
        "import time\nfrom small import A\n\ndef test_it():\n    time.sleep(60 * (A - 1))\n", encoding="utf-8"
    )
    wait = SCRIPT["outcome"].__globals__
    monkeypatch.setitem(wait, "_SECONDS", 2)
    assert SCRIPT["outcome"](mutant("= 1", "= 2"), sources, set()) == ("timed out", "")
