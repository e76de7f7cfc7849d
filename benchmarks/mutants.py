"""Mutation testing: small changes to the code, one at a time, each of which the tests should notice.

`mutants.toml` lists the changes: exact text before and after, and the test files that should fail. Each change is made
in a temporary copy of the sources, never here. The test that killed a mutant the last time (`killer`) runs first, and
the files that are listed only if it passes; the first failure ends a run. Every run is a fork of one process that has
imported the libraries before, but nothing of uniot. A test that fails is run without the change too: it must pass then.

    python benchmarks/mutants.py                       # all, with a table of what was killed and what survived
    python benchmarks/mutants.py --sample 20 --seed 0  # twenty at random
    python benchmarks/mutants.py --only ppot lead      # those whose names begin so
    python benchmarks/mutants.py --record              # all, and write the test that killed each to the list
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import py_compile
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
GROUPS = ("first sixty", "later methods", "further")
"""Groups of the list: of each, the tests should kill nine of ten."""
_COPIED = ("src", "tests", "benchmarks", "examples", "docs", "README.md", "pyproject.toml")
_SECONDS = 300
# What pytest returns.
_PASSED, _FAILED = 0, 1
# Importing these takes longer than most of the tests.
_PRELOADED = ("numpy", "scipy.stats", "sklearn.cluster", "torch", "pydantic", "hypothesis", "rich.console", "typer")


@dataclass(frozen=True)
class Mutant:
    """A small change.

    Attributes:
        name: for `--only`.
        about: what goes wrong with it, in a sentence.
        file: that is changed, from the top of the sources.
        old: text that is there exactly once.
        new: what takes its place.
        tests: files that should notice.
        group: one of `GROUPS`.
        killer: test that killed it the last time; empty if none is known.
        survives: why no test notices; empty if one does.
    """

    name: str
    about: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    group: str = GROUPS[-1]
    killer: str = ""
    survives: str = ""

    def has_killer(self, root: Path) -> bool:
        """Return whether the sources still have the test that killed it the last time."""
        file, _, test = self.killer.partition("::")
        return bool(test) and (root / file).is_file() and f"def {test}(" in (root / file).read_text(encoding="utf-8")

    def faults(self, root: Path) -> list[str]:
        """Return what no longer fits the sources, in words."""
        path = root / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        found = [] if count == 1 else [f"{self.name}: {self.file} has {count} times {self.old!r}, not once"]
        found += [f"{self.name}: there is no {test}" for test in self.tests if not (root / test).is_file()]
        found += [] if self.group in GROUPS else [f"{self.name}: there is no group {self.group!r}"]
        return found + ([f"{self.name}: nothing is changed"] if self.old == self.new else [])


def mutants(path: Path = LIST) -> list[Mutant]:
    """Return the mutants of a list."""
    with path.open("rb") as file:
        return [Mutant(**one | {"tests": tuple(one["tests"])}) for one in tomllib.load(file)["mutant"]]


def faults(listed: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Return what is wrong with a list, in words; runs no test."""
    names = [mutant.name for mutant in listed]
    twice = sorted({name for name in names if names.count(name) > 1})
    return [*(f"{name}: listed twice" for name in twice), *(fault for one in listed for fault in one.faults(root))]


def copy_of_sources(root: Path, place: Path) -> Path:
    """Copy the sources and the tests to an empty folder, with bytecode that is valid by content, not by time."""
    for name in _COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        elif (root / name).is_file():
            shutil.copy2(root / name, place / name)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(place / "src", quiet=2, invalidation_mode=checked)
    return place


@contextmanager
def changed(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Within the block, the copy has the change."""
    path = copy / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def preload() -> None:
    """Import what every run needs, so that its fork has it already."""
    import pytest  # noqa: F401

    for name in _PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)


def run_tests(copy: Path, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Run tests in a fork, up to the first failure; return pytest's exit code, None after a timeout, and its output."""
    with tempfile.TemporaryFile() as output:
        process = os.fork()
        if process == 0:
            _run_in_fork(copy, tests, output.fileno())
        until, code = time.monotonic() + seconds, None
        while code is None and time.monotonic() < until:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.02)
        # With what the tests have started.
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        if code is None:
            os.waitpid(process, 0)
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")


