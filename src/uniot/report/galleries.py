"""The galleries of the report: typical and doubtful samples of each category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.discovery.groups import exemplars

if TYPE_CHECKING:
    from uniot.report.categories import Categories, Category
    from uniot.training.model import AdaptedModel

TYPICAL, DOUBTFUL = 16, 8
# Confidence below which a sample is doubtful: at least one label in four is wrong, or another group is not even twice
# as far away.
_DOUBTFUL_BELOW, _DOUBTFUL_BELOW_IN_GROUP = 0.75, 0.5
_MOST_OF_A_KIND = 30
_NEAREST = 3


@dataclass(frozen=True)
class Gallery:
    """Some members of a category, as target rows.

    Attributes:
        category: whose members they are.
        typical: nearest to the centre, the nearest first; none that is doubtful.
        doubtful: those with the lowest confidence of all that are doubtful, the lowest first.
        n_doubtful: number of all members that are doubtful.
        doubtful_below: confidence below which a member is doubtful.
        source_row: of a source class, the labelled sample nearest to its prototype; None elsewhere.
        nearest_classes: of a group, the source classes that its members are most similar to, as index and mean
            cosine, the most similar first; none elsewhere.
    """

    category: Category
    typical: np.ndarray
    doubtful: np.ndarray
    n_doubtful: int
    doubtful_below: float
    source_row: int | None
    nearest_classes: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Galleries:
    """The galleries of the largest categories of one kind.

    Attributes:
        shown: the largest first.
        left_out: categories without a gallery, all smaller.
    """

    shown: list[Gallery]
    left_out: list[Category]


def make_galleries(model: AdaptedModel, categories: Categories, *, known: bool) -> Galleries:
    """Return the galleries of source classes, or of groups. Paper: Fig. S5 and S6."""
    chosen = [category for category in categories.found if category.known == known]
    centres = model.class_centres
    source_rows = model.source.nearest_rows(centres)
    shown = [_gallery(model, category, centres, source_rows) for category in chosen[:_MOST_OF_A_KIND]]
    return Galleries(shown, chosen[_MOST_OF_A_KIND:])


def _gallery(model: AdaptedModel, category: Category, class_centres: np.ndarray, source_rows: np.ndarray) -> Gallery:
    features = model.target_features[category.members]
    below = _DOUBTFUL_BELOW_IN_GROUP if category.is_group else _DOUBTFUL_BELOW
    chosen = exemplars(category.members, features @ category.centre, category.confidence, doubtful_below=below)
    source_row = int(source_rows[category.index]) if category.known else -1
    nearest = () if category.known else nearest_classes(features, class_centres)
    return Gallery(
        category,
        chosen.typical[:TYPICAL],
        chosen.doubtful[:DOUBTFUL],
        len(chosen.doubtful),
        below,
        None if source_row < 0 else source_row,
        nearest,
    )


def nearest_classes(features: np.ndarray, class_centres: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Return the classes that samples are most similar to on average, with their mean cosine.

    Args:
        features: unit rows, (m, d).
        class_centres: unit rows, (c, d).
    """
    similarity = class_centres @ features.mean(axis=0)
    nearest = np.argsort(-similarity, kind="stable")[:_NEAREST]
    return tuple((int(index), float(similarity[index])) for index in nearest)
