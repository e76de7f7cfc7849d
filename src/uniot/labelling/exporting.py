"""Export labels as CSV, JSON Lines, COCO, FiftyOne or Label Studio files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np

from uniot.annotations.places import DISCARDED, class_index, is_class
from uniot.errors import DataError, RunFolderError
from uniot.io.csv_tables import write_table
from uniot.io.files import temporary_path, write_text
from uniot.io.text import quoted
from uniot.labelling.names import Decision, Line, write_names
from uniot.runs.files import LABEL_COLUMNS, RunFiles
from uniot.runs.pictures import Pictures

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState
    from uniot.runs.texts import Texts

Format = Literal["csv", "jsonl", "coco", "fiftyone", "label-studio"]

_STORED_PICTURE_SIDE = 256


@dataclass(frozen=True)
class Exported:
    """An export: its path, and the numbers of samples.

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


def export_labels(
    run: RunFiles, target: TargetSamples, state: AnnotationState, kind: Format = "csv", path: Path | None = None
) -> Exported:
    """Write the labels in a format, completely or not at all.

    Args:
        run: files of the run.
        target: samples that were labelled.
        state: their labels.
        kind: the format.
        path: the file, or the folder for FiftyOne; None for a fixed name in the run folder.

    Returns:
        The path and the numbers of samples.
    """
    is_own, path = path is None, run.exported_labels(kind) if path is None else path
    lines = list(decided(target, state))
    row_of = {name: row for row, name in enumerate(target.names)}
    if kind == "csv" and (is_own or target.texts is None):
        write_names(path, lines)
    elif kind == "csv" and target.texts is not None:
        columns = (*LABEL_COLUMNS, target.texts.kind)
        write_table(
            path, columns, [(*line, target.texts.of("target", row_of[line[0]])) for line in lines], keep_empty=True
        )
    elif kind == "jsonl":
        write_text(path, "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in _objects(lines, row_of, target)))
    elif kind == "coco":
        write_text(path, json.dumps(_coco(lines, row_of, target.texts), ensure_ascii=False, indent=1))
    elif kind == "label-studio":
        tasks = _label_studio(lines, row_of, Pictures.open(run.folder), target.texts)
        write_text(path, json.dumps(tasks, ensure_ascii=False, indent=1))
    else:
        _write_fiftyone(path, lines, row_of, Pictures.open(run.folder))
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


def decided(target: TargetSamples, state: AnnotationState) -> Iterator[Line]:
    """Yield a line per decided sample, in the order of the target.

    A sample is decided if it is in a named group, was discarded, or was placed by a person or by the labels of others.
    A group with the name of a source class is that class. A sample is `inferred` if the labels of other samples moved
    it to a class or to a group with labelled samples, or if the run was given it as inferred. A sample that a person
    placed in a group without a name is `unknown`.
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


def _objects(lines: Sequence[Line], row_of: dict[str, int], target: TargetSamples) -> Iterator[dict[str, Any]]:
    """Yield the fields of labels.csv, and the text or link of the sample."""
    for line in lines:
        one: dict[str, Any] = dict(zip(LABEL_COLUMNS, line, strict=True))
        if target.texts is not None:
            one[target.texts.kind] = target.texts.of("target", row_of[line[0]])
        yield one


def _labelled(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return [(name, label) for name, label, _, _ in lines if label]


def _coco(lines: Sequence[Line], row_of: dict[str, int], texts: Texts | None) -> dict[str, Any]:
    """Return a COCO dataset without boxes; the id of an image is its line in predictions.csv, from 0.

    Links are the addresses of the images; there is no place for texts.
    """

    def address(row: int) -> dict[str, str]:
        found = None if texts is None else texts.address("target", row)
        return {} if found is None else {"coco_url": found}

    new = {label for _, label, decision, _ in lines if decision == "named"}
    labelled = _labelled(lines)
    number = {name: index for index, name in enumerate(sorted({label for _, label in labelled}), start=1)}
    return {
        "info": {"description": "Image classification, exported by uniot label"},
        "images": [{"id": row_of[name], "file_name": name} | address(row_of[name]) for name, _ in labelled],
        "annotations": [
            {"id": index, "image_id": row_of[name], "category_id": number[label]}
            for index, (name, label) in enumerate(labelled, start=1)
        ],
        "categories": [
            {"id": index, "name": name, "supercategory": "new" if name in new else "source"}
            for name, index in number.items()
        ],
    }


def _label_studio(
    lines: Sequence[Line], row_of: dict[str, int], pictures: Pictures | None, texts: Texts | None
) -> list[dict[str, Any]]:
    """Return one task per sample, for a configuration with `<Choices name="label">` and what the sample is.

    That is `<Image name="image">`, `<Text name="text">`, or `<Text name="link">`; samples of which only the embedding
    is known are texts, with their name.
    """
    tasks = []
    for name, label in _labelled(lines):
        row = row_of[name]
        path = None if pictures is None else pictures.path("target", row)
        if path is not None:
            # Label Studio serves local files by their path below its document root.
            kind, shown = "image", f"/data/local-files/?d={quote(path.as_posix().lstrip('/'))}"
        elif pictures is not None:
            kind, shown = "image", name
        else:
            kind, shown = ("text", name) if texts is None else (texts.kind, texts.of("target", row))
        result = {"from_name": "label", "to_name": kind, "type": "choices", "value": {"choices": [label]}}
        tasks.append({"data": {kind: shown, "sample": name}, "annotations": [{"result": [result]}]})
    return tasks


def _write_fiftyone(path: Path, lines: Sequence[Line], row_of: dict[str, int], pictures: Pictures | None) -> None:
    """Write a FiftyOneImageClassificationDataset: data/ with copies of the images, and labels.json."""
    if pictures is None:
        raise DataError(
            "FiftyOne needs images, and this run was made from embeddings or texts. Choose csv, jsonl, coco or "
            "label-studio."
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