def _run_in_fork(copy: Path, tests: Sequence[str], output: int) -> None:
    code = 3
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        os.environ |= {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [
            str(copy / "src"),
            str(copy),
            *(place for place in sys.path if Path(place) != Path(__file__).parent),
        ]
        # Programs that ask for their own name or module find neither this script nor its arguments.
        sys.argv, sys.modules["__main__"] = ["pytest"], ModuleType("__main__")
        import pytest

        code = int(pytest.main(["-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def outcome(mutant: Mutant, copy: Path, passing: set[str]) -> tuple[str, str]:
    """Try a mutant.

    Args:
        mutant: the change.
        copy: sources without a change.
        passing: tests that are known to pass without a change; more are added.

    Returns:
        "killed", "timed out" (killed, unless the machine is too busy), "survived", or what else happened; and the test
        that failed.
    """
    with changed(mutant, copy):
        code, printed = _PASSED, ""
        if mutant.has_killer(copy):
            code, printed = run_tests(copy, [mutant.killer], _SECONDS)
        if code == _PASSED:
            code, printed = run_tests(copy, mutant.tests, _SECONDS)
    if code is None:
        return "timed out", ""
    if code == _PASSED:
        return "survived", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?::\w+)", printed, re.MULTILINE)
    if code != _FAILED or failed is None:
        return f"pytest returned {code}: {' '.join(printed.splitlines()[-1:])}", ""
    test = failed.group(1)
    if test not in passing and run_tests(copy, [test], _SECONDS)[0] != _PASSED:
        return f"{test} fails without the change", ""
    passing.add(test)
    return "killed", test


def record(path: Path, killers: dict[str, str]) -> None:
    """Write the tests that killed mutants to the list, by name of the mutant."""
    parts = re.split(r"(?m)^(?=\[\[mutant\]\]$)", path.read_text(encoding="utf-8"))
    for number, part in enumerate(parts):
        name = re.search(r'(?m)^name = "(.*)"$', part)
        if name and killers.get(name.group(1)):
            part = re.sub(r"(?m)^killer = .*\n", "", part)
            line = f'killer = "{killers[name.group(1)]}"\n'
            parts[number] = re.sub(
                r"(?m)^(tests = .*\n(?:(?: .*|\])\n)*)", lambda found, line=line: found.group(1) + line, part, count=1
            )
    path.write_text("".join(parts), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of mutants, or how they begin")
    parser.add_argument("--sample", type=int, metavar="N", help="this many of them, at random")
    parser.add_argument("--seed", type=int, default=0, help="random seed of --sample")
    parser.add_argument("--check", action="store_true", help="only check that the list fits the sources")
    parser.add_argument("--record", action="store_true", help="write the test that killed each mutant to the list")
    parser.add_argument("--list", type=Path, default=LIST, help="another list than mutants.toml")
    parser.add_argument("--sources", type=Path, default=ROOT, help="other sources than these")
    given = parser.parse_args()
    listed = mutants(given.list)
    wrong = faults(listed, given.sources)
    if wrong or given.check:
        sys.exit("\n".join(wrong) or 0)
    chosen = [one for one in listed if given.only is None or one.name.startswith(tuple(given.only))]
    if not chosen:
        sys.exit(f"No mutant is called {' or '.join(given.only)}. There are: {', '.join(one.name for one in listed)}.")
    if given.sample is not None and given.sample < len(chosen):
        drawn = random.Random(given.seed).sample(range(len(chosen)), given.sample)
        chosen = [chosen[place] for place in sorted(drawn)]
    # One thread per run; and plugins of whatever else is installed take longer to import than most of the tests.
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if (given.sources / "src" / "uniot").is_dir():
        preload()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_of_sources(given.sources, Path(folder))
        outcomes, killers, passing = [], {}, set()
        for mutant in chosen:
            started = time.perf_counter()
            found, killers[mutant.name] = outcome(mutant, copy, passing)
            outcomes.append(found)
            if given.record:
                record(given.list, killers)
            seconds = time.perf_counter() - started
            print(f"{mutant.name:<34} {found:<10} {seconds:4.0f} s  {mutant.survives or mutant.about}", flush=True)
    for group in GROUPS:
        tried = [found for one, found in zip(chosen, outcomes, strict=True) if one.group == group]
        if tried:
            print(_rate(group, tried))
    print(f"{_rate('all', outcomes)} in {time.perf_counter() - begin:.0f} s")
    unknown = [
        one.name
        for one, found in zip(chosen, outcomes, strict=True)
        if found not in ("killed", "timed out") and not one.survives
    ]
    sys.exit(1 if unknown else 0)


def _rate(group: str, outcomes: Sequence[str]) -> str:
    late = outcomes.count("timed out")
    killed = outcomes.count("killed") + late
    by_time = f", {late} of them by the time limit" if late else ""
    return f"{group}: {killed} of {len(outcomes)} killed ({100 * killed / len(outcomes):.0f} %){by_time}"


if __name__ == "__main__":
    main()
