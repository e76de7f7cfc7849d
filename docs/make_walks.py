"""Print the files of the package that three ordinary uses pass, in the order in which they are first entered.

    python docs/make_walks.py

One image on its way through `uniot adapt`, the five lines of Python of the README, and one job of `uniot benchmark`.
Only function calls count, in all threads and processes; what importing a module runs does not. docs/architecture.md
groups these files into steps. It takes about three minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from uniot.datasets.catalogue import benchmark_set

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "uniot"

# Python runs a module of this name when it starts, so that child processes are traced too.
TRACER = """
import os, sys, threading

package, out = os.environ["WALK_PACKAGE"] + os.sep, os.environ["WALK_OUT"]
seen, importing = set(), threading.local()


def trace(frame, event, _):
    code = frame.f_code
    if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
        # This module itself returns without having been called under the tracer.
        importing.depth = max(0, getattr(importing, "depth", 0) + {"call": 1, "return": -1}.get(event, 0))
    # CO_OPTIMIZED is set for functions, not for the bodies of modules and classes.
    elif event == "call" and code.co_flags & 1 and code.co_filename.startswith(package):
        if not getattr(importing, "depth", 0) and code.co_filename not in seen:
            seen.add(code.co_filename)
            with open(out, "a") as file:
                file.write(code.co_filename.removeprefix(package) + "\\n")


sys.setprofile(trace)
threading.setprofile(trace)
"""
COMMAND = "from uniot.cli import main; main()"


def walks() -> dict[str, list[str]]:
    """Return the files that each of the three uses enters, by its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(TRACER, encoding="utf-8")
        _make_images(folder)
        _make_features(folder / "features.npz")
        python = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[1]
        adapt = ["adapt", "labelled", "unlabelled", "--out", "run"]
        job = ["benchmark", "office31", "--methods", "unincm", "--seeds", "1", "--tasks", "A2D", "--out", "results"]
        job += ["--features", "features.npz"]
        return {
            "image": _traced(folder, COMMAND, *adapt),
            "python": _traced(folder, python),
            "job": _traced(folder, COMMAND, *job),
        }


def _traced(folder: Path, code: str, *arguments: str) -> list[str]:
    out = folder / "walk.txt"
    out.write_text("", encoding="utf-8")
    paths = os.pathsep.join([str(folder), str(PACKAGE.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "UNIOT_CACHE": str(folder / "cache")}
    environment |= {"WALK_PACKAGE": str(PACKAGE), "WALK_OUT": str(out)}
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return list(dict.fromkeys(out.read_text(encoding="utf-8").split()))


def _make_images(folder: Path) -> None:
    """Write stripes of four directions: three are labelled, all are in the target."""
    rng = np.random.default_rng(0)
    across, down = np.meshgrid(np.arange(64), np.arange(64))
    for number, pattern in enumerate((across, down, across + down, across * down // 16)):
        stripes = np.where(pattern // 8 % 2, 200, 50)
        for index in range(60):
            pixels = (stripes + rng.normal(0, 20, stripes.shape)).clip(0, 255).astype(np.uint8)
            labelled = index % 2 and number < 3
            place = folder / (f"labelled/{number}" if labelled else "unlabelled")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).convert("RGB").save(place / f"{number}-{index}.png")


def _make_features(path: Path) -> None:
    """Write embeddings in the shape of those of Office-31, around one random mean per class."""
    rng = np.random.default_rng(0)
    classes = benchmark_set("office31").classes
    labels = np.repeat(np.arange(len(classes)), 10)
    means = rng.normal(size=(len(classes), 64))
    arrays = {"classes": np.array(classes)}
    for domain in ("amazon", "dslr", "webcam"):
        arrays[f"{domain}_x"] = means[labels] + 0.3 * rng.normal(size=(len(labels), 64))
        arrays[f"{domain}_y"] = labels
    np.savez(path, **arrays)


if __name__ == "__main__":
    for name, files in walks().items():
        sys.stdout.write("\n  ".join([f"{name}: {len(files)} files", *files]) + "\n")
