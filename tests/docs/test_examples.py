"""The commands and the Python of the pages exist in the code, and what can run by itself runs."""

from __future__ import annotations

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

import uniot
from uniot.cli import app

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
COMMANDS = typer.main.get_command(app)


def commands(text: str) -> list[str]:
    """Every `uniot …` of a page: in a console block, where a backslash continues a line, and between backticks."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
    typed = [line for block in blocks for line in re.findall(r"^\$ (uniot .*)$", block.replace("\\\n", " "), re.M)]
    plain = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return typed + [" ".join(found.split()) for found in re.findall(r"`(uniot [a-z][^`]*)`", plain)]


def options_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the options among the others."""
    command: Any = COMMANDS
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    return command, [word.partition("=")[0] for word in rest if word.startswith("--")]


def python(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


WRITTEN = [(page, command) for page, text in PAGES.items() for command in commands(text)]
BLOCKS = [(page, code) for page, text in PAGES.items() for code in python(text)]
RUNNABLE = [
    (page, code)
    for page, code in BLOCKS
    # The examples of the methods, of the gallery and of the README have tests of their own.
    if "make_toy_domains(" in code and not page.startswith(("docs/methods/", "docs/gallery/", "README"))
]


@pytest.mark.parametrize(("page", "command"), WRITTEN)
def test_command_and_its_options_exist(page, command):
    words = shlex.split(command.replace("…", ""), comments=True)[1:]
    # What follows a pipe or a redirection is another program's.
    words = words[: next((index for index, word in enumerate(words) if word in {"|", ">", ">>"}), len(words))]
    if words == ["--version"]:
        return
    found, options = options_of(words)
    known = {name for parameter in found.params for name in parameter.opts + parameter.secondary_opts} | {"--help"}
    assert not set(options) - known, f"{page}: {command}"


@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_python_imports_what_exists(page, code):
    # Parts of a class are indented as they stand in it.
    tree = ast.parse(code if not code.startswith(" ") else "class Part:\n" + code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "uniot":
            for alias in node.names:
                assert hasattr(import_module(str(node.module)), alias.name), f"{page}: {node.module}.{alias.name}"


def dotted(node: ast.AST) -> str:
    """`uniot.losses.UniOTLoss` of such an expression; empty for any other."""
    if isinstance(node, ast.Name):
        return node.id
    base = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return base and f"{base}.{node.attr}"


@pytest.mark.parametrize(("page", "code"), [(page, code) for page, code in BLOCKS if "import uniot\n" in code])
def test_what_is_reached_from_import_uniot_exists(page, code):
    names = {dotted(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    for name in sorted(name for name in names if name.startswith("uniot.")):
        value: Any = uniot
        for part in name.split(".")[1:]:
            value = getattr(value, part)
        assert value is not None, f"{page}: {name}"


@pytest.mark.parametrize(("page", "code"), RUNNABLE)
def test_python_that_makes_its_own_data_runs(page, code):
    exec(code, {})


def test_there_is_something_to_check():
    assert len(WRITTEN) > 100
    assert len(BLOCKS) > 40
    assert any("docs/answers.md" in page for page, _ in RUNNABLE)
