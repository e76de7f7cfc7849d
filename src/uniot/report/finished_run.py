"""Everything that a report is made from, read from a run folder and checked against itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from uniot.answers import read_answers
from uniot.data.text import as_utf8
from uniot.errors import RunFolderError
from uniot.model import AdaptedModel
from uniot.model_files import load_annotated
from uniot.pictures import Pictures
from uniot.prediction import Prediction
from uniot.report.categories import Category, find_categories
from uniot.untrusted import MOST_SETTINGS_BYTES, parse_json, read_bounded
from uniot.words import counted, plural


@dataclass(frozen=True)
class FinishedRun:
    """A run with the names and pictures of its samples.

    Attributes:
        folder: where it lies.
        model: what it ended with.
        names: what the samples of the target are called.
        pictures: None where there is nothing to look at.
        metrics: content of metrics.json; None where nobody told the truth.
    """

    folder: Path
    model: AdaptedModel
    names: list[str]
    pictures: Pictures | None
    metrics: Mapping[str, Any] | None

    @classmethod
    def open(cls, folder: Path, private_prior: float | None = None, prefer: str | None = None) -> FinishedRun:
        """Reads a run with what people decided about it; with the answers of another preference if one is given.

        Scores do not hold for another preference and are left out then.

        Raises:
            RunFolderError: the folder holds no finished run, or one without a target, or files of several runs.
        """
        model = load_annotated(folder, private_prior, prefer)
        if not len(model.target):
            raise RunFolderError(
                f"{folder} has no target: the run was shared without it. Make the report where the run was made."
            )
        names = read_answers(folder / "predictions.csv").names
        pictures = Pictures.open(folder)
        for what, count in (("predictions.csv", len(names)), ("the pictures", _count(pictures))):
            if count not in (None, len(model.target)):
                raise RunFolderError(
                    f"{folder} mixes files of two runs: the model knows {counted(len(model.target), 'sample')} of the "
                    f"target, {what} {count}. Make the run again."
                )
        is_own_threshold = private_prior is None and prefer is None
        return cls(folder, model, names, pictures, _read_metrics(folder / "metrics.json") if is_own_threshold else None)

    @property
    def answers(self) -> Prediction:
        """What the run says of each sample of the target."""
        return self.model.target

    @property
    def title(self) -> str:
        """Name of the folder."""
        return as_utf8(self.folder.resolve().name)

    @cached_property
    def class_names(self) -> list[str]:
        """Source classes as text."""
        return [as_utf8(str(name)) for name in self.model.classes.tolist()]

    @cached_property
    def categories(self) -> list[Category]:
        """Source classes found in the target, then private groups; the largest first."""
        return find_categories(self.model, self.class_names)

    @cached_property
    def category_of_row(self) -> np.ndarray:
        """Index into `categories` of each sample of the target, (n,)."""
        found = np.full(len(self.answers), -1)
        for index, category in enumerate(self.categories):
            found[category.members] = index
        return found

    @cached_property
    def class_sizes(self) -> np.ndarray:
        """Samples of the target that each source class was given, (c,)."""
        known = self.answers.nearest[self.answers.known]
        return np.bincount(known, minlength=len(self.class_names))

    @cached_property
    def nearest_source_rows(self) -> dict[int, int]:
        """For each class, the labelled sample nearest to its prototype. Paper: the pictures of Fig. S3 and S4."""
        source, prototypes = self.model.source, self.model.class_centres
        nearness = np.einsum("nd,nd->n", source.features, prototypes[source.classes])
        by_class = np.lexsort((-nearness, source.classes))
        classes, first = np.unique(source.classes[by_class], return_index=True)
        return dict(zip(classes.tolist(), source.rows[by_class[first]].tolist(), strict=True))

    def noun(self, count: int) -> str:
        """What a sample is called, for as many as there are."""
        word = "photo" if self.model.reader is not None else "picture" if self.pictures is not None else "sample"
        return plural(count, word)


def _count(pictures: Pictures | None) -> int | None:
    return None if pictures is None else pictures.count("target")


def _read_metrics(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        metrics = parse_json(read_bounded(path, MOST_SETTINGS_BYTES))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Remove it, or run `uniot evaluate` again.") from None
    if not isinstance(metrics, dict):
        raise RunFolderError(f"{path} holds no scores. Remove it, or run `uniot evaluate` again.")
    return metrics
