"""Scores and settings as tables with a sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uniot.evaluation import SCORE_MEANINGS
from uniot.report.finished_run import FinishedRun
from uniot.settings import CheckedSettings

_TITLES = {
    "h_score": "H-score",
    "h3_score_honest": "H³-score, honest",
    "h3_score_oracle": "H³-score, oracle",
    "nmi_honest": "NMI, honest",
    "nmi_oracle": "NMI, oracle",
    "auroc": "AUROC",
    "oscr": "OSCR",
}
_MOST_CLASSES = 200


@dataclass(frozen=True)
class Line:
    """A name, its value as text and what it means."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Scores:
    """Scores of a run whose truth somebody told.

    Attributes:
        honest: of what the run said.
        oracle: of what it could say if it were told which samples are private and how many classes they have.
        recalls: of each common class, and of unknown.
        recalls_left_out: classes that are not listed.
        notes: on scores without a value.
    """

    honest: list[Line]
    oracle: list[Line]
    recalls: list[Line]
    recalls_left_out: int
    notes: list[str]


def read_scores(metrics: Mapping[str, Any] | None) -> Scores | None:
    """Scores of metrics.json by what they may look at; None where there is no such file."""
    if metrics is None:
        return None
    lines = {name: Line(_title(name), _percent(metrics.get(name)), text) for name, text in SCORE_MEANINGS.items()}
    recalls = metrics.get("per_class_recall")
    recalls = recalls if isinstance(recalls, dict) else {}
    notes = metrics.get("notes")
    return Scores(
        honest=[line for name, line in lines.items() if not name.endswith("_oracle")],
        oracle=[line for name, line in lines.items() if name.endswith("_oracle")],
        recalls=[Line(str(name), _percent(recall), "") for name, recall in list(recalls.items())[:_MOST_CLASSES]],
        recalls_left_out=max(0, len(recalls) - _MOST_CLASSES),
        notes=[str(note) for note in notes] if isinstance(notes, list) else [],
    )


def read_settings(run: FinishedRun) -> list[Line]:
    """Every setting of a run; those of images too, where it was made from them. Paths are not told."""
    found = _settings(run.model.settings)
    if run.model.reader is not None:
        found += [line for line in _settings(run.model.reader.settings, "images.") if line.name != "images.weights"]
    return found


def _settings(settings: CheckedSettings, prefix: str = "") -> list[Line]:
    return [
        Line(prefix + name, "–" if (value := getattr(settings, name)) is None else str(value), field.description or "")
        for name, field in type(settings).model_fields.items()
    ]


def _title(name: str) -> str:
    return _TITLES.get(name, name.replace("_", " ").capitalize())


def _percent(value: object) -> str:
    return f"{100 * value:.1f}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "–"
