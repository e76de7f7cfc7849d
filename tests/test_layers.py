"""Who may import whom; the picture in DESIGN.md, kept by reading the imports."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import uniot

PACKAGE = Path(uniot.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"errors", "untrusted", "words"},
    {"settings", "prediction", "processes", "threshold", "stored_tensors", "calibration", "experiment_loggers"},
    {"data", "transport", "universal", "run_folder", "clustering"},
    {"embeddings", "networks", "losses", "answers", "sorted_copies", "pictures", "annotations", "data_quality"},
    {"methods", "discovery", "evaluation"},
    {"training", "network_features"},
    {"model"},
    {"method_building", "run_contents", "run_description"},
    {"restoring"},
    {"model_files", "conclusion", "whole_run"},
    {"adaptation"},
    {"arrays"},
    {"estimator", "images", "export", "hub", "report", "labelling", "validation"},
    {"benchmark"},
    {"cli"},
]
LAYER_OF = {part: number for number, layer in enumerate(LAYERS) for part in layer}
EXEMPT = {"__init__", "__main__"}


def part_of(file: Path) -> str:
    """First name below the package: a folder, or a module of its own."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


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
    assert {part_of(file) for file in FILES} - EXEMPT <= set(LAYER_OF)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_inwards(file):
    part = part_of(file)
    if part in EXEMPT:
        return
    # `from uniot import __version__` is no part.
    outward = {
        other
        for other in parts_imported(file) - {part, "__version__"}
        if LAYER_OF.get(other, len(LAYERS)) >= LAYER_OF[part]
    }
    assert not outward, f"{part} may not import {sorted(outward)}"


@pytest.mark.parametrize("part", ["transport", "losses"])
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
    file.write_text("import a.b\nfrom c.d import e\nfrom uniot import settings\ndef f():\n    import uniot.cli\n")
    assert imports(file) == ["a.b", "c.d", "uniot.settings", "uniot.cli"]
    assert parts_imported(file) == {"settings", "cli"}
