"""What the target consists of: source classes that were found in it, and private groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from uniot.data.text import as_utf8
from uniot.model import AdaptedModel


@dataclass(frozen=True, eq=False)
class Category:
    """A source class found in the target, or a group of unknown samples.

    Attributes:
        key: a word of its own, for links and names of files: class-003, group-000.
        name: for people.
        known: whether it is a source class.
        index: of the source class or private group; -1 for unknown samples that were not grouped.
        members: rows of the target, the surest first, (m,).
        confidence: of the answer if the category is known, in the group if not, (m,).
        centre: unit vector that typical members are near, (d,).
    """

    key: str
    name: str
    known: bool
    index: int
    members: np.ndarray
    confidence: np.ndarray
    centre: np.ndarray

    @property
    def confidence_word(self) -> str:
        """What the confidence is of: the answer, or the group of an unknown sample."""
        return "confidence" if self.known else "group confidence"

    @property
    def mean_confidence(self) -> float:
        """Over the members."""
        return float(self.confidence.mean())


def find_categories(model: AdaptedModel, class_names: Sequence[str]) -> list[Category]:
    """The categories that have a sample: classes first, the largest first."""
    found = [*_classes(model, class_names), *_groups(model)]
    return sorted(found, key=lambda category: (not category.known, category.index < 0, -len(category.members)))


def _classes(model: AdaptedModel, names: Sequence[str]) -> Iterator[Category]:
    answers, centres = model.target, model.class_centres
    for index, members in _split(answers.nearest, answers.known):
        yield _category(f"class-{index:03d}", names[index], True, index, members, answers.confidence, centres[index])


def _groups(model: AdaptedModel) -> Iterator[Category]:
    answers = model.target
    for index, members in _split(answers.group, ~answers.known):
        centre = model.target_features[members].mean(axis=0)
        if index >= 0:
            key, name = f"group-{index:03d}", as_utf8(model.group_names.get(index, f"Group {index}"))
            if model.annotations is None:
                centre = model.groups.centres[index]
        else:
            key, name = "ungrouped", "Unknown, not grouped"
        yield _category(key, name, False, index, members, answers.group_confidence, centre)


def _split(labels: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each label with its rows among those that are chosen, in the order of the labels."""
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
