"""Lists of samples across groups and classes: a selection of a report, the most doubtful, and what is like a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.annotations.places import DISCARDED
from uniot.annotations.selections import Selection
from uniot.io.text import counted, plural

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState
    from uniot.training.model import AdaptedModel

MOST_ALIKE = 300


@dataclass(frozen=True)
class SampleList:
    """Samples in the order in which they are shown.

    Attributes:
        title: what the list is, for people.
        note: what the order means, as a sentence.
        rows: of the target, (n_rows,).
    """

    title: str
    note: str
    rows: np.ndarray


class SampleLists:
    """Makes the lists of a labelling session from the text of a selection.

    Args:
        target: samples to label.
        state: the present state, which the caller changes.
        model: returns the model after all answers; None if the run has none.
    """

    def __init__(self, target: TargetSamples, state: AnnotationState, model: Callable[[], AdaptedModel | None]) -> None:
        self._target, self._state, self._model = target, state, model

    def of(self, text: str) -> SampleList:
        """Return the list of a selection.

        Raises:
            DataError: the text is no selection of samples of this run.
        """
        found = Selection.parse(text, self._target.digest, len(self._target.names))
        if found.kind == "doubtful":
            return self._doubtful()
        if found.kind == "like":
            return self._like(found.rows[0])
        number = counted(len(found.rows), self._target.noun)
        return SampleList(f"Selection of {number}", "As selected in the report.", np.array(found.rows, dtype=np.int64))

    @property
    def is_decided(self) -> np.ndarray:
        """Return whether a person said something about each sample, or discarded it, (n_samples,)."""
        state = self._state
        return np.asarray(state.by_hand | state.cannot_tell | (state.category == DISCARDED))

    def _doubtful(self) -> SampleList:
        model = self._model()
        confidence = self._target.confidence if model is None else model.target.confidence
        rows = np.flatnonzero(~self.is_decided)
        rows = rows[np.argsort(confidence[rows], kind="stable")]
        order = "All groups and classes together, the least confident prediction first."
        if model is None or model.reliability.accuracy is None:
            return SampleList("Most doubtful", order, rows)
        if model.reliability_of_decision.accuracy is None:
            # The estimate is for the decision of the rule alone, and answers have changed it.
            return SampleList("Probably wrong", order, rows)
        n_wrong = round(float((1 - confidence[rows]).sum()))
        wrong = (
            f"About {n_wrong:,} of {counted(len(rows), 'prediction')} {plural(n_wrong, 'is', 'are')} estimated to be"
        )
        return SampleList("Probably wrong", f"{wrong} wrong. {order}", rows)

    def _like(self, row: int) -> SampleList:
        cosines = self._target.features @ self._target.features[row]
        rows = np.argsort(-cosines, kind="stable")
        # The sample itself comes first, also before its copies.
        rows = np.concatenate([[row], rows[rows != row]])[: MOST_ALIKE + 1]
        return SampleList(
            f"Like “{self._target.names[row]}”", "The most similar first, in all groups and classes.", rows
        )
