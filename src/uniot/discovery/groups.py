"""Group unknown samples: exemplars of a group, its confidence, and absent classes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from uniot.discovery.class_count import NumberOfClasses
from uniot.discovery.kmeans import spherical_kmeans
from uniot.io.arrays import in_blocks
from uniot.io.predictions import Prediction

# Rows that are compared with the centres of groups at a time.
_BLOCK_ROWS = 128


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of labelled samples.

    Attributes:
        features: unit rows, (n_samples, n_features).
        classes: class index of each sample, (n_samples,).
        rows: row of each sample in the source, (n_samples,); -1 for the mean of a class, which is no sample.
    """

    features: np.ndarray
    classes: np.ndarray
    rows: np.ndarray

    def none(self) -> LabelledFeatures:
        """Return the same with no samples."""
        return LabelledFeatures(self.features[:0], self.classes[:0], self.rows[:0])

    def nearest_rows(self, prototypes: np.ndarray) -> np.ndarray:
        """Return the row of the sample nearest to the prototype of its class, for each class.

        Args:
            prototypes: unit rows, (n_classes, n_features).

        Returns:
            Rows of the source, (n_classes,); -1 for a class without samples.
        """
        nearness = np.einsum("nd,nd->n", self.features, prototypes[self.classes])
        nearest = np.full(len(prototypes), -1, dtype=np.int64)
        farthest_first = np.lexsort((-np.arange(len(nearness)), nearness))
        # Of several values for one class, the last is kept.
        nearest[self.classes[farthest_first]] = self.rows[farthest_first]
        return nearest


@dataclass(frozen=True)
class Exemplars:
    """The exemplars of a class or group, as rows of the target.

    Attributes:
        typical: members nearest to the centre, the nearest first; none of them is doubtful.
        doubtful: members whose confidence is below a limit, the lowest first.
    """

    typical: np.ndarray
    doubtful: np.ndarray


def exemplars(members: np.ndarray, nearness: np.ndarray, confidence: np.ndarray, *, doubtful_below: float) -> Exemplars:
    """Divide the members of a class or group into typical and doubtful ones. Paper: Fig. S5 and S6 (typical ones).

    Args:
        members: rows of the target, (n_members,).
        nearness: similarity of each member to the centre or prototype, (n_members,).
        confidence: confidence of each member, (n_members,).
        doubtful_below: confidence below which a member is doubtful.

    Returns:
        All members, as exemplars of either kind.
    """
    # Rounded as it is shown: 0.748 would appear as 0.75, and not below 0.75.
    is_doubtful = confidence.round(2) < doubtful_below
    near_first, unsure_first = np.argsort(-nearness, kind="stable"), np.argsort(confidence, kind="stable")
    return Exemplars(members[near_first[~is_doubtful[near_first]]], members[unsure_first[is_doubtful[unsure_first]]])


ABSENT = 0.5
"""Absence score above which a class counts as absent: then no target sample is labelled with it."""


def absence(target: Prediction, n_classes: int) -> np.ndarray:
    """Return the absence score of each source class: 1 minus the highest known score of the samples nearest to it.

    A class is absent (score above `ABSENT`) exactly if no target sample is labelled with it.

    Args:
        target: predictions for the target.
        n_classes: number of source classes.

    Returns:
        Scores from 0 to 1, (n_classes,); 1 for a class that is nearest to no sample.
    """
    highest = np.zeros(n_classes)
    np.maximum.at(highest, target.nearest, target.known_score)
    is_present = np.isin(np.arange(n_classes), target.nearest[target.known])
    # Rounding may put the score of a sample on the other side of one half than its label.
    return np.where(is_present, np.minimum(1 - highest, ABSENT), np.maximum(1 - highest, np.nextafter(ABSENT, 1)))


