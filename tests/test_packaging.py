"""The conda recipe and the groups of uv follow pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import uniot

yaml = pytest.importorskip("yaml")
tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RECIPE = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
# What conda-forge calls otherwise than PyPI.
CONDA_NAMES = {"torch": "pytorch"}


def bounds(requirements: list[str]) -> dict[str, str]:
    """Return the version bounds of requirements by package, without markers."""
    parsed = [Requirement(text) for text in requirements]
    return {CONDA_NAMES.get(one.name, one.name): str(one.specifier) for one in parsed}


def test_recipe_has_the_sections_of_the_first_format():
    assert RECIPE["schema_version"] == 1
    sections = {"schema_version", "context", "package", "source", "build", "requirements", "tests", "about"}
    assert RECIPE.keys() == sections
    used = set(re.findall(r"\$\{\{ (\w+) \}\}", str(RECIPE)))
    assert used == {*RECIPE["context"], "PYTHON"}


def test_recipe_is_of_this_version_and_installs_this_folder():
    assert RECIPE["context"]["version"] == uniot.__version__
    assert (ROOT / "recipe" / RECIPE["source"]["path"] / "pyproject.toml").exists()
    assert (ROOT / RECIPE["about"]["license_file"]).exists()


def test_recipe_has_the_python_the_bounds_and_the_command_of_the_project():
    python, *others = RECIPE["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert f">={RECIPE['context']['python_min']}" == PROJECT["project"]["requires-python"]
    assert bounds(others) == bounds(PROJECT["project"]["dependencies"])
    assert set(PROJECT["build-system"]["requires"]) == {
        text.replace(" ", "") for text in RECIPE["requirements"]["host"] if text.startswith("hatchling")
    }
    scripts = [f"{name} = {target}" for name, target in PROJECT["project"]["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts


def test_uv_installs_the_extras_of_pip_and_pins_what_pip_pins():
    extras = PROJECT["project"]["optional-dependencies"]
    assert PROJECT["dependency-groups"] == {name: [f"uniot[{name}]"] for name in ("dev", "docs") if name in extras}
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert set(PROJECT["tool"]["uv"]["constraint-dependencies"]) <= set(pinned)
