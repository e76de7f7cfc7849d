"""What an action would change, and how to say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uniot.annotations.places import DISCARDED, as_text, class_index, class_place, from_text, is_class, is_group
from uniot.errors import DataError
from uniot.labelling.actions import Edit, LabelSample, MergeGroup, MoveSamples, NameGroup, PutBackSamples, SplitGroup
from uniot.labelling.geometry import Geometry
from uniot.labelling.importing import Given
from uniot.labelling.names import clean_name
from uniot.labelling.spreading import Spreader
from uniot.labelling.state import Change, Labels, Renaming, merge, move, put, put_back, rename, split
from uniot.labelling.target import Target
from uniot.words import counted


@dataclass(frozen=True)
class Plan:
    """What an action leads to.

    Attributes:
        change: of the labels.
        text: what was done, for people, to be continued with a full stop.
        show: the place to look at afterwards, where the present one is gone.
    """

    change: Change
    text: str
    show: int | None = None


class Planner:
    """Plans actions on labels as they are now; changes nothing.

    Args:
        target: what there is to label.
        labels: the present state, which somebody else changes.
        geometry: what looks alike in it.
        spreader: where samples follow a labelled one.
    """

    def __init__(self, target: Target, labels: Labels, geometry: Geometry, spreader: Spreader) -> None:
        self._target, self._labels, self._geometry, self._spreader = target, labels, geometry, spreader

    def plan(self, action: Edit) -> Plan:
        """What an action leads to; DataError where it cannot be done."""
        if isinstance(action, NameGroup):
            return self._name(self._group(action.group), clean_name(action.name))
        if isinstance(action, MergeGroup):
            return self._merge(self._group(action.group), self.existing_place(action.to))
        if isinstance(action, SplitGroup):
            return self._split(self._group(action.group))
        if isinstance(action, LabelSample):
            return self._label(int(self._rows([action.row])[0]), clean_name(action.label))
        rows = self._rows(action.rows)
        if isinstance(action, PutBackSamples):
            change = put_back(self._labels, rows, self._target.start)
            return Plan(change, f"{_images(len(rows))} put back where the run had {'it' if len(rows) == 1 else 'them'}")
        if action.to == "new":
            new = self._labels.next_group
            return Plan(move(self._labels, rows, new), f"{_images(len(rows))} moved to new group {new}", new)
        return self._move(rows, self.existing_place(action.to))

    def concerned(self, action: Edit) -> set[int]:
        """Places that must be as the page saw them: those that samples leave, and the group that they get to."""
        if isinstance(action, NameGroup | SplitGroup):
            return {action.group}
        if isinstance(action, MergeGroup):
            return {action.group, *_group_in(action.to)}
        if isinstance(action, LabelSample):
            return set(self._labels.place[self._rows([action.row])].tolist())
        left = set(self._labels.place[self._rows(action.rows)].tolist())
        return left | (_group_in(action.to) if isinstance(action, MoveSamples) else set())

    def imported(self, given: Given) -> Plan:
        """What labels made elsewhere lead to.

        A label that is the name of a class or group means that one. Another becomes a group: one without a name of
        which most samples have the label and the others another one, or else a new one.
        """
        after, by_hand = self._labels.place.copy(), self._labels.by_hand.copy()
        names: list[Renaming] = []
        following = self._labels.next_group
        rows_of: dict[str | None, list[int]] = {}
        for row, label in given.labels.items():
            rows_of.setdefault(label, []).append(row)
        for label, rows in rows_of.items():
            self._check_name(label or "")
            place = DISCARDED if label is None else self._place_called(label)
            if place is None and label is not None:
                place = self._whole_group(rows, given)
                if place is None:
                    place, following = following, following + 1
                names.append(Renaming(place, self._labels.names.get(place, ""), label))
            moved = np.array(rows)[after[rows] != place]
            after[moved], by_hand[moved] = place, True
        change = put(self._labels, np.arange(len(after)), after, by_hand, names)
        n_labels = len(rows_of) - (None in rows_of)
        return Plan(change, f"{_images(len(given.labels))} imported with {n_labels} label{'s' * (n_labels != 1)}")

    def title(self, place: int) -> str:
        """What a place is called in a sentence."""
        if place == DISCARDED:
            return "discarded"
        if is_class(place):
            return f"class “{self._target.classes[class_index(place)]}”"
        name = self._labels.names.get(place)
        return f"group {place}" + (f" “{name}”" if name else "")

    def existing_place(self, text: str) -> int:
        """A place by its text; DataError where there is none."""
        place = from_text(text)
        n_classes = len(self._target.classes)
        if is_class(place) and class_index(place) >= n_classes:
            raise DataError(
                f"there is no {text}: the source has {counted(n_classes, 'class', 'classes')}, from class-0 on."
            )
        if is_group(place) and not (self._labels.place == place).any():
            raise DataError(f"there is no group {place}, or it has no images any more. Choose another group.")
        return place

    def _name(self, group: int, name: str) -> Plan:
        self._check_name(name)
        change = rename(self._labels, group, name)
        if not name:
            return Plan(change, f"the name of group {group} removed")
        shared = [other for other, known in self._labels.names.items() if known == name and other != group]
        text = f"group {group} named “{name}”"
        if self._target.class_named(name) is not None:
            text += ", which is a known class: its images count as that class"
        elif shared:
            text += f", like group {shared[0]}: both are one class"
        return Plan(change, text)

    def _label(self, row: int, name: str) -> Plan:
        self._check_name(name)
        if not name:
            raise DataError("the label is empty. Type what the image shows, or discard it.")
        place, names = self._place_called(name), []
        if place is None:
            place = self._labels.next_group
            names = [Renaming(place, "", name)]
        after = self._spreader.places_after(row, place)
        by_hand = self._labels.by_hand.copy()
        by_hand[row] = True
        n_others = int((after != self._labels.place).sum()) - int(self._labels.place[row] != place)
        others = f"; {n_others} other{'s' * (n_others != 1)} moved with it" if n_others else ""
        return Plan(
            put(self._labels, np.arange(len(after)), after, by_hand, names), f"1 image labelled “{name}”{others}"
        )

    def _check_name(self, name: str) -> None:
        if name and self._target.is_unknown(name):
            raise DataError(f"“{name}” is what this run calls images of no class at all. Choose another name.")

    def _place_called(self, name: str) -> int | None:
        """The class or the first group of a name; None if nothing is called so."""
        known = self._target.class_named(name)
        if known is not None:
            return class_place(known)
        return min((group for group, called in self._labels.names.items() if called == name), default=None)

    def _whole_group(self, rows: Sequence[int], given: Given) -> int | None:
        """The largest group without a name that these rows make up, but for samples with other labels; None if none."""
        groups, counts = np.unique(self._labels.place[list(rows)], return_counts=True)
        whole = [
            (count, -group)
            for group, count in zip(groups.tolist(), counts.tolist(), strict=True)
            if is_group(group) and group not in self._labels.names
            if 2 * count > len(members := self._labels.members(group).tolist()) and given.labels.keys() >= set(members)
        ]
        return -max(whole)[1] if whole else None

    def _merge(self, group: int, to: int) -> Plan:
        if group == to:
            raise DataError(f"group {group} cannot be merged into itself. Choose another group.")
        everything = f"{self.title(group)} with its {_images(len(self._labels.members(group)))}"
        change = merge(self._labels, group, to)
        if to == DISCARDED:
            return Plan(change, f"{everything} discarded")
        return Plan(change, f"{everything} {'merged into' if is_group(to) else 'marked as'} {self.title(to)}", to)

    def _split(self, group: int) -> Plan:
        if len(self._labels.members(group)) < 2:
            raise DataError(f"group {group} has a single image, and cannot be split.")
        half = self._geometry.smaller_half(group)
        text = f"{self.title(group)} split: {_images(len(half))} went to new group {self._labels.next_group}"
        return Plan(split(self._labels, half), text)

    def _move(self, rows: np.ndarray, to: int) -> Plan:
        change = move(self._labels, rows, to)
        if to == DISCARDED:
            return Plan(change, f"{_images(len(rows))} discarded")
        return Plan(change, f"{_images(len(rows))} {'moved to' if is_group(to) else 'marked as'} {self.title(to)}", to)

    def _group(self, number: int) -> int:
        return self.existing_place(as_text(number))

    def _rows(self, rows: Sequence[int]) -> np.ndarray:
        chosen = np.unique(np.asarray(rows, dtype=np.int64))
        if len(chosen) and chosen[-1] >= len(self._target.names):
            raise DataError(
                f"the target has {_images(len(self._target.names))}, and number {chosen[-1]} was asked for."
            )
        return chosen


def _group_in(text: str) -> set[int]:
    """The group that samples are put into; a class, or what is discarded, only grows by it."""
    place = DISCARDED if text == "new" else from_text(text)
    return {place} if is_group(place) else set()


def _images(count: int) -> str:
    return counted(count, "image")