@dataclass(frozen=True)
class PrivateGroups:
    """The groups of the unknown samples.

    Attributes:
        group: group of each unknown sample, (n_samples,); the largest group is 0.
        centres: unit rows, (n_groups, n_features).
        number: estimated number of private classes with its interval and evidence.
    """

    group: np.ndarray
    centres: np.ndarray
    number: NumberOfClasses

    @property
    def n_groups(self) -> int:
        """Return the number of groups."""
        return len(self.centres)

    def nearest(self, features: np.ndarray) -> np.ndarray:
        """Return the group with the nearest centre for each row of features, (n_samples,)."""
        return np.asarray(self._cosines(features).argmax(axis=1))

    def _cosines(self, features: np.ndarray) -> np.ndarray:
        """Return the cosine of each row and each centre, (n_samples, n_groups), independent of the other rows."""
        centres = torch.from_numpy(self.centres)
        return np.asarray(in_blocks(lambda rows: rows @ centres.t(), torch.from_numpy(features), _BLOCK_ROWS).numpy())

    def confidence(self, features: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Return how clearly each sample belongs to its group: 1 at the centre, 0 if another centre is as near.

        The confidence is 1 minus the ratio of the cosine distances to the own centre and to the nearest other centre;
        with a single group, it is the cosine to the centre.

        Args:
            features: unit rows, (n_samples, n_features).
            group: group of each sample, (n_samples,), -1 for none.

        Returns:
            Confidences from 0 to 1, (n_samples,); 0 without a group.
        """
        confidence = np.zeros(len(features))
        grouped = group >= 0
        if not grouped.any():
            return confidence
        distance = np.clip(1 - self._cosines(features[grouped]), 0, None).astype(np.float64)
        rows, own_group = np.arange(len(distance)), group[grouped]
        own = distance[rows, own_group]
        distance[rows, own_group] = np.inf
        other = distance.min(axis=1) if self.n_groups > 1 else np.ones(len(own))
        confidence[grouped] = np.clip(1 - own / np.maximum(other, 1e-12), 0, 1)
        return confidence


@dataclass(frozen=True)
class NearestGroups:
    """The private group that is nearest to each sample, whether it is unknown or not.

    Attributes:
        group: -1 if there are no groups, (n_samples,).
        confidence: how clearly the sample belongs to that group, from 0 to 1, (n_samples,).
    """

    group: np.ndarray
    confidence: np.ndarray

    @classmethod
    def of(cls, groups: PrivateGroups, features: np.ndarray) -> NearestGroups:
        """Compare unit rows, (n_samples, n_features), with the centres of all groups."""
        if not groups.n_groups:
            return cls(np.full(len(features), -1, dtype=np.int64), np.zeros(len(features)))
        nearest = groups.nearest(features)
        return cls(nearest, groups.confidence(features, nearest))

    def applied_to(self, predicted: Prediction) -> Prediction:
        """Return the predictions with these groups for unknown samples, and no group for known ones."""
        group, confidence = np.where(predicted.known, -1, self.group), np.where(predicted.known, 0.0, self.confidence)
        return replace(predicted, group=group, group_confidence=confidence)


def private_groups(features: np.ndarray, number: int | NumberOfClasses, *, seed: int = 0) -> PrivateGroups:
    """Group the unknown samples by spherical k-means.

    Paper: none (the paper clusters the truly private samples with their true number of classes).

    Args:
        features: unit rows of the unknown samples, (n_samples, n_features).
        number: number of groups, given or estimated.
        seed: random seed of the k-means starts.

    Returns:
        The groups, the largest first. Without unknown samples, or if the number is 0, there is no group and every
        sample has -1.
    """
    estimated = number if isinstance(number, NumberOfClasses) else NumberOfClasses(number, (number, number))
    n_groups = min(estimated.estimate, len(features))
    if n_groups == 0:
        return PrivateGroups(np.full(len(features), -1), np.zeros((0, features.shape[1]), np.float32), estimated)
    clusters = spherical_kmeans(features, n_groups, seed=seed)
    sizes = np.bincount(clusters.groups, minlength=len(clusters.centres))
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return PrivateGroups(rank[clusters.groups], clusters.centres[order], estimated)
