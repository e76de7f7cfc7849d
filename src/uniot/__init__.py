"""uniot: universal domain adaptation for images and embeddings.

From a labelled collection (the source) and an unlabelled one from elsewhere (the target), uniot labels the classes
that both have, rejects the rest as unknown, and groups what is unknown into new classes.

    from uniot import UniNCM, UniOT, UniDAClassifier
    model = UniNCM(random_state=0).fit(X_source, y_source, X_target)
    model.labels_, model.groups_, model.predict(X_new)
    model.save("run/"); uniot.load("run/")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from uniot.data_quality.near_duplicates import near_duplicates
    from uniot.data_quality.suspect_labels import suspect_labels
    from uniot.errors import UniotError
    from uniot.estimators import UniDAClassifier, UniNCM, UniOT, load
    from uniot.metrics.accuracy import h3_score, h_score
    from uniot.metrics.evaluate import evaluate
    from uniot.runs.run import Run
    from uniot.transport.plan import balanced_plan
    from uniot.transport.unbalanced import unbalanced_plan

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
    "evaluate",
    "h3_score",
    "h_score",
    "load",
    "near_duplicates",
    "suspect_labels",
    "unbalanced_plan",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: `uniot --help` must not wait for torch.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'uniot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
