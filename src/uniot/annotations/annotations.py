"""What people decided about a target, applied to the answers of its run."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uniot.annotations.places import DISCARDED, class_place
from uniot.data.text import as_utf8
from uniot.prediction import Prediction

# Between features of one sample that are computed twice; a run folder keeps them in half precision.
_LARGEST_DISTANCE = 1e-2


def composed(text: str) -> str:
    """Return a name in the form that names are compared in: NFC, without blanks around it."""
    return unicodedata.normalize("NFC", text.strip())


def class_named(name: str, classes: Sequence[str]) -> int | None:
    """Return the index of the class that a name means, however its letters are composed; None if it means none."""
    if name in classes:
        return list(classes).index(name)
    forms = [composed(label) for label in classes]
    return forms.index(name) if name in forms else None


@dataclass(frozen=True)
class Annotations:
    """Where the samples of a target stand by the decisions of people, and what groups are called.

    Groups of one name are one group, the first of them; a group that is called like a source class is that class.

    Attributes:
        samples: names of the samples, as in predictions.csv.
        start: place that the run gave each sample, (n,); see `places`.
        place: place of each sample now, (n,).
        by_hand: whether a person put the sample there, (n,), bool.
        group_names: names of the groups that have one, and are no source class.
        n_groups: private groups that the run found; the group of this number holds the unknown samples without one.
    """

    samples: Sequence[str]
    start: np.ndarray
    place: np.ndarray
    by_hand: np.ndarray
    group_names: Mapping[int, str]
    n_groups: int

    @classmethod
    def of(
        cls,
        samples: Sequence[str],
        start: np.ndarray,
        place: np.ndarray,
        by_hand: np.ndarray,
        names: Mapping[int, str],
        classes: Sequence[str],
        n_groups: int,
    ) -> Annotations:
        """Make annotations of the state of a labelling page; `names` holds the names of its groups."""
        first: dict[str, int] = {}
        place = place.copy()
        for group, name in sorted(names.items()):
            known = class_named(name, classes)
            meant = first.setdefault(name, group) if known is None else class_place(known)
            place[place == group] = meant
        return cls(samples, start, place, by_hand, {group: name for name, group in first.items()}, n_groups)

    @property
    def changed(self) -> np.ndarray:
        """Whether each sample stands elsewhere than the run put it, or was put there by a person, (n,)."""
        return np.asarray((self.place != self.start) | self.by_hand)

    def for_target(self, answers: Prediction, features: np.ndarray) -> Prediction:
        """Return the answers for the target as people corrected them.

        Args:
            answers: for the target, by the run's own rule or another threshold.
            features: of the target, unit rows, (n, d).
        """
        own = self._own_places(answers)
        places = np.where(self.changed | (own == self.start), self.place, self._followed(answers, features, features))
        return self._placed(answers, places, self.by_hand)

    def for_new(
        self,
        answers: Prediction,
        features: np.ndarray,
        target_features: np.ndarray,
        samples: Sequence[str] | None = None,
    ) -> Prediction:
        """Return the answers for other samples as people corrected the target.

        A sample of the target that people decided about, which has its name and its features, gets their decision. An
        unknown one goes where its group went: if the group was split, to the part whose mean is nearest. Single samples
        that a person moved do not take others with them.

        Args:
            answers: for the samples.
            features: of the samples, unit rows, (m, d).
            target_features: of the target, unit rows, (n, d).
            samples: names of the samples, by which those of the target are found; None if they have none.
        """
        places = self._followed(answers, features, target_features)
        same = self._same_rows(features, target_features, samples)
        is_decided = (same >= 0) & self.changed[same]
        places[is_decided] = self.place[same[is_decided]]
        return self._placed(answers, places, is_decided & self.by_hand[same])

    def _same_rows(
        self, features: np.ndarray, target_features: np.ndarray, samples: Sequence[str] | None
    ) -> np.ndarray:
        """Return for each sample the row of the target that it is, -1 if it is none or nobody decided about it, (m,).

        Names alone do not tell, because another folder may have a file of the same name; nor do features alone, because
        averaging over neighbours can make those of similar samples equal.
        """
        same = np.full(len(features), -1, dtype=np.int64)
        decided: dict[str, list[int]] = {}
        for row in np.flatnonzero(self.changed).tolist():
            decided.setdefault(_last_part(self.samples[row]), []).append(row)
        for number, name in enumerate(samples or []):
            for row in decided.get(_last_part(name), []):
                if _is_same_name(name, self.samples[row]):
                    distance = float(np.linalg.norm(features[number] - target_features[row]))
                    if distance < _LARGEST_DISTANCE:
                        same[number] = row
        return same

    def _followed(self, answers: Prediction, features: np.ndarray, target_features: np.ndarray) -> np.ndarray:
        """Return where samples stand that follow their group, (m,)."""
        own = self._own_places(answers)
        places = own.copy()
        for group in np.unique(own[~answers.known]).tolist():
            members = np.flatnonzero(self.start == group)
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

    def _own_places(self, answers: Prediction) -> np.ndarray:
        """Return where the answers themselves put each sample, (m,)."""
        groups = np.where(answers.group < 0, self.n_groups, answers.group)
        return np.asarray(np.where(answers.known, class_place(0) - answers.nearest, groups))

    def _placed(self, answers: Prediction, places: np.ndarray, by_hand: np.ndarray) -> Prediction:
        """Return answers for samples at these places; what a person decided is certain."""
        known = places < DISCARDED
        group = np.where(places > DISCARDED, places, -1)
        if self.n_groups not in self.group_names:
            # What the run left without a group is still without one.
            group[(group == self.n_groups) & ~answers.known & (answers.group < 0)] = -1
        nearest = np.where(known, class_place(0) - places, answers.nearest)
        decided = by_hand | (known != answers.known) | (known & (nearest != answers.nearest)) | (places == DISCARDED)
        known_score = np.where(decided, known.astype(float), answers.known_score)
        confidence = np.where(decided, 1.0, answers.confidence)
        sure = np.where(by_hand, 1.0, answers.group_confidence)
        return replace(
            answers,
            nearest=nearest,
            known=known,
            known_score=known_score.astype(answers.known_score.dtype),
            confidence=confidence.astype(answers.confidence.dtype),
            group=group,
            group_confidence=np.where(group < 0, 0.0, sure).astype(answers.group_confidence.dtype),
        )


def _last_part(name: str) -> str:
    return as_utf8(name).rpartition("/")[2]


def _is_same_name(one: str, other: str) -> bool:
    """Whether one name is the other, or ends with it after a slash: a path may be given from anywhere."""
    one, other = f"/{as_utf8(one)}", f"/{as_utf8(other)}"
    return one.endswith(other) or other.endswith(one)
