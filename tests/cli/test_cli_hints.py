"""Commands and paths in messages: they can be pasted into a shell, whatever the folders are called."""

from __future__ import annotations

import ast
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import typer

import uniot as package
from uniot.cli import app
from uniot.cli.screen import show_next
from uniot.datasets import make_toy_domains
from uniot.io import text
from uniot.io.text import command, quoted

SOURCE = Path(package.__file__).parent
COMMANDS = sorted(typer.main.get_command(app).commands)
# The text before a value ends within a command of uniot.
IN_A_COMMAND = re.compile(rf"\buniot (?:{'|'.join(COMMANDS)})(?: [^`.;:()]*)?$")
NAMES = ["my run", "données d'été", "$HOME", "a;b", 'say "hi"', "*", "日本", "-o"]


def test_words_of_a_command_are_quoted_if_a_shell_would_change_them():
    assert command("predict", Path("run"), "photo.jpg") == "uniot predict run photo.jpg"
    assert shlex.split(command("report", *NAMES)) == ["uniot", "report", *NAMES]
    assert quoted(Path("my run")) == "'my run'"


def test_windows_has_double_quotation_marks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text.os, "name", "nt")
    assert command("report", "my run") == 'uniot report "my run"'


def values_in_commands(tree: ast.AST) -> Iterator[int]:
    """Yields the lines of f-strings that put a value into a command."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
            else:
                if IN_A_COMMAND.search(before):
                    yield part.lineno
                before = ""


def test_the_search_finds_a_value_in_a_command():
    assert list(values_in_commands(ast.parse('f"Name them with `uniot label {run}`."'))) == [1]
    assert list(values_in_commands(ast.parse('f"Next: uniot adapt --continue {run} now"'))) == [1]
    assert list(values_in_commands(ast.parse('f"`uniot adapt` wrote {run}, or {command(run)}"'))) == []


def test_every_command_in_a_message_is_made_by_the_one_function_that_quotes():
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in values_in_commands(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def commands_in(output: str) -> list[list[str]]:
    """Returns the words of each command that a line tells to run next, as a shell reads the line."""
    found = (re.search(r"(?:Next:|^) +(uniot .*)", line) for line in output.splitlines())
    return [shlex.split(line[1], comments=True) for line in found if line]


def test_commands_to_run_next_name_the_folders_that_are_there(
    uniot: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "Mes données d'été"
    home.mkdir()
    monkeypatch.chdir(home)
    toy = make_toy_domains(seed=1)
    np.savez("photos triées.npz", x=toy.x_source, y=toy.y_source)
    np.savez("à trier.npz", x=toy.x_target, y=toy.oracle_y_target)
    told = uniot("adapt", "photos triées.npz", "à trier.npz", "--out", "mon essai").stdout
    following = commands_in(told)
    assert following == [
        ["uniot", "report", "mon essai"],
        ["uniot", "label", "mon essai"],
        ["uniot", "predict", "mon essai", "new.npz"],
        ["uniot", "evaluate", "mon essai", "--labels", "à trier.npz"],
    ]
    assert "'mon essai/predictions.csv'" in told
    evaluated = uniot(*following[3][1:])
    assert evaluated.code == 0, evaluated.stderr
    assert "'mon essai/metrics.json'" in evaluated.stdout
    refused = uniot("label", "mon essai", "--out", "mes noms.csv").stderr
    assert "Run `uniot label 'mon essai'` and name its groups first." in refused
    Path("mes noms.csv").write_text("path,label\n0,tasse\n", encoding="utf-8")
    imported = uniot("label", "mon essai", "--import", "mes noms.csv").stdout
    assert commands_in(imported) == [["uniot", "label", "mon essai"]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_command_is_one_line_however_narrow_the_terminal_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", Terminal())
    out = "a folder with a name that is longer than the terminal is wide"
    show_next({command("report", out): "a page to look at", command("predict", out, "new.npz"): "label another"})
    assert commands_in(sys.stdout.getvalue()) == [["uniot", "report", out], ["uniot", "predict", out, "new.npz"]]
