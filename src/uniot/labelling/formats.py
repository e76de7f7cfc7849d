"""Export labels as CSV, JSON Lines, COCO, FiftyOne or Label Studio files; import CSV and JSON Lines."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np

from uniot.discovery.annotations import DISCARDED, class_index, is_class
from uniot.errors import DataError, RunFolderError
from uniot.io.csv_tables import CsvError, dict_reader
from uniot.io.files import MOST_TEXT_BYTES, read_bounded, temporary_path, write_text
from uniot.io.text import as_utf8, listed, quoted
from uniot.labelling import Decision, Line, clean_name, write_names
from uniot.runs.files import LABEL_COLUMNS, RunFiles
from uniot.runs.pictures import Pictures

if TYPE_CHECKING:
    from uniot.labelling.state import AnnotationState
    from uniot.labelling.target import Target

Format = Literal["csv", "jsonl", "coco", "fiftyone", "label-studio"]
SAMPLE_COLUMNS = ("path", "sample")

_STORED_PICTURE_SIDE = 256


@dataclass(frozen=True)
class Exported:
    """Describes an export: its path, and the numbers of samples.

    Attributes:
        path: the file, or the folder.
        n_named: samples in new classes.
        n_of_class: samples in source classes.
        n_discarded: discarded samples.
        n_inferred: samples that moved to a class, old or new, with labels of others.
        n_unknown: samples in groups without a name, where a person placed them.
    """

    path: Path
    n_named: int
    n_of_class: int
    n_discarded: int
    n_inferred: int = 0
    n_unknown: int = 0

    def __len__(self) -> int:
        return self.n_named + self.n_of_class + self.n_discarded + self.n_inferred + self.n_unknown

    def sentence(self) -> str:
        """Return a sentence for people."""
        if not len(self):
            return f"{quoted(self.path)} is written, but it is empty: nothing has a name yet."
        counts = f"{self.n_named} in new classes, {self.n_of_class} in known classes, {self.n_discarded} discarded"
        if self.n_inferred:
            counts += f", {self.n_inferred} inferred from these"
        if self.n_unknown:
            counts += f", {self.n_unknown} unknown"
        return f"{quoted(self.path)} is written: {counts}."


def export_labels(target: Target, state: AnnotationState, kind: Format = "csv", path: Path | None = None) -> Exported:
    """Write the labels in a format, completely or not at all.

    Args:
        target: samples that were labelled.
        state: their labels.
        kind: the format.
        path: the file, or the folder for FiftyOne; None for a fixed name in the run folder.

    Returns:
        The path and the numbers of samples.
    """
    target.check_in_place()
    path = RunFiles(target.run).exported_labels(kind) if path is None else path
    lines = list(decided(target, state))
    row_of = {name: row for row, name in enumerate(target.names)}
    if kind == "csv":
        write_names(path, lines)
    elif kind == "jsonl":
        objects = (json.dumps(dict(zip(LABEL_COLUMNS, line, strict=True)), ensure_ascii=False) for line in lines)
        write_text(path, "".join(f"{one}\n" for one in objects))
    elif kind == "coco":
        write_text(path, json.dumps(_coco(lines, row_of), ensure_ascii=False, indent=1))
    elif kind == "label-studio":
        tasks = _label_studio(lines, row_of, Pictures.open(target.run))
        write_text(path, json.dumps(tasks, ensure_ascii=False, indent=1))
    else:
        _write_fiftyone(path, lines, row_of, Pictures.open(target.run))
    decisions = [decision for _, _, decision, _ in lines]
    return Exported(path, *(decisions.count(one) for one in ("named", "class", "discarded", "inferred", "unknown")))


def format_of(path: Path) -> Format:
    """Return the format of a file with the suffix .csv, .jsonl or .ndjson."""
    formats: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    if path.suffix.lower() not in formats:
        raise DataError(
            f"the name of {path} does not give the format. Add --format: coco or label-studio for a .json file, "
            "fiftyone for a folder. Files that end with .csv or .jsonl need none."
        )
    return formats[path.suffix.lower()]


def decided(target: Target, state: AnnotationState) -> Iterator[Line]:
    """Yield the samples of named groups, those that people or their labels of others placed, and discarded ones.

    In target order. A group that has the name of a source class is that class. A sample is inferred if nobody placed it
    by hand and it left the category of the run for a class, or for a group with labelled samples: it moved there with
    their labels, or with the line between known and unknown that they moved. So is one that the run was given as such.
    A sample that a person placed in a group without a name is unknown.
    """
    known = {group: target.class_named(name) for group, name in state.names.items()}
    moved = ~state.by_hand & (state.category != target.start)
    inferred = moved & ((state.category < DISCARDED) | np.isin(state.category, state.category[state.by_hand]))
    answers = target.annotations(state).answers
    inferred[answers.rows[answers.inferred]] = True
    for name, category, by_hand, follows in zip(
        target.names, state.category.tolist(), state.by_hand.tolist(), inferred.tolist(), strict=True
    ):
        if category == DISCARDED:
            yield name, "", "discarded", None
        elif is_class(category):
            if by_hand or follows:
                yield name, target.classes[class_index(category)], "inferred" if follows else "class", None
        elif category in known:
            index = known[category]
            label = state.names[category] if index is None else target.classes[index]
            decision: Decision = "named" if index is None else "class"
            yield name, label, "inferred" if follows else decision, category
        elif by_hand:
            yield name, "", "unknown", category


def _labelled(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return [(name, label) for name, label, _, _ in lines if label]


def _coco(lines: Sequence[Line], row_of: dict[str, int]) -> dict[str, Any]:
    """Return a COCO dataset without boxes; the id of an image is its line in predictions.csv, from 0."""
    new = {label for _, label, decision, _ in lines if decision == "named"}
    labelled = _labelled(lines)
    number = {name: index for index, name in enumerate(sorted({label for _, label in labelled}), start=1)}
    return {
        "info": {"description": "Image classification, exported by uniot label"},
        "images": [{"id": row_of[name], "file_name": name} for name, _ in labelled],
        "annotations": [
            {"id": index, "image_id": row_of[name], "category_id": number[label]}
            for index, (name, label) in enumerate(labelled, start=1)
        ],
        "categories": [
            {"id": index, "name": name, "supercategory": "new" if name in new else "source"}
            for name, index in number.items()
        ],
    }


def _label_studio(lines: Sequence[Line], row_of: dict[str, int], pictures: Pictures | None) -> list[dict[str, Any]]:
    """Return one task per image, for a configuration with `<Image name="image">` and `<Choices name="label">`."""
    tasks = []
    for name, label in _labelled(lines):
        path = None if pictures is None else pictures.path("target", row_of[name])
        # Label Studio serves local files by their path below its document root.
        image = name if path is None else f"/data/local-files/?d={quote(path.as_posix().lstrip('/'))}"
        result = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [label]}}
        tasks.append({"data": {"image": image, "sample": name}, "annotations": [{"result": [result]}]})
    return tasks


def _write_fiftyone(path: Path, lines: Sequence[Line], row_of: dict[str, int], pictures: Pictures | None) -> None:
    """Write a FiftyOneImageClassificationDataset: data/ with copies of the images, and labels.json."""
    if pictures is None:
        raise DataError(
            "FiftyOne needs images, and this run was made from embeddings. Choose csv, jsonl, coco or label-studio."
        )
    if path.exists() and not (path.is_dir() and {one.name for one in path.iterdir()} <= {"data", "labels.json"}):
        raise DataError(f"{path} exists and is not an earlier export. Give another folder, or remove it.")
    classes = sorted({label for _, label in _labelled(lines)})
    partial = temporary_path(path)
    try:
        (partial / "data").mkdir(parents=True)
        labels = {}
        for name, label in _labelled(lines):
            row = row_of[name]
            key = f"{row:06d}"
            _copy(pictures, row, partial / "data" / key)
            labels[key] = classes.index(label)
        write_text(partial / "labels.json", json.dumps({"classes": classes, "labels": labels}, ensure_ascii=False))
        if path.exists():
            shutil.rmtree(path)
        partial.rename(path)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror or error}). Check that the disk has room and that you may "
            "write to the folder."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy(pictures: Pictures, row: int, copy: Path) -> None:
    source = pictures.path("target", row)
    if source is None:
        copy.with_suffix(".jpg").write_bytes(pictures.thumbnail("target", row, _STORED_PICTURE_SIDE))
        return
    try:
        content = source.read_bytes()
    except OSError as error:
        raise DataError(f"{source} cannot be read ({error.strerror}). Put it back, or discard the sample.") from None
    copy.with_suffix(source.suffix).write_bytes(content)


def parse_labels(text: str, samples: Sequence[str]) -> dict[int, str | None]:
    """Parse labels in CSV with a header, or in JSON Lines.

    A line has `path` or `sample`, as in predictions.csv, and `label`. If `decision` is `discarded`, the label is empty.
    A line with the decision `unknown` has no label to import and is left out. Other columns are ignored.

    Args:
        text: content of the file.
        samples: names of the target samples, (n_samples,).

    Returns:
        Label by row of the target; None if the sample is discarded.

    Raises:
        DataError: a column is missing, a sample is not in the target or occurs twice, or a label is not allowed.
    """
    text = text.removeprefix("\ufeff")
    lines = _json_lines(text) if text.lstrip().startswith("{") else _csv_lines(text)
    row_of = {as_utf8(name): row for row, name in enumerate(samples)}
    labels: dict[int, str | None] = {}
    missing: list[str] = []
    for number, line in lines:
        if line.get("decision") == "unknown" and not line.get("label"):
            continue
        where = f"line {number}"
        name = next((str(line[column]) for column in SAMPLE_COLUMNS if line.get(column) is not None), None)
        if name is None or "label" not in line:
            raise DataError(f"{where} has no sample or no label. Give `path` (or `sample`) and `label` on every line.")
        row = row_of.get(as_utf8(name))
        if row is None:
            missing.append(name)
        elif row in labels:
            raise DataError(f"{where} contains {name!r} a second time. Keep one line per sample.")
        else:
            labels[row] = _label(where, line)
    if missing:
        raise DataError(
            f"{len(missing)} of {len(missing) + len(labels)} samples are not in this run, for example "
            f"{missing[0]!r}. Use the names of predictions.csv."
        )
    if not labels:
        raise DataError("it contains no label. Give a header with path and label, and one line per sample.")
    return labels


def _label(where: str, line: dict[str, Any]) -> str | None:
    if line.get("decision") == "discarded":
        return None
    try:
        name = clean_name("" if line["label"] is None else str(line["label"]))
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if not name:
        raise DataError(f"{where} has no label. Give one, remove the line, or write `discarded` as its decision.")
    return name


@dataclass(frozen=True)
class TableOfAnswers:
    """Answers that were read from a table.

    Attributes:
        answers: index of a source class, `UNKNOWN` or `CANNOT_TELL` by row of the target.
        n_repeated: samples with several answers, of which the last one counts.
    """

    answers: dict[int, int]
    n_repeated: int


def parse_answers(text: str, target: Target) -> TableOfAnswers:
    """Parse answers in CSV: `path` or `sample` as in predictions.csv, or `row`; and `answer`.

    An answer is a source class, the label of unknown samples, or `?` or nothing for "cannot tell".

    Raises:
        DataError: a column is missing, a sample or a class does not exist, or the text is not CSV.
    """
    row_of = {as_utf8(name): row for row, name in enumerate(target.names)}
    answers: dict[int, int] = {}
    repeated: set[int] = set()
    missing: list[str] = []
    for number, line in _csv_lines(text.removeprefix("\ufeff"), "answer", (*SAMPLE_COLUMNS, "row")):
        column = next(name for name in (*SAMPLE_COLUMNS, "row") if name in line)
        name, said = str(line[column] or ""), str(line["answer"] or "").strip()
        row = _row_number(name, len(target.names), number) if column == "row" else row_of.get(as_utf8(name))
        if row is None:
            missing.append(name)
            continue
        try:
            index = target.answer_index(None if said in ("", "?") else said)
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None
        if row in answers:
            repeated.add(row)
        answers.pop(row, None)
        answers[row] = index
    if missing:
        raise DataError(
            f"{len(missing)} of {len(missing) + len(answers)} samples are not in this run, for example "
            f"{missing[0]!r}. Give the questions that `uniot ask` wrote for this run."
        )
    if not answers:
        raise DataError("it contains no answer. Give a header with path and answer, and one line per sample.")
    return TableOfAnswers(answers, len(repeated))


def _row_number(text: str, n_samples: int, line: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:12]) >= n_samples:
        raise DataError(f"line {line} is about row {text[:40]!r}, and the run has rows 0 to {n_samples - 1}.")
    return int(text)


def read_text(path: Path) -> str:
    """Return the text of a table.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or is too large.
    """
    try:
        return read_bounded(path, MOST_TEXT_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read ({reason}). Give a .csv file in UTF-8.") from None


def _csv_lines(
    text: str, needed: str = "label", columns: Sequence[str] = SAMPLE_COLUMNS
) -> Iterator[tuple[int, dict[str, Any]]]:
    table = dict_reader(io.StringIO(text, newline=""), strict=True)
    try:
        fields = table.fieldnames or []
        if needed not in fields or not any(column in fields for column in columns):
            raise DataError(
                f"the header is {listed(fields)!r}. It needs path (or {' or '.join(columns[1:])}) and {needed}."
            )
        for line in table:
            yield table.line_num, line
    except CsvError as error:
        raise DataError(f"line {table.line_num} is not CSV ({error}). Correct it, or save the table as CSV.") from None


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} is not JSON ({error}). Give one object per line.") from None
        if not isinstance(found, dict):
            raise DataError(f"line {number} is not a JSON object. Give one with path and label per line.")
        yield number, found
