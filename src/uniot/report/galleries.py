"""The samples that show what a category is about, and those that may be wrong in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.discovery import exemplars
from uniot.report.categories import Category
from uniot.report.finished_run import FinishedRun

TYPICAL, DOUBTFUL = 16, 8
_MOST_OF_A_KIND = 30


@dataclass(frozen=True)
class Gallery:
    """Some members of a category, as rows of the target.

    Attributes:
        category: whose members they are.
        typical: nearest to the centre, the nearest first.
        doubtful: the least sure, the least sure first; none that is typical.
        source_row: of a source class, the labelled sample nearest to its prototype; None elsewhere.
    """

    category: Category
    typical: np.ndarray
    doubtful: np.ndarray
    source_row: int | None


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
    shown = [_gallery(run, category) for category in categories[:_MOST_OF_A_KIND]]
    return Galleries(shown, categories[_MOST_OF_A_KIND:])


def _gallery(run: FinishedRun, category: Category) -> Gallery:
    nearness = run.model.target_features[category.members] @ category.centre
    chosen = exemplars(category.members, nearness, category.confidence, TYPICAL)
    source_row = run.nearest_source_rows.get(category.index) if category.known else None
    return Gallery(category, chosen.typical, chosen.doubtful[:DOUBTFUL], source_row)
