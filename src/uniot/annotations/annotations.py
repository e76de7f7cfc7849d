"""What people decided about the samples of a target, and what follows for the predictions."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uniot.annotations.places import DISCARDED, class_place, start_places
from uniot.io.predictions import Prediction
from uniot.io.text import as_utf8
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN, Answers

# Features of one sample differ by up to this, because a run folder stores them in half precision.
_MAX_DISTANCE = 1e-2


def composed(text: str) -> str:
    """Return a name normalised for comparison: Unicode NFC, without surrounding blanks."""
    return unicodedata.normalize("NFC", text.strip())


def class_named(name: str, classes: Sequence[str]) -> int | None:
    """Return the index of the class with a name, in any Unicode composition; None if there is none."""
    if name in classes:
        return list(classes).index(name)
    forms = [composed(label) for label in classes]
    return forms.index(name) if name in forms else None


@dataclass(frozen=True)
class Annotations:
    """The places of a target's samples after people annotated them, and the names of the groups.

    Groups with the same name are one group, the first of them; a group with the name of a source class is that class.

    Attributes:
        samples: names of the samples, as in predictions.csv.
        first: place that the run gave each sample before anybody said anything, (n_samples,).
        start: place that the model gives each sample after what people said, (n_samples,).
        place: place of each sample now, (n_samples,).
        by_hand: whether a person moved the sample there individually, (n_samples,).
        by_name: whether the sample is in a group that a person gave the name of a source class, (n_samples,).
        cannot_tell: whether a person looked at the sample and could not say, (n_samples,).
        group_names: names of the named groups that are not a source class.
        n_groups: number of groups that the run found; the group of this number holds the unknown samples without one.
        given: answers that the run was made with.
    """

    samples: Sequence[str]
    first: np.ndarray
    start: np.ndarray
    place: np.ndarray
    by_hand: np.ndarray
    by_name: np.ndarray
    cannot_tell: np.ndarray
    group_names: Mapping[int, str]
    n_groups: int
    given: Answers

    @classmethod
    def of(
        cls,
        samples: Sequence[str],
        start: np.ndarray,
        place: np.ndarray,
        by_hand: np.ndarray,
        cannot_tell: np.ndarray,
        names: Mapping[int, str],
        classes: Sequence[str],
        n_groups: int,
        given: Answers,
    ) -> Annotations:
        """Build annotations from the state of a labelling page.

        Args:
            samples: names of the samples.
            start: place that the run gave each sample, (n_samples,).
            place: place of each sample on the page, (n_samples,).
            by_hand: whether a person moved the sample individually, (n_samples,).
            cannot_tell: whether a person could not say what the sample is, (n_samples,).
            names: names of the groups on the page.
            classes: names of the source classes.
            n_groups: number of groups that the run found.
            given: answers that the run was made with.

        Returns:
            The annotations, with groups of one name merged.
        """
        first: dict[str, int] = {}
        place, by_name = place.copy(), np.zeros(len(place), dtype=bool)
        for group, name in sorted(names.items()):
            known = class_named(name, classes)
            meant = first.setdefault(name, group) if known is None else class_place(known)
            members = place == group
            place[members], by_name[members] = meant, known is not None
        group_names = {group: name for name, group in first.items()}
        return cls(samples, start, start, place, by_hand, by_name, cannot_tell, group_names, n_groups, given)

    @property
    def answered(self) -> np.ndarray:
        """Return whether a person said of each sample that it is of a source class, or of none, (n_samples,)."""
        return np.asarray(self.by_hand | self.by_name)

    @property
    def answers(self) -> Answers:
        """Return what a person said about samples, in the order of the target.

        A sample in a group or among the discarded is of none of the source classes.
        """
        classes = np.where(self.place < DISCARDED, class_place(0) - self.place, UNKNOWN)
        rows = np.flatnonzero(self.answered | self.cannot_tell)
        return Answers(rows, np.where(self.answered, classes, CANNOT_TELL)[rows]).marked_as(self.given)

    @property
    def _waiting(self) -> np.ndarray:
        """Return whether each sample still has its first place although the model now predicts another, (n_samples,).

        A sample that a person moves counts as an answer. The predictions of the others change with it, but they move
        only when the next question is answered.
        """
        return np.asarray(~self.answered & (self.place == self.first) & (self.place != self.start))

    def after(self, prediction: Prediction) -> Annotations:
        """Return the same annotations of a model that makes these predictions for the target."""
        return replace(self, start=start_places(prediction, self.n_groups))

    @property
    def changed(self) -> np.ndarray:
        """Return whether a person changed or confirmed the place of each sample, (n_samples,)."""
        return np.asarray((self.place != self.start) | self.by_hand)

    def for_target(self, predicted: Prediction, features: np.ndarray) -> Prediction:
        """Apply the annotations to the predictions for the target.

        Args:
            predicted: predictions for the target, by the run's own threshold or another one.
            features: unit rows of the target, (n_samples, n_features).

        Returns:
            The corrected predictions.
        """
        own = start_places(predicted, self.n_groups)
        places = np.where(self.changed | (own == self.start), self.place, self._followed(predicted, features, features))
        return self._placed(predicted, places, self.by_hand, self._waiting)

    def for_new(
        self,
        predicted: Prediction,
        features: np.ndarray,
        target_features: np.ndarray,
        samples: Sequence[str] | None = None,
        is_far: np.ndarray | None = None,
    ) -> Prediction:
        """Apply the annotations to the predictions for other samples.

        A sample with the name and the features of an annotated target sample gets its annotation. An unknown sample
        follows its group: if the group was split, to the part with the nearest mean. Samples that were moved
        individually do not affect this; they have moved the line between known and unknown that `predicted` follows.

        Args:
            predicted: predictions for the samples.
            features: unit rows of the samples, (n_samples, n_features).
            target_features: unit rows of the target, (n_target, n_features).
            samples: names of the samples, to recognise those of the target; None if they have none.
            is_far: samples that are too far from the target for the name of a group, (n_samples,); they are unknown,
                without a group. None if that cannot be told.

        Returns:
            The corrected predictions.
        """
        places = self._followed(predicted, features, target_features)
        same = self._same_rows(features, target_features, samples)
        is_decided = (same >= 0) & self.changed[same]
        places[is_decided] = self.place[same[is_decided]]
        placed = self._placed(predicted, places, is_decided & self.by_hand[same], is_decided & self._waiting[same])
        if is_far is None:
            return placed
        nameless = is_far & ~is_decided & np.isin(placed.group, list(self.group_names))
        return replace(
            placed,
            group=np.where(nameless, -1, placed.group),
            group_confidence=np.where(nameless, 0.0, placed.group_confidence).astype(placed.group_confidence.dtype),
        )

    def _same_rows(
        self, features: np.ndarray, target_features: np.ndarray, samples: Sequence[str] | None
    ) -> np.ndarray:
        """Return the annotated target row that each sample is, (n_samples,), -1 for none.

        Both name and features must match: another folder may have a file of the same name, and averaging over
        neighbours can make the features of similar samples equal.
        """
        same = np.full(len(features), -1, dtype=np.int64)
        decided: dict[str, list[int]] = {}
        for row in np.flatnonzero(self.changed).tolist():
            decided.setdefault(_last_part(self.samples[row]), []).append(row)
        for number, name in enumerate(samples or []):
            for row in decided.get(_last_part(name), []):
                if _is_same_name(name, self.samples[row]):
                    distance = float(np.linalg.norm(features[number] - target_features[row]))
                    if distance < _MAX_DISTANCE:
                        same[number] = row
        return same

    def _followed(self, predicted: Prediction, features: np.ndarray, target_features: np.ndarray) -> np.ndarray:
        """Return the place of each sample if it follows its group, (n_samples,)."""
        own = start_places(predicted, self.n_groups)
        places = own.copy()
        for group in np.unique(own[~predicted.known]).tolist():
            members = np.flatnonzero(self.first == group)
            if len(members) == 0:
                continue
            if not self.by_hand[members].all():
                members = members[~self.by_hand[members]]
            parts = np.unique(self.place[members])
            rows = np.flatnonzero(own == group)
            means = np.stack([target_features[members[self.place[members] == part]].mean(axis=0) for part in parts])
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
            places[rows] = parts[(features[rows] @ means.T).argmax(axis=1)]
        return np.asarray(places)

    def _placed(
        self, predicted: Prediction, places: np.ndarray, by_hand: np.ndarray, waiting: np.ndarray
    ) -> Prediction:
        """Return the predictions for samples at these places; decisions of people have confidence 1."""
        known = places < DISCARDED
        group = np.where(places > DISCARDED, places, -1)
        if self.n_groups not in self.group_names:
            # Unknown samples that the run left without a group stay without one.
            group[(group == self.n_groups) & ~predicted.known & (predicted.group < 0)] = -1
        nearest = np.where(known, class_place(0) - places, predicted.nearest)
        differs = (known != predicted.known) | (known & (nearest != predicted.nearest))
        decided = by_hand | (differs & ~waiting) | (places == DISCARDED)
        known_score = np.where(decided, known.astype(float), predicted.known_score)
        confidence = np.where(known == predicted.known, predicted.confidence, 1 - predicted.confidence)
        confidence = np.where(decided, 1.0, confidence)
        sure = np.where(by_hand, 1.0, predicted.group_confidence)
        return replace(
            predicted,
            nearest=nearest,
            known=known,
            known_score=known_score.astype(predicted.known_score.dtype),
            confidence=confidence.astype(predicted.confidence.dtype),
            group=group,
            group_confidence=np.where(group < 0, 0.0, sure).astype(predicted.group_confidence.dtype),
        )


def _last_part(name: str) -> str:
    return as_utf8(name).rpartition("/")[2]


def _is_same_name(one: str, other: str) -> bool:
    """Return whether one path equals the other or ends with it: paths may be relative to different folders."""
    one, other = f"/{as_utf8(one)}", f"/{as_utf8(other)}"
    return one.endswith(other) or other.endswith(one)


def told_rows(answers: Answers, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which samples have an answer, and about which a person could not say; two masks, (n_samples,)."""
    told, unsure = np.zeros(n_samples, dtype=bool), np.zeros(n_samples, dtype=bool)
    told[answers.decided.rows] = True
    unsure[answers.rows] = ~told[answers.rows]
    return told, unsure
