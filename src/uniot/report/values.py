"""Compute the values of the report once: the page and the figures for papers draw the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.report.categories import Categories
from uniot.report.curves import ClassMass, Curve, class_mass, detection, losses
from uniot.report.galleries import Galleries, make_galleries
from uniot.report.map import SampleMap, make_map
from uniot.report.matrices import Matrices, class_pictures, make_matrices
from uniot.report.summary import RunSummary, summarise
from uniot.runs.thumbnails import Picture

if TYPE_CHECKING:
    from uniot.io.predictions import Prediction
    from uniot.runs.run import Run

KIND_TITLES = {
    "source-absent": "source, class not found",
    "source": "source",
    "known": "target, known",
    "unknown": "target, unknown",
}
"""Titles of the kinds of points on the map."""
MOST_PLACES = 40
_BINS = 40


@dataclass(frozen=True)
class ConfidenceCounts:
    """A histogram of the score for being known, of known and of unknown samples.

    Attributes:
        edges: edges of the bins, (n_bins + 1,).
        known: number of known samples, (n_bins,).
        unknown: number of unknown samples, (n_bins,).
    """

    edges: np.ndarray
    known: np.ndarray
    unknown: np.ndarray


def confidence_counts(target: Prediction) -> ConfidenceCounts:
    """Return a histogram in which one half, the threshold of known, is the edge of a bin."""
    edges = np.linspace(0, 1, _BINS + 1)
    # Rounding may put a known sample below the threshold.
    bins = np.clip((target.known_score * _BINS).astype(np.int64), 0, _BINS - 1)
    bins = np.where(target.known, np.maximum(bins, _BINS // 2), np.minimum(bins, _BINS // 2 - 1))
    known = np.bincount(bins[target.known], minlength=_BINS)
    return ConfidenceCounts(edges, known, np.bincount(bins[~target.known], minlength=_BINS))


@dataclass(frozen=True, eq=False)
class ReportValues:
    """Everything that the page and the figures show of a run.

    Attributes:
        run: the run.
        categories: source classes found in the target, and groups.
        summary: counts.
        map: samples on a plane.
        classes: galleries of source classes.
        groups: galleries of groups of unknown samples.
        confidence: histogram of the score for being known.
        matrices: samples against classes.
        heads: a labelled picture per class of the matrices; empty if there are none.
        losses: losses over the steps; empty if nothing was trained.
        mass: class mass over the steps; None if it was not recorded.
        detection: recall and specificity over the steps; empty without true labels.
    """

    run: Run
    categories: Categories
    summary: RunSummary
    map: SampleMap
    classes: Galleries
    groups: Galleries
    confidence: ConfidenceCounts
    matrices: Matrices
    heads: list[Picture | None]
    losses: list[Curve]
    mass: ClassMass | None
    detection: list[Curve]

    @classmethod
    def of(
        cls, run: Run, on_part: Callable[[str], None] = lambda _: None, drawn: SampleMap | None = None
    ) -> ReportValues:
        """Return the values of a run.

        Args:
            run: the run.
            on_part: called with a description of each part when it begins.
            drawn: map of the same run before people said more about it, whose points stay where they are; a new one is
                drawn if None.

        Raises:
            RunFolderError: the run was shared without its target, or mixes files of two runs.
            DataError: the run does not have the features of its whole target.
        """
        run.require_target("to report")
        run.saved_model.require_all_features("there is no map of it to show")
        categories = Categories.of(run.model)
        on_part("Drawing the map")
        drawn = make_map(run.model, categories) if drawn is None else drawn.recoloured(run.model, categories)
        on_part("Choosing what to show")
        matrices = make_matrices(run.model, categories)
        return cls(
            run,
            categories,
            summarise(run.model, categories, has_pictures=run.pictures is not None, noun=run.noun),
            drawn,
            make_galleries(run.model, categories, known=True),
            make_galleries(run.model, categories, known=False),
            confidence_counts(run.model.target),
            matrices,
            class_pictures(run, matrices),
            losses(run.model.history),
            class_mass(run.model, categories.class_sizes),
            detection(run.model.history),
        )


_LONGEST_NAME = 24


def shortened(name: str) -> str:
    """Return a name in one line, cut to a length that leaves room for others."""
    # A line break in a name would break the layout.
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
