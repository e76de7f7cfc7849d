"""From labels to `labels.csv`: what was decided, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from uniot.labelling.names import Line, write_names
from uniot.labelling.places import DISCARDED, class_index, is_class
from uniot.labelling.state import Labels
from uniot.labelling.store import FILE, Store
from uniot.labelling.target import Target


@dataclass(frozen=True)
class Exported:
    """What `labels.csv` holds: samples in new classes, in classes of the source, and discarded ones."""

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


def export_labels(target: Target, labels: Labels) -> Exported:
    """Writes `labels.csv` into the run folder, whole or not at all."""
    target.check_in_place()
    path, lines = target.run / "labels.csv", list(decided(target, labels))
    write_names(path, lines)
    decisions = [decision for _, _, decision, _ in lines]
    return Exported(path, decisions.count("named"), decisions.count("class"), decisions.count("discarded"))


def export_run(run: Path) -> Exported:
    """The same from what was saved, with or without a page open on the run."""
    target = Target.open(run)
    labels = Labels.start(target.start)
    with closing(Store.existing(run / FILE, target.digest)) as store:
        store.load(labels)
    return export_labels(target, labels)


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
