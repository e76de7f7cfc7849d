"""Read the target of a run for the report: source classes that were found in it, and groups of unknown samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniot.io.text import as_utf8, plural
from uniot.runs.files import RunFiles

if TYPE_CHECKING:
    from uniot.io.predictions import Prediction
    from uniot.runs.pictures import Pictures
    from uniot.runs.run import Run
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True, eq=False)
class Category:
    """Describes a source class found in the target, or a group of unknown samples.

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


def find_categories(model: AdaptedModel, class_names: Sequence[str]) -> list[Category]:
    """Return the categories that have a sample: classes before groups, larger ones first."""
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
            yield _category(key, name, False, index, members, answers.group_confidence, centre)
        else:
            yield _category("ungrouped", "Unknown, not grouped", False, index, members, answers.confidence, centre)


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


@dataclass(frozen=True)
class FinishedRun:
    """Holds a run with the names and pictures of its samples, as the report shows it.

    Attributes:
        folder: the run folder.
        model: the model of the run.
        names: names of the target samples, (n_samples,).
        pictures: pictures of the samples; None if the run was made from embeddings.
        metrics: scores against true labels; None if the run was not evaluated.
    """

    folder: Path
    model: AdaptedModel
    names: list[str]
    pictures: Pictures | None
    metrics: Mapping[str, Any] | None

    @classmethod
    def of(cls, run: Run) -> FinishedRun:
        """Return what the report needs of a run.

        Raises:
            RunFolderError: the run was shared without its target, or mixes files of two runs.
            DataError: the run does not have the features of its whole target.
        """
        run.require_target("to report")
        run.saved_model.require_all_features("there is no map of it to show")
        return cls(run.folder, run.model, run.predictions.names, run.pictures, run.metrics)

    @property
    def files(self) -> RunFiles:
        """Return the paths of the files of the run."""
        return RunFiles(self.folder)

    @property
    def answers(self) -> Prediction:
        """Return the predictions for the target samples."""
        return self.model.target

    @property
    def title(self) -> str:
        """Return the name of the folder."""
        return as_utf8(self.folder.resolve().name)

    @cached_property
    def class_names(self) -> list[str]:
        """Return the source classes as text, (n_classes,)."""
        return [as_utf8(str(name)) for name in self.model.classes.tolist()]

    @cached_property
    def categories(self) -> list[Category]:
        """Return the source classes found in the target, then the groups; larger ones first."""
        return find_categories(self.model, self.class_names)

    @cached_property
    def category_of_row(self) -> np.ndarray:
        """Return the index into `categories` of each target sample, (n_samples,)."""
        found = np.full(len(self.answers), -1)
        for index, category in enumerate(self.categories):
            found[category.members] = index
        return found

    @cached_property
    def class_sizes(self) -> np.ndarray:
        """Return the number of target samples of each source class, (n_classes,)."""
        known = self.answers.nearest[self.answers.known]
        return np.bincount(known, minlength=len(self.class_names))

    @cached_property
    def nearest_source_rows(self) -> dict[int, int]:
        """Return the source row nearest to the prototype of each class. Paper: the pictures of Fig. S3 and S4.

        A class of a source model has none.
        """
        source, prototypes = self.model.source, self.model.class_centres
        nearness = np.einsum("nd,nd->n", source.features, prototypes[source.classes])
        by_class = np.lexsort((-nearness, source.classes))
        classes, first = np.unique(source.classes[by_class], return_index=True)
        rows = source.rows[by_class[first]].tolist()
        return {index: row for index, row in zip(classes.tolist(), rows, strict=True) if row >= 0}

    def noun(self, count: int) -> str:
        """Return the word for samples, in the singular or the plural: photo, picture or sample."""
        word = "photo" if self.model.reader is not None else "picture" if self.pictures is not None else "sample"
        return plural(count, word)
