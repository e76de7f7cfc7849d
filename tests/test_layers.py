"""Who may import whom, kept by reading the source."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

import uniot
from uniot.methods.registry import METHODS

PACKAGE = Path(uniot.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# A part imports from the layers below its own, and from the parts that stand before it in its own layer.
LAYERS = [
    ("errors", "config"),
    ("transport", "losses", "io", "linear_algebra", "neighbours"),
    (
        "images",
        "text",
        "datasets",
        "rejection",
        "annotations",
        "discovery",
        "reliability",
        "methods",
        "metrics",
        "data_quality",
    ),
    ("training", "runs"),
    ("estimators", "cells", "export", "report", "labelling", "adaptation", "benchmark", "distributed"),
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


@pytest.mark.parametrize("part", ["transport", "losses"])
def test_mathematics_knows_tensors_only(part):
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "threadpoolctl"}
    for file in (PACKAGE / part).rglob("*.py"):
        assert parts_imported(file) <= {"errors", "transport", part}, file
        others = {name.split(".")[0] for name in imports(file)} - {"uniot"}
        assert others <= allowed, file


# What the rest of the package may know of `methods`: the contract, the values in it, and the registry.
CONTRACT = {
    "uniot.methods",
    *(f"uniot.methods.{name}" for name in ("base", "decision", "fitted", "networks", "registry", "source_free")),
}
# Parts that present methods by name to people: an estimator has the name of its method, a study compares methods.
NAMES_METHODS = {"methods", "estimators", "benchmark", "cli", "config"}


def method_names_in(file: Path) -> list[str]:
    """Names of methods in the code of a file, but in comparisons alone those that are also other words.

    "uniot" is the project, "color" an argument of plots.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    compared = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in METHODS]
    return [node.value for node in texts if node.value not in {"uniot", "color"} or id(node) in compared]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_method_is_known_by_name_outside_methods(file):
    part = part_of(file)
    if part != "methods":
        assert {name for name in imports(file) if name.startswith("uniot.methods")} <= CONTRACT
    if part not in NAMES_METHODS:
        assert method_names_in(file) == []


def test_method_names_are_found_in_code(tmp_path):
    file = tmp_path / "example.py"
    file.write_text("project = 'uniot'\nis_it = name == 'uniot'\nbest = 'unincm'\n")
    assert sorted(method_names_in(file)) == ["unincm", "uniot"]


def test_no_folder_is_a_concept_without_a_name():
    nameless = {"utils", "util", "common", "core", "helpers", "helper", "misc"}
    assert not {name for file in FILES for name in file.relative_to(PACKAGE).with_suffix("").parts} & nameless


def test_files_that_read_imports_see_them_all(tmp_path):
    file = tmp_path / "example.py"
    file.write_text("import a.b\nfrom c.d import e\nfrom uniot import config\ndef f():\n    import uniot.cli\n")
    assert imports(file) == ["a.b", "c.d", "uniot.config", "uniot.cli"]
    assert parts_imported(file) == {"config", "cli"}
