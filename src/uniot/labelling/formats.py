"""Labels in the formats of other tools: JSON Lines, COCO, FiftyOne and Label Studio."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote

from uniot.errors import DataError, RunFolderError
from uniot.labelling.names import Line
from uniot.pictures import Pictures
from uniot.run_folder import write_text

Format = Literal["csv", "jsonl", "coco", "fiftyone", "label-studio"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SIDE_OF_KEPT_PICTURES = 256


def write_format(
    kind: Format, path: Path, lines: Sequence[Line], samples: Sequence[str], pictures: Pictures | None
) -> None:
    """Writes decided samples in one of the formats but CSV, whole or not at all.

    Args:
        kind: the format.
        path: the file, or the folder for FiftyOne.
        lines: what was decided.
        samples: names of all samples of the target, in order.
        pictures: of the run; None if it was made from embeddings.
    """
    row_of = {name: row for row, name in enumerate(samples)}
    if kind == "jsonl":
        text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in map(_as_object, lines))
        write_text(path, text)
    elif kind == "coco":
        write_text(path, json.dumps(_coco(lines, row_of), ensure_ascii=False, indent=1))
    elif kind == "label-studio":
        write_text(path, json.dumps(_label_studio(lines, row_of, pictures), ensure_ascii=False, indent=1))
    else:
        _write_fiftyone(path, lines, row_of, pictures)


def _as_object(line: Line) -> dict[str, Any]:
    name, label, decision, group = line
    return {"path": name, "label": label, "decision": decision, "group": group}


def _classes(lines: Sequence[Line]) -> list[str]:
    return sorted({label for _, label, decision, _ in lines if decision != "discarded"})


def _labelled(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return [(name, label) for name, label, decision, _ in lines if decision != "discarded"]


def _coco(lines: Sequence[Line], row_of: dict[str, int]) -> dict[str, Any]:
    """Images, annotations without a box, and categories; ids of images are lines of predictions.csv, from 0."""
    new = {label for _, label, decision, _ in lines if decision == "named"}
    number = {name: index for index, name in enumerate(_classes(lines), start=1)}
    labelled = _labelled(lines)
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
    """Tasks with an annotation each, for a configuration with `<Image name="image">` and `<Choices name="label">`."""
    tasks = []
    for name, label in _labelled(lines):
        path = None if pictures is None else pictures.path("target", row_of[name])
        # Label Studio serves local files by their path below its document root.
        image = name if path is None else f"/data/local-files/?d={quote(path.as_posix().lstrip('/'))}"
        result = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [label]}}
        tasks.append({"data": {"image": image, "sample": name}, "annotations": [{"result": [result]}]})
    return tasks


def _write_fiftyone(path: Path, lines: Sequence[Line], row_of: dict[str, int], pictures: Pictures | None) -> None:
    """Writes a FiftyOneImageClassificationDataset: data/ with copies of the images, and labels.json."""
    if pictures is None:
        raise DataError(
            "FiftyOne shows images, and this run was made from embeddings. Choose another format: csv, jsonl, coco or "
            "label-studio."
        )
    if path.exists() and not _is_earlier_export(path):
        raise DataError(f"{path} exists, and is no earlier export. Give another folder, or remove it.")
    classes = _classes(lines)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
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
            f"{path} cannot be written ({error.strerror or error}). Check that the disk has room and the folder is "
            "yours to write."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_earlier_export(path: Path) -> bool:
    return path.is_dir() and {one.name for one in path.iterdir()} <= {"data", "labels.json"}


def _copy(pictures: Pictures, row: int, place: Path) -> None:
    source = pictures.path("target", row)
    if source is None:
        place.with_suffix(".jpg").write_bytes(pictures.thumbnail("target", row, _SIDE_OF_KEPT_PICTURES))
        return
    try:
        content = source.read_bytes()
    except OSError as error:
        raise DataError(f"{source} cannot be read ({error.strerror}). Put it back, or discard the sample.") from None
    place.with_suffix(source.suffix).write_bytes(content)
