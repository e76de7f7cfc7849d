"""Map source and target samples to a plane by t-SNE, and choose colours for any number of categories."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from uniot.errors import import_optional

if TYPE_CHECKING:
    from uniot.report.categories import Categories, Category
    from uniot.training.model import AdaptedModel

_MOST_POINTS = 4000
_PERPLEXITY = 30
_DIMENSIONS = 50
# Fewer and coarser steps than usual: the map looks the same and takes a third of the time.
_EARLY_STEPS, _STEPS, _COARSENESS = 200, 300, 0.8


@dataclass(frozen=True)
class MapLabel:
    """A name on the map, at the middle of its points."""

    x: float
    y: float
    name: str
    absent: bool


@dataclass(frozen=True)
class SampleMap:
    """Samples on a plane.

    Attributes:
        position: coordinates from -1 to 1, (m, 2).
        rows: row of each point in its collection, (m,).
        of_target: whether the point is of the target, (m,), bool.
        category: index into `categories` of each point, -1 for source classes that were not found, (m,).
        source_class: index of the class of a source point, -1 elsewhere, (m,).
        categories: categories of the target points.
        n_samples: number of samples, shown or not.
    """

    position: np.ndarray
    rows: np.ndarray
    of_target: np.ndarray
    category: np.ndarray
    source_class: np.ndarray
    categories: list[Category]
    n_samples: int

    def kinds(self) -> dict[str, np.ndarray]:
        """Return the indices of the points of each kind; kinds that are drawn last lie on top."""
        known = np.array([category.known for category in self.categories] + [False])[self.category]
        masks = {
            "source-absent": ~self.of_target & (self.category < 0),
            "source": ~self.of_target & (self.category >= 0),
            "known": self.of_target & known,
            "unknown": self.of_target & ~known,
        }
        return {kind: np.flatnonzero(mask) for kind, mask in masks.items() if mask.any()}

    def places(self, class_names: list[str], most: int) -> list[MapLabel]:
        """Return the names of categories and of source classes that were not found, at the middle of their points."""
        found = []
        for index, category in enumerate(self.categories[:most]):
            own = self.category == index
            # A class is named at its target points; the subsample may have none of them.
            own = own & self.of_target if (own & self.of_target).any() else own
            if own.any():
                found.append(self._place(own, category.name, False))
        absent = np.unique(self.source_class[(self.category < 0) & ~self.of_target])
        rest = absent[: most - len(found)].tolist()
        return found + [self._place(self.source_class == index, class_names[index], True) for index in rest]

    def recoloured(self, model: AdaptedModel, categories: Categories) -> SampleMap:
        """Return the same points with the categories that a model of the same run gives them now."""
        of_class = _category_of_class(model, categories)
        target, source = self.rows[self.of_target], self.source_class[~self.of_target]
        category = np.concatenate([categories.of_row[target], of_class[source]])
        return replace(self, category=category, categories=categories.found)

    def _place(self, own: np.ndarray, name: str, absent: bool) -> MapLabel:
        points = self.position[own]
        middle = np.median(points, axis=0)
        # The median of several separate clusters may lie far from every point; the nearest point does not.
        x, y = points[np.linalg.norm(points - middle, axis=1).argmin()].tolist()
        return MapLabel(x, y, name, absent)


def make_map(model: AdaptedModel, categories: Categories, most: int = _MOST_POINTS) -> SampleMap:
    """Return the t-SNE map of the transformed features of source and target; it is the same for the same model.

    Paper: Fig. S2, which shows true classes instead of predicted ones.
    """
    of_row, of_class = categories.of_row, _category_of_class(model, categories)
    n_target, n_source = _shares(len(of_row), len(model.source.rows), most)
    target, source = _evenly(of_row, n_target), _evenly(model.source.classes, n_source)
    classes = model.source.classes[source]
    features = np.concatenate([model.target_features[target], model.source.features[source]])
    return SampleMap(
        position=_plane(features.astype(np.float64), model.settings.seed),
        rows=np.concatenate([target, model.source.rows[source]]),
        of_target=np.arange(len(features)) < len(target),
        category=np.concatenate([of_row[target], of_class[classes]]),
        source_class=np.concatenate([np.full(len(target), -1), classes]),
        categories=categories.found,
        n_samples=len(of_row) + len(model.source.rows),
    )


def _category_of_class(model: AdaptedModel, categories: Categories) -> np.ndarray:
    """Return the index of the category of each source class, -1 if the class was not found, (n_classes,)."""
    of_class = np.full(len(model.classes), -1)
    for index, category in enumerate(categories.found):
        if category.known:
            of_class[category.index] = index
    return of_class


def _shares(n_target: int, n_source: int, most: int) -> tuple[int, int]:
    """Return the numbers of target and source points: half of the limit each, or more if the other has fewer."""
    target = min(n_target, max(most - most // 2, most - n_source))
    return target, min(n_source, most - target)


def _evenly(labels: np.ndarray, count: int) -> np.ndarray:
    """Return sorted rows, the same fraction of each label."""
    if count >= len(labels):
        return np.arange(len(labels))
    by_label = np.argsort(labels, kind="stable")
    return np.sort(by_label[np.linspace(0, len(labels) - 1, count).round().astype(np.int64)])


# With several threads the order of summation varies, and with it the map.
@threadpool_limits.wrap(limits=1)  # type: ignore[untyped-decorator]
def _plane(features: np.ndarray, seed: int) -> np.ndarray:
    """Return the positions, (n_samples, 2); by principal components if there are few or identical points."""
    centred = features - features.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    # Signs of singular vectors are arbitrary; this choice does not depend on the machine.
    directions *= np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])[:, None]
    flat = np.zeros((len(features), max(2, min(_DIMENSIONS, len(directions)))))
    flat[:, : len(directions)] = centred @ directions[:_DIMENSIONS].T
    perplexity = min(_PERPLEXITY, (len(flat) - 1) / 3)
    if perplexity < 2 or flat[:, 0].std() < 1e-9:
        return _to_unit(flat[:, :2])
    tsne = import_optional("openTSNE", "report", "drawing the map of the report").TSNE(
        perplexity=perplexity,
        early_exaggeration_iter=_EARLY_STEPS,
        n_iter=_STEPS,
        negative_gradient_method="bh",
        theta=_COARSENESS,
        neighbors="exact",
        initialization=1e-4 * flat[:, :2] / flat[:, 0].std(),
        n_jobs=1,
        random_state=seed % 2**32,
    )
    return _to_unit(np.asarray(tsne.fit(flat)))


def _to_unit(position: np.ndarray) -> np.ndarray:
    low, high = position.min(axis=0), position.max(axis=0)
    return np.asarray((2 * position - low - high) / np.maximum(high - low, 1e-12))


_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
# Light enough for a dark page and dark enough for a light one.
_LIGHTNESS, _CHROMA = (0.64, 0.72, 0.56), 0.14
# Björn Ottosson's Oklab, in which equal steps look equally large.
_TO_CONES = np.array(
    [[1.0, 0.3963377774, 0.2158037573], [1.0, -0.1055613458, -0.0638541728], [1.0, -0.0894841775, -1.2914855480]]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def distinct_colours(count: int) -> list[str]:
    """Return `count` colours such as #1a2b3c; consecutive ones differ most."""
    return [_hex(_LIGHTNESS[i % len(_LIGHTNESS)], _CHROMA, 0.5 + i * _GOLDEN_ANGLE) for i in range(count)]


def _hex(lightness: float, chroma: float, hue: float) -> str:
    lab = np.array([lightness, chroma * math.cos(hue), chroma * math.sin(hue)])
    linear = np.clip(_TO_RGB @ (_TO_CONES @ lab) ** 3, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * float(value)):02x}" for value in encoded)


ABSENT_COLOUR = "#9aa3ad"
"""Colour of classes that were not found in the target."""
