"""Make the tables of the report: scores, settings, and labels and samples to check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uniot.data_quality.checks import (
    NearDuplicate,
    SuspectLabel,
    read_near_duplicates,
    read_suspect_labels,
)
from uniot.io.text import as_utf8
from uniot.metrics.evaluate import SCORE_MEANINGS
from uniot.report.galleries import Picture, data_uri, read_thumbnails

if TYPE_CHECKING:
    from uniot.config import CheckedSettings
    from uniot.report.run import FinishedRun
    from uniot.runs.pictures import Collection

_MOST = 40


@dataclass(frozen=True)
class Cell:
    """Gives a count and its fraction of the row; `right` if the label is right for the true class."""

    count: int
    share: float
    right: bool


@dataclass(frozen=True)
class Row:
    """Counts the samples of a true class by label."""

    name: str
    is_common: bool
    count: int
    cells: list[Cell]


@dataclass(frozen=True)
class ConfusionTable:
    """Holds the confusion matrix: common classes first, then private ones.

    Attributes:
        columns: labels that the run gave; the last is "unknown", whatever the run calls it.
        rows: true classes.
        rows_left_out: smaller true classes that are not shown.
        columns_left_out: labels that are not shown; the last cell but one of a row counts them together.
    """

    columns: list[str]
    rows: list[Row]
    rows_left_out: int
    columns_left_out: int


def read_confusion(
    metrics: Mapping[str, Any] | None, class_names: Sequence[str], unknown: str
) -> ConfusionTable | None:
    """Return the confusion matrix of metrics.json; None if it has none.

    Args:
        metrics: content of metrics.json.
        class_names: source classes.
        unknown: label of unknown samples.
    """
    read = None if metrics is None else metrics.get("confusion")
    if not isinstance(read, dict) or not read:
        return None
    counts: dict[str, dict[str, int]] = {
        as_utf8(name): {as_utf8(label): int(count) for label, count in given.items()} for name, given in read.items()
    }
    common = set(class_names)
    sizes = {name: sum(given.values()) for name, given in counts.items()}
    largest = set(sorted(sizes, key=lambda name: -sizes[name])[:_MOST])
    shown = [name for name in counts if name in largest]
    labels: dict[str, int] = {}
    for name in shown:
        for label, count in counts[name].items():
            labels[label] = labels.get(label, 0) + count
    # A class without predictions has a column too, in the order of the rows.
    columns = [name for name in shown if name in common]
    others = sorted((label for label in labels if label not in {*columns, unknown}), key=lambda label: -labels[label])
    left_out = others[max(0, _MOST - len(columns)) :]
    columns += others[: len(others) - len(left_out)]
    rows = [_row(name, counts[name], name in common, columns, left_out, unknown) for name in shown]
    heads = [*columns, *(["others"] if left_out else []), "unknown"]
    return ConfusionTable(heads, rows, len(counts) - len(shown), len(left_out))


def _row(
    name: str, given: Mapping[str, int], is_common: bool, columns: list[str], left_out: list[str], unknown: str
) -> Row:
    size, right = sum(given.values()), name if is_common else unknown
    cells = [Cell(given.get(label, 0), given.get(label, 0) / size, label == right) for label in columns]
    if left_out:
        count = sum(given.get(label, 0) for label in left_out)
        cells.append(Cell(count, count / size, False))
    cells.append(Cell(given.get(unknown, 0), given.get(unknown, 0) / size, not is_common))
    return Row(name, is_common, size, cells)


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
    """Shows a name, its value as text, and its meaning."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Recall:
    """Gives the fraction of the samples of a class that are right."""

    name: str
    value: float


@dataclass(frozen=True)
class Scores:
    """Holds the scores of a run that was evaluated with true labels.

    Attributes:
        honest: scores of the predictions.
        oracle: scores that use the true private samples and their number of classes.
        recalls: recall per common class, and of unknown.
        confusion: true classes against labels; None for a metrics.json of an earlier version.
        recalls_left_out: classes that are not listed.
        notes: on scores without a value.
    """

    honest: list[Line]
    oracle: list[Line]
    recalls: list[Recall]
    confusion: ConfusionTable | None
    recalls_left_out: int
    notes: list[str]


def read_scores(run: FinishedRun) -> Scores | None:
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
        confusion=read_confusion(metrics, run.class_names, unknown),
        recalls_left_out=max(0, len(recalls) - _MOST_CLASSES),
        notes=[str(note) for note in notes] if isinstance(notes, list) else [],
    )


def read_settings(run: FinishedRun) -> list[Line]:
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


_MOST_LABELS, _MOST_PAIRS = 40, 24
_SIDE, _MOST_BYTES = 96, 300_000


@dataclass(frozen=True)
class ShownLabel:
    """Shows a suspect label, and the picture of its sample as a data URI."""

    line: SuspectLabel
    picture: str | None


@dataclass(frozen=True)
class ShownPair:
    """Shows a pair of near-duplicates, and their pictures."""

    line: NearDuplicate
    pictures: tuple[str | None, str | None]


@dataclass(frozen=True)
class Faults:
    """Lists suspect labels and near-duplicates, the clearest first.

    Attributes:
        labels: some labels that look wrong.
        n_labels: all of them.
        n_clear: of these, how many are clear.
        pairs: some near-duplicates, those between the collections first.
        n_pairs: all of them.
    """

    labels: list[ShownLabel]
    n_labels: int
    n_clear: int
    pairs: list[ShownPair]
    n_pairs: int


def read_faults(run: FinishedRun) -> Faults | None:
    """Return suspect labels and near-duplicates of a run; None if it has neither."""
    labels = read_suspect_labels(run.files.suspect_labels)
    pairs = read_near_duplicates(run.files.near_duplicates)
    if not labels and not pairs:
        return None
    shown_labels = labels[:_MOST_LABELS]
    shown_pairs = sorted(pairs, key=lambda pair: pair.where != "both")[:_MOST_PAIRS]
    wanted: list[Picture] = [("source", line.row) for line in shown_labels]
    wanted += [picture for pair in shown_pairs for picture in _pictures(pair)]
    read = read_thumbnails(run.pictures, wanted, _SIDE, _MOST_BYTES)

    def uri(picture: Picture) -> str | None:
        return data_uri(read[picture]) if picture in read else None

    return Faults(
        [ShownLabel(line, uri(("source", line.row))) for line in shown_labels],
        len(labels),
        sum(line.clear for line in labels),
        [ShownPair(pair, (uri(_pictures(pair)[0]), uri(_pictures(pair)[1]))) for pair in shown_pairs],
        len(pairs),
    )


def _pictures(pair: NearDuplicate) -> tuple[Picture, Picture]:
    first: Collection = "target" if pair.where == "target" else "source"
    second: Collection = "source" if pair.where == "source" else "target"
    return (first, pair.first_row), (second, pair.second_row)
