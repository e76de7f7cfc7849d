"""Help of every command: it has an example, and every command in it can be parsed. Options have one name everywhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import typer

from uniot.cli import app
from uniot.datasets import make_toy_domains

GROUP = typer.main.get_command(app)


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, those below `uniot data` too."""
    for name, command in GROUP.commands.items():
        below = getattr(command, "commands", None)
        yield from [(name,)] if below is None else [(name, inner) for inner in below]


def command_of(words: tuple[str, ...]):
    found = GROUP
    for word in words:
        found = found.commands[word]
    return found


COMMANDS = sorted(commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_every_command_in_it_parses(words: tuple[str, ...]) -> None:
    shown = command_of(words).help
    assert re.search(rf"Example: `uniot {' '.join(words)}\b", shown)
    for line in re.findall(r"(?:: |then )`(uniot [^`]*)`", shown):
        _, *typed = shlex.split(line)
        depth = 2 if typed[0] == "data" else 1
        mentioned, arguments = command_of(tuple(typed[:depth])), typed[depth:]
        with mentioned.make_context(typed[0], arguments) as context:
            assert context.command is mentioned


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_is_for_and_a_place_to_write_is_called_out(words: tuple[str, ...]) -> None:
    for parameter in command_of(words).params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        assert parameter.help, parameter.name
        # Files that a command writes beside its result have names of their own.
        if re.match(r"(?:\w+ )*(?:file|folder)s? (?:to write|for (?:the )?results)", parameter.help, re.I):
            assert parameter.opts == ["--out"]


@pytest.mark.parametrize(
    ("typed", "new"),
    [
        (("export", "run", "--onnx", "m.onnx"), "--onnx is called --out now, as in every command: uniot export"),
        (("export", "run", "--h5ad", "c.h5ad"), "--h5ad is called --out now, as in every command: uniot export"),
        (("label", "run", "--export", "l.csv"), "--export is called --out now, as in every command: uniot label"),
    ],
)
def test_an_old_option_is_refused_with_its_new_name(uniot: Callable, typed: tuple[str, ...], new: str) -> None:
    answer = uniot(*typed)
    assert (answer.code, answer.stderr[: len(f"Error: {new}")]) == (1, f"Error: {new}")
    assert typed[2] not in uniot(typed[0], "--help").stdout


def completed(monkeypatch: pytest.MonkeyPatch, uniot: Callable, line: str) -> list[str]:
    words = line.split(" ")
    monkeypatch.setenv("_UNIOT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    return uniot().stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("uniot exp", ["export"]),
        ("uniot report run --pre", ["--prefer"]),
        ("uniot report run --prefer ", ["known", "unknown"]),
        ("uniot open run ", ["report", "questions", "groups"]),
        ("uniot data ch", ["check"]),
        ("uniot export run --on", []),
    ],
)
def test_the_shell_completes_commands_options_and_values(
    uniot: Callable, monkeypatch: pytest.MonkeyPatch, line: str, found: list[str]
) -> None:
    assert completed(monkeypatch, uniot, line) == found


def test_open_draws_the_report_once_and_opens_it(
    uniot: Callable, small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) is None)
    report = small_run / "report.html"
    assert uniot("open", small_run).code == 0
    drawn = report.stat().st_mtime_ns
    assert uniot("open", small_run).stdout.startswith(f"{report} is open in your browser.")
    assert report.stat().st_mtime_ns == drawn
    assert opened == [report.resolve().as_uri()] * 2
    predictions = small_run / "predictions.csv"
    predictions.write_bytes(predictions.read_bytes())
    assert uniot("open", small_run).code == 0
    assert report.stat().st_mtime_ns > drawn


def test_open_without_a_browser_gives_the_file(
    uniot: Callable, small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    told = uniot("open", small_run).stdout
    assert f"No browser can be opened here. Open this file in one: {(small_run / 'report.html').resolve()}" in told


def test_open_refuses_options_of_the_other_view(uniot: Callable, small_run: Path) -> None:
    assert "--port, --host and --allow-network are for the page" in uniot("open", small_run, "--port", "81").stderr
    assert "--prefer are for the report" in uniot("open", small_run, "groups", "--prefer", "known").stderr


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory, uniot: Callable) -> Path:
    folder, toy = tmp_path_factory.mktemp("open"), make_toy_domains(samples_per_class=9, seed=1)
    np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(folder / "target.npz", x=toy.x_target)
    assert uniot("adapt", folder / "source.npz", folder / "target.npz", "--out", folder / "run").code == 0
    return folder / "run"
