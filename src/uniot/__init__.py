"""uniot: universal domain adaptation by optimal transport.

    embeddings ──► transport ──► losses ──► methods ──► prediction
                   transport/    losses/    methods/    prediction.py
             └─ pure maths: no training ─┘
     training.py runs a method · model.py decides · model_files.py keeps it · evaluation/ scores it · cli/ starts it

A labelled collection (the source) and an unlabelled one from elsewhere (the target): uniot labels what is common,
says "unknown" to the rest, and groups the unknown.

    from uniot import UniOT
    model = UniOT(random_state=0).fit(X_source, y_source, X_target)
    model.labels_
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from uniot.data_quality import near_duplicates, suspect_labels
    from uniot.errors import UniotError
    from uniot.estimator import UniOT
    from uniot.evaluation import evaluate, h3_score, h_score
    from uniot.transport import balanced_plan, unbalanced_plan

_HOME = {
    "UniOT": "uniot.estimator",
    "UniotError": "uniot.errors",
    "balanced_plan": "uniot.transport",
    "evaluate": "uniot.evaluation",
    "h3_score": "uniot.evaluation",
    "h_score": "uniot.evaluation",
    "near_duplicates": "uniot.data_quality",
    "suspect_labels": "uniot.data_quality",
    "unbalanced_plan": "uniot.transport",
}

__all__ = [
    "UniOT",
    "UniotError",
    "balanced_plan",
    "evaluate",
    "h3_score",
    "h_score",
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
