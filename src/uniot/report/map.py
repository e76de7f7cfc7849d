"""Source and target on a plane, so that what is alike lies together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from uniot.report.categories import Category
from uniot.report.finished_run import FinishedRun
from uniot.report.packages import needed

_MOST_POINTS = 4000
_PERPLEXITY = 30
_DIMENSIONS = 50
# Fewer and coarser steps than is usual: the picture is the same to the eye, in a third of the time.
_EARLY_STEPS, _STEPS, _COARSENESS = 200, 300, 0.8


@dataclass(frozen=True)
class Place:
    """A name on the map, in the middle of what it names."""

    x: float
    y: float
    name: str
    absent: bool


@dataclass(frozen=True)
class SampleMap:
    """Samples on a plane.

    Attributes:
        position: (m, 2), both from -1 to 1.
        rows: row of each point in its collection, (m,).
        of_target: whether the point is of the target, (m,), bool.
        category: index into `categories` of each point, -1 for source classes that were not found, (m,).
        source_class: index of the class of a source point, -1 elsewhere, (m,).
        categories: what the points of the target belong to.
        n_samples: how many there are, shown or not.
    """

    position: np.ndarray
    rows: np.ndarray
    of_target: np.ndarray
    category: np.ndarray
    source_class: np.ndarray
    categories: list[Category]
    n_samples: int

    def kinds(self) -> dict[str, np.ndarray]:
        """Numbers of the points of each kind that there is: what is drawn last lies above."""
        known = np.array([category.known for category in self.categories] + [False])[self.category]
        masks = {
            "source-absent": ~self.of_target & (self.category < 0),
            "source": ~self.of_target & (self.category >= 0),
            "known": self.of_target & known,
            "unknown": self.of_target & ~known,
        }
        return {kind: np.flatnonzero(mask) for kind, mask in masks.items() if mask.any()}

    def places(self, class_names: list[str], most: int) -> list[Place]:
        """Names of the categories, and of source classes that were not found, where most of their points lie."""
        found = []
        for index, category in enumerate(self.categories[:most]):
            own = self.category == index
            # The points of the target say where a class lies there; a shown class may have none.
            own = own & self.of_target if (own & self.of_target).any() else own
            if own.any():
                found.append(self._place(own, category.name, False))
        absent = np.unique(self.source_class[(self.category < 0) & ~self.of_target])
        rest = absent[: most - len(found)].tolist()
        return found + [self._place(self.source_class == index, class_names[index], True) for index in rest]

    def _place(self, own: np.ndarray, name: str, absent: bool) -> Place:
        points = self.position[own]
        middle = np.median(points, axis=0)
        # What lies in several places has nothing in the middle of them.
        x, y = points[np.linalg.norm(points - middle, axis=1).argmin()].tolist()
        return Place(x, y, name, absent)


def make_map(run: FinishedRun, most: int = _MOST_POINTS) -> SampleMap:
    """Draws the adapted features of source and target by t-SNE; the same run always has the same map.

    Paper: Fig. S2, which shows true classes; this shows what was found.
    """
    model = run.model
    of_row = run.category_of_row
    of_class = np.full(len(run.class_names), -1)
    for index, category in enumerate(run.categories):
        if category.known:
            of_class[category.index] = index
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
        categories=run.categories,
        n_samples=len(of_row) + len(model.source.rows),
    )


def _shares(n_target: int, n_source: int, most: int) -> tuple[int, int]:
    """How many points of each: half of the room each, and what one leaves is the other's."""
    target = min(n_target, max(most - most // 2, most - n_source))
    return target, min(n_source, most - target)


def _evenly(labels: np.ndarray, count: int) -> np.ndarray:
    """Rows in order, as large a share of each label as of the others."""
    if count >= len(labels):
        return np.arange(len(labels))
    by_label = np.argsort(labels, kind="stable")
    return np.sort(by_label[np.linspace(0, len(labels) - 1, count).round().astype(np.int64)])


# With several threads sums come in another order, and the map would be another one on every machine.
@threadpool_limits.wrap(limits=1)  # type: ignore[untyped-decorator]
def _plane(features: np.ndarray, seed: int) -> np.ndarray:
    """(n, 2). Few points, or points that all lie on one place, are drawn by their main directions."""
    centred = features - features.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    # Signs of singular vectors are arbitrary; this choice does not depend on the machine.
    directions *= np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])[:, None]
    flat = np.zeros((len(features), max(2, min(_DIMENSIONS, len(directions)))))
    flat[:, : len(directions)] = centred @ directions[:_DIMENSIONS].T
    perplexity = min(_PERPLEXITY, (len(flat) - 1) / 3)
    if perplexity < 2 or flat[:, 0].std() < 1e-9:
        return _to_unit(flat[:, :2])
    tsne = needed("openTSNE").TSNE(
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
