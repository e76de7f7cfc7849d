"""Reports of small finished runs, as `uniot adapt` and `uniot report` make them, for tests in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uniot.datasets import make_toy_domains

RUNS: dict[str, tuple[str, ...]] = {
    "default": (),
    "uniot": ("--method", "uniot", "--steps", "20"),
    "source-only": ("--method", "source-only", "--steps", "20"),
}
"""Runs on embeddings by their name, with their options."""

REPORTS = ("images", "uniot", "source-only", "nothing unknown", "everything unknown")
"""Of the default method, except for the two with a method's name; with truth: images and source-only."""

_PREFERENCES = {"nothing unknown": 0.0, "everything unknown": 1.0}


class RealReports:
    """Make each report when it is first asked for, and keep it."""

    def __init__(self, folder: Path, command: Callable[..., Any], photographs: tuple[Path, Path]) -> None:
        self._folder = folder
        self._command = command
        self._photographs = photographs
        toy = make_toy_domains(n_common=4, samples_per_class=9, seed=1)
        names = [f"shelf/{row:03d}.jpg" for row in range(len(toy.x_target))]
        np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
        np.savez(folder / "target.npz", x=toy.x_target, ids=names)
        np.savez(folder / "truth.npz", y=toy.oracle_y_target)

    def page(self, name: str) -> Path:
        """Return the HTML file of one of `REPORTS`."""
        page = self._folder / f"{name}.html"
        if not page.exists():
            run = self.run("default" if name in _PREFERENCES else name)
            prior = ("--private-prior", _PREFERENCES[name]) if name in _PREFERENCES else ()
            self._done("report", run, "--out", page, *prior)
        return page

    def run(self, name: str) -> Path:
        """Return the folder of a finished run."""
        run = self._folder / name
        if run.exists():
            return run
        if name == "images":
            self._done("adapt", *self._photographs, "--out", run, "--target-labels", "folders")
            return run
        self._done("adapt", self._folder / "source.npz", self._folder / "target.npz", "--out", run, *RUNS[name])
        if name == "source-only":
            self._done("evaluate", run, "--labels", self._folder / "truth.npz")
        return run

    def _done(self, *arguments: object) -> None:
        answer = self._command(*arguments)
        assert answer.code == 0, answer.stderr
