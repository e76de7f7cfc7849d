"""Questions to a person: is this sample of one of the classes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.annotations.places import class_index, is_class, is_group
from uniot.io.text import share_sentence

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState
    from uniot.training.model import AdaptedModel

# An answer that is expected to move less than this part of the target is not worth asking for.
HARDLY = 0.01
N_NEAREST = 3


@dataclass(frozen=True)
class Belief:
    """The present label of a sample, as a run predicts it.

    Attributes:
        label: a source class or the label of unknown samples.
        confidence: probability of that label; None if a person or a name decided otherwise than the model.
        group: number and name of its group; empty for a source class and if it is in no group.
    """

    label: str
    confidence: float | None
    group: str

    @classmethod
    def of(cls, row: int, target: TargetSamples, state: AnnotationState, model: AdaptedModel | None) -> Belief:
        """Return the belief about a row of the target; without a model, the confidence is that of the run."""
        place = int(state.category[row])
        known = is_class(place)
        decided = is_class(int(target.start[row])) if model is None else bool(model.target.known[row])
        confidence = target.confidence[row] if model is None else model.target.confidence[row]
        return cls(
            label=target.classes[class_index(place)] if known else target.unknown,
            confidence=float(confidence) if known == decided else None,
            group=_group_text(place, target, state),
        )


def _group_text(place: int, target: TargetSamples, state: AnnotationState) -> str:
    if not is_group(place) or (target.is_ungrouped(place) and place not in state.names):
        return ""
    name = state.names.get(place)
    return f"group {place} “{name}”" if name else f"group {place}"


@dataclass(frozen=True)
class Question:
    """A question to a person: is this sample of one of the classes?

    Attributes:
        row: row of the target.
        name: name of the sample, as in predictions.csv.
        belief: what the run believes now.
        known_score: score of being known, from 0 to 1, one half at the threshold.
        classes: indices of all classes, the nearest first.
        nearest: names of the nearest classes, the nearest first, each with the cosine of the sample to it.
    """

    row: int
    name: str
    belief: Belief
    known_score: float
    classes: tuple[int, ...]
    nearest: tuple[tuple[str, float], ...]

    @property
    def believed(self) -> str:
        """Return the present label, a source class or the label of unknown samples."""
        return self.belief.label

    @classmethod
    def of(cls, row: int, target: TargetSamples, state: AnnotationState, model: AdaptedModel) -> Question:
        """Return the question about a row of the target."""
        cosines = target.prototypes @ target.features[row]
        # The nearest class is the method's, which may compare otherwise.
        first = int(model.target.nearest[row])
        others = np.argsort(-cosines, kind="stable")
        classes = (first, *others[others != first].tolist())
        nearest = tuple((target.classes[index], float(cosines[index])) for index in classes[:N_NEAREST])
        belief = Belief.of(row, target, state, model)
        return cls(row, target.names[row], belief, float(model.target.known_score[row]), classes, nearest)


@dataclass(frozen=True)
class ShareEstimate:
    """The share of unknown samples in the target.

    Attributes:
        unknown: share that is called unknown at present.
        interval: contains the true share with a probability of nine tenths; None if a preference decides.
        n_answers: samples that people have said something about, "cannot tell" included.
    """

    unknown: float
    interval: tuple[float, float] | None
    n_answers: int

    @property
    def sentence(self) -> str:
        """Return the share and its interval as a sentence."""
        return share_sentence(self.unknown, self.interval)
