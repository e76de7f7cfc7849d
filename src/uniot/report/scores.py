"""The tables of the report: scores and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniot.io.text import as_utf8
from uniot.metrics.evaluate import SCORE_MEANINGS
from uniot.report.acting import rows_of_cells
from uniot.report.confusion import ConfusionTable, read_confusion

if TYPE_CHECKING:
    from uniot.config import CheckedSettings
    from uniot.runs.run import Run

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
    """A name, its value as text, and its meaning."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Recall:
    """The fraction of the samples of a class that are right."""

    name: str
    value: float


@dataclass(frozen=True)
class Scores:
    """The scores of a run that was evaluated with true labels.

    Attributes:
        honest: scores of the predictions.
        oracle: scores that use the true private samples and their number of classes.
        recalls: recall per common class, and of unknown.
        confusion: true classes against labels; None if metrics.json has none.
        recalls_left_out: classes that are not listed.
        notes: on scores without a value.
    """

    honest: list[Line]
    oracle: list[Line]
    recalls: list[Recall]
    confusion: ConfusionTable | None
    recalls_left_out: int
    notes: list[str]


def read_scores(run: Run) -> Scores | None:
    """Return the scores of metrics.json; None if there is no such file."""
    metrics = run.metrics
    if metrics is None:
        return None
    lines = {name: Line(_title(name), _percent(metrics.get(name)), text) for name, text in SCORE_MEANINGS.items()}
    recalls = metrics.get("per_class_recall")
    recalls = recalls if isinstance(recalls, dict) else {}
    unknown = str(run.model.unknown)
    notes = metrics.get("notes")
    return Scores(
        honest=[line for name, line in lines.items() if not name.endswith("_oracle")],
        oracle=[line for name, line in lines.items() if name.endswith("_oracle")],
        recalls=[
            # With integer classes, "unknown" is a number that means nothing to a reader.
            Recall("unknown" if name == unknown else as_utf8(name), float(recall))
            for name, recall in list(recalls.items())[:_MOST_CLASSES]
        ],
        confusion=read_confusion(metrics, run.model.class_names, unknown, rows_of_cells(run, unknown)),
        recalls_left_out=max(0, len(recalls) - _MOST_CLASSES),
        notes=[str(note) for note in notes] if isinstance(notes, list) else [],
    )


def read_settings(run: Run) -> list[Line]:
    """Return every setting of a run, with those of the images; paths are left out."""
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
