"""The samples that show what a category is about, and those that may be wrong in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.discovery import exemplars
from uniot.report.categories import Category
from uniot.report.finished_run import FinishedRun

TYPICAL, DOUBTFUL = 16, 8
_MOST_OF_A_KIND = 30
_NEAREST = 3


@dataclass(frozen=True)
class Gallery:
    """Some members of a category, as rows of the target.

    Attributes:
        category: whose members they are.
        typical: nearest to the centre, the nearest first.
        doubtful: the least sure, the least sure first; none that is typical.
        source_row: of a source class, the labelled sample nearest to its prototype; None elsewhere.
        nearest_classes: of a group, the source classes that its members are most similar to, as index and mean
            cosine, the most similar first; none elsewhere.
    """

    category: Category
    typical: np.ndarray
    doubtful: np.ndarray
    source_row: int | None
    nearest_classes: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Galleries:
    """Galleries of the largest categories of one kind.

    Attributes:
        shown: the largest first.
        left_out: categories without a gallery, all smaller.
    """

    shown: list[Gallery]
    left_out: list[Category]


def make_galleries(run: FinishedRun, *, known: bool) -> Galleries:
    """Galleries of source classes, or of private groups. Paper: Fig. S5 and S6."""
    categories = [category for category in run.categories if category.known == known]
    centres = run.model.class_centres
    shown = [_gallery(run, category, centres) for category in categories[:_MOST_OF_A_KIND]]
    return Galleries(shown, categories[_MOST_OF_A_KIND:])


def _gallery(run: FinishedRun, category: Category, class_centres: np.ndarray) -> Gallery:
    features = run.model.target_features[category.members]
    chosen = exemplars(category.members, features @ category.centre, category.confidence, TYPICAL)
    source_row = run.nearest_source_rows.get(category.index) if category.known else None
    nearest = () if category.known else nearest_classes(features, class_centres)
    return Gallery(category, chosen.typical, chosen.doubtful[:DOUBTFUL], source_row, nearest)


def nearest_classes(features: np.ndarray, class_centres: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Return the classes that samples are most similar to on average, with their mean cosine.

    Args:
        features: unit rows, (m, d).
        class_centres: unit rows, (c, d).
    """
    similarity = class_centres @ features.mean(axis=0)
    nearest = np.argsort(-similarity, kind="stable")[:_NEAREST]
    return tuple((int(index), float(similarity[index])) for index in nearest)
