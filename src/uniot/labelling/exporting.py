"""From labels to files: `labels.csv`, and the formats of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from uniot.annotations import FILE
from uniot.annotations.places import DISCARDED, class_index, is_class
from uniot.errors import DataError
from uniot.labelling.formats import Format, write_format
from uniot.labelling.names import Line, write_names
from uniot.labelling.state import Labels
from uniot.labelling.store import Store
from uniot.labelling.target import Target
from uniot.pictures import Pictures

TABLE = "labels.csv"
_IN_RUN_FOLDER: dict[Format, str] = {
    "csv": TABLE,
    "jsonl": "labels.jsonl",
    "coco": "labels-coco.json",
    "fiftyone": "labels-fiftyone",
    "label-studio": "labels-label-studio.json",
}


@dataclass(frozen=True)
class Exported:
    """What an export holds: samples in new classes, in classes of the source, and discarded ones."""

    path: Path
    n_named: int
    n_of_class: int
    n_discarded: int

    def __len__(self) -> int:
        return self.n_named + self.n_of_class + self.n_discarded

    def sentence(self) -> str:
        """For people."""
        if not len(self):
            return f"{self.path} is written, but nothing is named yet: it holds no sample."
        counts = f"{self.n_named} in new classes, {self.n_of_class} in known classes, {self.n_discarded} discarded"
        return f"{self.path} is written: {counts}."


def write_table(target: Target, labels: Labels, path: Path) -> Exported:
    """Writes labels.csv, whole or not at all."""
    lines = list(decided(target, labels))
    write_names(path, lines)
    return _counted(path, lines)


def export_labels(target: Target, labels: Labels, kind: Format = "csv", path: Path | None = None) -> Exported:
    """Writes what was decided in a format, whole or not at all.

    Args:
        target: what was labelled.
        labels: the state.
        kind: the format.
        path: the file, or the folder for FiftyOne; a name of its own in the run folder if None.
    """
    target.check_in_place()
    path = target.run / _IN_RUN_FOLDER[kind] if path is None else path
    if kind == "csv":
        return write_table(target, labels, path)
    lines = list(decided(target, labels))
    write_format(kind, path, lines, target.names, Pictures.open(target.run))
    return _counted(path, lines)


def export_run(run: Path, path: Path, kind: Format | None = None) -> Exported:
    """The same from what was saved, with or without a page open on the run; the format is told by the file's name."""
    target = Target.open(run)
    labels = Labels.start(target.start)
    with closing(Store.existing(run / FILE, target.digest)) as store:
        store.load(labels)
    return export_labels(target, labels, kind or format_of(path), path)


def format_of(path: Path) -> Format:
    """Return the format that a file's name tells."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return "csv"
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    raise DataError(
        f"the format of {path} is not told by its name. Give --format: coco or label-studio for a .json file, fiftyone "
        "for a folder; .csv and .jsonl files need none."
    )


def decided(target: Target, labels: Labels) -> Iterator[Line]:
    """Samples of named groups, of classes where a person put them, and discarded ones, in the order of the target.

    A group that is called like a class of the source is that class.
    """
    meant = {group: target.class_named(name) for group, name in labels.names.items()}
    for name, place, by_hand in zip(target.names, labels.place.tolist(), labels.by_hand.tolist(), strict=True):
        if place == DISCARDED:
            yield name, "", "discarded", None
        elif is_class(place):
            if by_hand:
                yield name, target.classes[class_index(place)], "class", None
        elif place in meant:
            known = meant[place]
            if known is None:
                yield name, labels.names[place], "named", place
            else:
                yield name, target.classes[known], "class", place


def _counted(path: Path, lines: list[Line]) -> Exported:
    decisions = [decision for _, _, decision, _ in lines]
    return Exported(path, decisions.count("named"), decisions.count("class"), decisions.count("discarded"))
