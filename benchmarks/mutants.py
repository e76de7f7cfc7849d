"""Mutation testing: small changes to the code, one at a time, each of which the tests should notice.

`mutants.toml` lists the changes: exact text before and after, and the test files that should fail. Each change is made
in a temporary copy of the sources, never here. A mutant whose tests fail, or do not end, is killed; one whose tests
pass survived, and is listed with the reason if that is known. The tests are run without a change first, as they must
pass then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
_COPIED = ("src", "tests", "benchmarks", "examples", "pyproject.toml")
_SECONDS, _SECONDS_UNCHANGED = 300, 1200
# What pytest returns.
_PASSED, _FAILED = 0, 1


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
        survives: why no test notices; empty if one does.
    """

    name: str
    about: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def faults(self, root: Path) -> list[str]:
        """Return what no longer fits the sources, in words."""
        path = root / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        found = [] if count == 1 else [f"{self.name}: {self.file} has {count} times {self.old!r}, not once"]
        found += [f"{self.name}: there is no {test}" for test in self.tests if not (root / test).is_file()]
        return found + ([f"{self.name}: nothing is changed"] if self.old == self.new else [])


def mutants() -> list[Mutant]:
    """Return the mutants of the list."""
    with LIST.open("rb") as file:
        return [Mutant(**one | {"tests": tuple(one["tests"])}) for one in tomllib.load(file)["mutant"]]


def faults(listed: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Return what is wrong with a list, in words; runs no test."""
    names = [mutant.name for mutant in listed]
    twice = sorted({name for name in names if names.count(name) > 1})
    return [*(f"{name}: listed twice" for name in twice), *(fault for one in listed for fault in one.faults(root))]


def copy_of_sources(place: Path) -> Path:
    """Copy the sources and the tests to an empty folder."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        else:
            shutil.copy2(ROOT / name, place / name)
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


def run_tests(copy: Path, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Run tests in a copy; return what pytest returned, None if it took too long, and what it printed."""
    # Without bytecode: it is told apart by size and second alone, and a change may have the same of both.
    settings = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    # Plugins of whatever else is installed take longer to import than most of these tests run.
    settings["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        # With what the tests have started.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, printed


def outcome(mutant: Mutant, copy: Path) -> str:
    """Return "killed", "timed out" (killed, unless the machine is too busy), "survived", or what else happened."""
    with changed(mutant, copy):
        code, printed = run_tests(copy, mutant.tests, _SECONDS)
    if code is None:
        return "timed out"
    if code not in (_PASSED, _FAILED):
        return f"pytest returned {code}: {' '.join(printed.splitlines()[-1:])}"
    return "killed" if code == _FAILED else "survived"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of mutants, or how they begin")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time")
    parser.add_argument("--check", action="store_true", help="only check that the list fits the sources")
    given = parser.parse_args()
    listed = mutants()
    wrong = faults(listed)
    if wrong or given.check:
        sys.exit("\n".join(wrong) or 0)
    chosen = [one for one in listed if given.only is None or one.name.startswith(tuple(given.only))]
    if not chosen:
        sys.exit(f"No mutant is called {' or '.join(given.only)}. There are: {', '.join(one.name for one in listed)}.")
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(given.jobs) as threads:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.jobs):
            (Path(folder) / str(number)).mkdir()
            copies.put(copy_of_sources(Path(folder) / str(number)))
        code, printed = run_tests(
            Path(folder) / "0", sorted({t for one in chosen for t in one.tests}), _SECONDS_UNCHANGED
        )
        if code != _PASSED:
            sys.exit(f"{printed}\nThe tests do not pass without a change.")

        def tried(mutant: Mutant) -> str:
            copy = copies.get()
            try:
                return outcome(mutant, copy)
            finally:
                copies.put(copy)

        outcomes = []
        for mutant, found in zip(chosen, threads.map(tried, chosen), strict=True):
            outcomes.append(found)
            print(f"{mutant.name:<32} {found:<10} {mutant.survives or mutant.about}", flush=True)
    late = outcomes.count("timed out")
    killed = outcomes.count("killed") + late
    share, by_time = 100 * killed / len(chosen), f", {late} of them by the time limit," if late else ""
    print(f"{killed} of {len(chosen)} killed ({share:.0f} %){by_time} in {time.perf_counter() - begin:.0f} s")
    known = all(
        one.survives for one, found in zip(chosen, outcomes, strict=True) if found not in ("killed", "timed out")
    )
    sys.exit(0 if known else 1)


if __name__ == "__main__":
    main()
