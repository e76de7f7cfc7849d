"""The categories of a target: the source classes that were found in it, and the groups of unknown samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.io.text import as_utf8

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True, eq=False)
class Category:
    """A source class found in the target, or a group of unknown samples.

    Attributes:
        key: identifier for links and file names: class-003, group-000.
        name: name shown to people.
        known: whether it is a source class.
        index: index of the source class or group; -1 for unknown samples that were not grouped.
        members: target rows, the most confident first, (n_members,).
        confidence: group confidence if it is a group, confidence of the prediction otherwise, (n_members,).
        centre: unit vector near the typical members, (n_features,).
    """

    key: str
    name: str
    known: bool
    index: int
    members: np.ndarray
    confidence: np.ndarray
    centre: np.ndarray

    @property
    def is_group(self) -> bool:
        """Return whether it is a group of unknown samples."""
        return not self.known and self.index >= 0

    @property
    def confidence_word(self) -> str:
        """Return the name of the confidence: that of the prediction, or of the members of a group."""
        return "group confidence" if self.is_group else "confidence"

    @property
    def mean_confidence(self) -> float:
        """Return the mean confidence of the members."""
        return float(self.confidence.mean())


@dataclass(frozen=True, eq=False)
class Categories:
    """The categories that have a sample in the target.

    Attributes:
        found: the source classes, then the groups; larger ones first.
        of_row: index into `found` of each target sample, (n_samples,).
        class_sizes: number of target samples of each source class, (n_classes,).
    """

    found: list[Category]
    of_row: np.ndarray
    class_sizes: np.ndarray

    @classmethod
    def of(cls, model: AdaptedModel) -> Categories:
        """Return the categories of a model's target."""
        target = model.target
        found = sorted(
            [*_classes(model), *_groups(model)],
            key=lambda category: (not category.known, category.index < 0, -len(category.members)),
        )
        of_row = np.full(len(target), -1)
        for index, category in enumerate(found):
            of_row[category.members] = index
        return cls(found, of_row, np.bincount(target.nearest[target.known], minlength=len(model.classes)))


def _classes(model: AdaptedModel) -> Iterator[Category]:
    target, centres, names = model.target, model.class_centres, model.class_names
    for index, members in _split(target.nearest, target.known):
        yield _category(f"class-{index:03d}", names[index], True, index, members, target.confidence, centres[index])


def _groups(model: AdaptedModel) -> Iterator[Category]:
    target = model.target
    for index, members in _split(target.group, ~target.known):
        centre = model.target_features[members].mean(axis=0)
        if index >= 0:
            key, name = f"group-{index:03d}", as_utf8(model.group_names.get(index, f"Group {index}"))
            if model.annotations is None:
                centre = model.groups.centres[index]
            yield _category(key, name, False, index, members, target.group_confidence, centre)
        else:
            yield _category("ungrouped", "Unknown, not grouped", False, index, members, target.confidence, centre)


def _split(labels: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each label with its chosen rows, in the order of the labels."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(labels[rows], kind="stable")]
    found, starts = np.unique(labels[rows], return_index=True)
    if len(rows):
        yield from zip(found.tolist(), np.split(rows, starts[1:]), strict=True)


def _category(
    key: str, name: str, known: bool, index: int, members: np.ndarray, confidence: np.ndarray, centre: np.ndarray
) -> Category:
    members = members[np.argsort(-confidence[members], kind="stable")]
    return Category(key, name, known, index, members, confidence[members], centre)
