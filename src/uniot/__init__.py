"""uniot: universal domain adaptation for images and embeddings.

From a labelled collection (the source) and an unlabelled one from elsewhere (the target), uniot labels the classes
that both have, rejects the rest as unknown, and groups what is unknown into new classes.

    from uniot import UniNCM, UniOT, UniDAClassifier
    model = UniNCM(random_state=0).fit(X_source, y_source, X_target)
    model.labels_, model.groups_, model.predict(X_new)
    model.save("run/"); uniot.load("run/")

The packages `uniot.transport`, `uniot.losses`, `uniot.metrics` and the others below are imported when they are first
used, so that `import uniot` is enough to reach all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from uniot import (
        benchmark,
        cells,
        config,
        data_quality,
        datasets,
        discovery,
        distributed,
        errors,
        estimators,
        losses,
        methods,
        metrics,
        rejection,
        runs,
        text,
        transport,
    )
    from uniot.data_quality import near_duplicates, suspect_labels
    from uniot.errors import UniotError
    from uniot.estimators import UniDAClassifier, UniNCM, UniOT, load
    from uniot.metrics import evaluate, h3_score, h_score
    from uniot.runs import Run
    from uniot.transport import balanced_plan, partial_plan, unbalanced_plan

# The package that each public name is imported from.
_HOME = {
    "Run": "uniot.runs",
    "UniDAClassifier": "uniot.estimators",
    "UniNCM": "uniot.estimators",
    "UniOT": "uniot.estimators",
    "UniotError": "uniot.errors",
    "balanced_plan": "uniot.transport",
    "evaluate": "uniot.metrics",
    "h3_score": "uniot.metrics",
    "h_score": "uniot.metrics",
    "load": "uniot.estimators",
    "near_duplicates": "uniot.data_quality",
    "partial_plan": "uniot.transport",
    "suspect_labels": "uniot.data_quality",
    "unbalanced_plan": "uniot.transport",
}

__all__ = [
    "Run",
    "UniDAClassifier",
    "UniNCM",
    "UniOT",
    "UniotError",
    "balanced_plan",
    "benchmark",
    "cells",
    "config",
    "data_quality",
    "datasets",
    "discovery",
    "distributed",
    "errors",
    "estimators",
    "evaluate",
    "h3_score",
    "h_score",
    "load",
    "losses",
    "methods",
    "metrics",
    "near_duplicates",
    "partial_plan",
    "rejection",
    "runs",
    "suspect_labels",
    "text",
    "transport",
    "unbalanced_plan",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: `uniot --help` must not wait for torch.
    if name not in __all__:
        raise AttributeError(f"module 'uniot' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name) if name in _HOME else import_module(f"uniot.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
