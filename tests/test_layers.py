"""Who may import whom, kept by reading the source."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

import uniot

PACKAGE = Path(uniot.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# A part imports from the layers below its own, and from the parts that stand before it in its own layer.
LAYERS = [
    ("errors", "config"),
    ("transport", "io", "nn"),
    ("images", "datasets", "rejection", "discovery", "methods", "metrics", "data_quality"),
    ("training", "runs"),
    ("estimators", "export", "report", "labelling", "benchmark", "distributed"),
    ("cli",),
]
ORDER = {part: number for number, part in enumerate(part for layer in LAYERS for part in layer)}
EXEMPT = {"__init__", "__main__"}
# `Run.report` writes the report of a run when it is called: the method belongs to the run, the page to its own part.
EXCEPTIONS = {("runs/run.py", "report")}


def part_of(file: Path) -> str:
    """First name below the package: a folder, or a module of its own."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(file: Path) -> list[str]:
    """Every module that a file imports, wherever in the file it does so."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            # `from uniot import x` names a part in its aliases.
            found += [f"uniot.{alias.name}" for alias in node.names] if node.module == "uniot" else [node.module]
    return found


def parts_imported(file: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(file) if name.startswith("uniot.")}


def test_every_part_of_the_package_has_its_layer():
    assert {part_of(file) for file in FILES} - EXEMPT == set(ORDER)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_inwards(file):
    part = part_of(file)
    if part in EXEMPT:
        return
    # `from uniot import __version__` is no part.
    outward = {other for other in parts_imported(file) - {part, "__version__"} if ORDER[other] >= ORDER[part]}
    outward -= {other for name, other in EXCEPTIONS if file == PACKAGE / name}
    assert not outward, f"{part} may not import {sorted(outward)}"


@pytest.mark.parametrize("part", ["transport", "nn"])
def test_mathematics_knows_tensors_only(part):
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "threadpoolctl"}
    for file in (PACKAGE / part).rglob("*.py"):
        assert parts_imported(file) <= {"errors", part}, file
        others = {name.split(".")[0] for name in imports(file)} - {"uniot"}
        assert others <= allowed, file


def test_no_folder_is_a_concept_without_a_name():
    nameless = {"utils", "util", "common", "core", "helpers", "helper", "misc"}
    assert not {name for file in FILES for name in file.relative_to(PACKAGE).with_suffix("").parts} & nameless


def test_files_that_read_imports_see_them_all(tmp_path):
    file = tmp_path / "example.py"
    file.write_text("import a.b\nfrom c.d import e\nfrom uniot import config\ndef f():\n    import uniot.cli\n")
    assert imports(file) == ["a.b", "c.d", "uniot.config", "uniot.cli"]
    assert parts_imported(file) == {"config", "cli"}
