from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image, ImageDraw

from uniot.cli import main

from browser import browsing, chromium, chromium_page  # noqa: F401  # fixtures; isort: skip
from tiers import FEW_EXAMPLES, MEDIUM, THOROUGH  # isort: skip

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("ordinary", deadline=None, max_examples=FEW_EXAMPLES)
settings.register_profile("thorough", deadline=None)
settings.load_profile("thorough" if THOROUGH else "ordinary")

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture(autouse=True)
def threads():
    """One, or as many as `tests/processors.py` says; set for each test, because numba changes it in scanpy.

    On tiny tensors two threads wait for each other more than they work, and tests share their cores.
    """
    torch.set_num_threads(int(os.environ.get("UNIOT_TEST_THREADS", "1")))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests neither read nor fill the cache of whoever runs them."""
    with mock.patch.dict(os.environ, UNIOT_CACHE=str(tmp_path_factory.mktemp("cache"))):
        yield


LEFT_OUT = pytest.StashKey[int]()


# Before the option -m is applied.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in MEDIUM:
            item.add_marker(pytest.mark.medium)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the slow tests that this run leaves out; a process of xdist hands the number to the one that reports."""
    config = items[0].config
    count = sum(item.get_closest_marker("slow") is not None for item in items)
    config.stash[LEFT_OUT] = count
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = count


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"Slow tests left out: {count}. `make test-slow` runs them.")


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


def run_command(*arguments: object) -> Answer:
    """Runs a command as the shell would, but in this process: importing torch anew takes seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["uniot", *map(str, arguments)]),
        mock.patch.dict(os.environ, COLUMNS="100"),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def uniot() -> Callable[..., Answer]:
    """`uniot("predict", run, new)` is `uniot predict run new`."""
    return run_command


@pytest.fixture(scope="session")
def shape_folders(tmp_path_factory) -> tuple[Path, Path]:
    """Small images of shapes, labelled and unlabelled, which a pretrained network can tell apart."""
    return make_folders(tmp_path_factory.mktemp("photographs"), each=8)


# Classes of each collection; the second one is drawn in another style.
SHAPES = {"labelled": ("circle", "square", "stripes"), "unlabelled": ("circle", "square", "triangle")}


def draw(kind: str, number: int, *, dark: bool) -> Image.Image:
    rng = np.random.default_rng([hash_of(kind), number, dark])
    paper, ink = ((30, 30, 40), (240, 220, 120)) if dark else ((250, 250, 245), (30, 60, 160))
    image = Image.new("RGB", (96, 80), paper)
    pen = ImageDraw.Draw(image)
    x, y, size = rng.integers(8, 28), rng.integers(6, 18), rng.integers(38, 52)
    box = (int(x), int(y), int(x + size), int(y + size))
    if kind == "circle":
        pen.ellipse(box, fill=ink)
    elif kind == "square":
        pen.rectangle(box, fill=ink)
    elif kind == "triangle":
        pen.polygon([(box[0], box[3]), (box[2], box[3]), ((box[0] + box[2]) // 2, box[1])], fill=ink)
    else:
        for offset in range(0, 96, 12):
            pen.line([(offset + int(x), 0), (offset - 20 + int(x), 80)], fill=ink, width=5)
    noise = rng.normal(0, 6, (80, 96, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def hash_of(kind: str) -> int:
    return sum(map(ord, kind))


def make_folders(top: Path, each: int) -> tuple[Path, Path]:
    """A labelled folder with a folder per class, and a target whose folders are its true classes."""
    for name, kinds in SHAPES.items():
        for kind in kinds:
            folder = top / name / kind
            folder.mkdir(parents=True)
            for number in range(each):
                draw(kind, number, dark=name == "unlabelled").save(folder / f"{number:02d} é.png")
    return top / "labelled", top / "unlabelled"


@pytest.fixture(scope="session")
def hostile() -> ModuleType:
    """The files of `benchmarks/hostile_files.py`, which were made to fill the memory."""
    sys.path.insert(0, BENCHMARKS)
    try:
        return importlib.import_module("hostile_files")
    finally:
        sys.path.remove(BENCHMARKS)


@pytest.fixture
def little_memory() -> Callable[[], AbstractContextManager[None]]:
    """Within the block this process may take half a gigabyte more than it has, if the system can count it."""

    @contextmanager
    def limited(room: int = 1 << 29) -> Iterator[None]:
        if sys.platform != "linux":
            yield
            return
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    return limited


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches this test and the processes that it starts, even if the suite was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
