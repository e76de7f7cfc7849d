"""The scripts of `benchmarks/` fit the package, and the README lists them."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
# Modules that other scripts import.
SHARED = ("measure", "problems", "office31_tasks", "peers", "passes", "speed", "decisions", "accuracy")
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_imports_what_the_package_has(script: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [f"{script}.py"])
    names = runpy.run_path(str(FOLDER / f"{script}.py"), run_name="imported")
    assert names["__doc__"], "a script says in its docstring what it measures"
    assert script in SHARED or callable(names["main"])
    # What a script runs in a process of its own is a text in it.
    for name, code in names.items():
        if name != "__doc__" and isinstance(code, str) and re.search(r"^(from|import) uniot\b", code, re.M):
            exec("\n".join(re.findall(r"^(?:from|import) .*$", code, re.M)), {})


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script not in SHARED])
def test_script_is_listed_in_the_readme(script: str):
    assert f"python benchmarks/{script}.py" in README


def test_readme_and_pages_name_scripts_that_exist():
    pages = [FOLDER / "README.md", FOLDER.parent / "README.md", *(FOLDER.parent / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"benchmarks/(\w+)\.py", page.read_text(encoding="utf-8"))}
    assert named <= set(SCRIPTS)
