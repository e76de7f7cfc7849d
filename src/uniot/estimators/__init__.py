"""Scikit-learn estimators: UniOT (the paper's method), UniNCM (this project's own) and any method by its name."""

from __future__ import annotations

from pathlib import Path

from uniot.estimators.classifier import UniDAClassifier
from uniot.estimators.unincm import UniNCM
from uniot.estimators.uniot import UniOT
from uniot.runs.run import Run

__all__ = ["UniDAClassifier", "UniNCM", "UniOT", "load"]


def load(folder: str | Path) -> UniOT | UniNCM | UniDAClassifier:
    """Return the fitted estimator in a run folder, of the class of its method."""
    model = Run.open(folder).answered_model
    for kind in (UniOT, UniNCM):
        if kind.method == model.settings.method:
            return kind.from_model(model)
    return UniDAClassifier.from_model(model)


def __dir__() -> list[str]:
    return __all__.copy()
