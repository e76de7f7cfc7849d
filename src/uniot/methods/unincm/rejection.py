"""Reject target samples that are of no source class, without an absolute similarity to the source.

Three statistics of a target sample, each in units that the target itself sets:

    similarity   its cosine to the nearest class mean, between what chance gives and what the most similar samples reach
    membership   its cosine to the exemplars of that class in the target: within one domain there is no shift
    separation   by how much the samples of that class exceed what samples of other classes reach

Similarity alone decides well if the domains are close, and rejects too much if classes move by different amounts.
Membership and the presence of the class (by separation) hold under a large shift: membership rejects private samples
whose nearest class is present, presence those whose nearest class is absent. The probability of being known is the mean
of both views.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.methods.unincm.space import chance_similarity, quantile

# What each constant is worth is in docs/beyond-the-paper.md. All were chosen on the choice splits of six data sets.
# Cosine that the most similar samples reach, as a quantile of all: the unit of similarity.
_LEVEL_QUANTILE = 0.8
# Standard deviation of private and of common samples, for similarity in units of the level and for membership alike.
# Common samples are the second number of deviations below one. Private samples have a membership of 0, and the
# similarity that class means reach which are mirrored at random.
_DEVIATION, _BELOW_ONE = 0.2, 0.75
# If the domains are close, similarities of common samples vary little: their deviation is this part of what is left
# between the level and one, and at least the second number.
_ROOM_TO_VARY, _LEAST_DEVIATION = 0.5, 0.05
# With few classes, each covers a larger part of the target: means of membership are lower by this over their number.
_SPREAD_OF_FEW = 0.8
# A class is as likely present as absent at this separation, in standard deviations, which also scales the curve.
_PRESENT_SEPARATION = 0.8
# Weight of similarity beside membership and presence.
_SIMILARITY_WEIGHT = 0.5
_THRESHOLD = 0.5
_FEWEST_FOR_NULL = 5
_ITERATIONS = 50
LEAST_LEVEL = 1e-3
_BLOCK = 4096
# Difference of two cosines, in units of the level, that changes the ratio of two class probabilities by e.
_SOFTNESS = 0.1


@dataclass(frozen=True)
class Rejection:
    """A fitted rejection rule for some of the classes.

    Attributes:
        prototypes: class means, (c, p), unit rows.
        exemplars: mean direction of the most similar target samples of each class, (c, p), unit rows.
        presence: probability that each class is in the target, (c,), float64.
        level: cosine that the most similar samples reach; this and the following are float64 scalars.
        similarity_prior: private-class prior of the similarity component.
        membership_prior: private-class prior of the membership component.
        similarity_weight: weight of similarity against membership and presence.
        private_mean: mean similarity of private samples, in units of the level.
    """

    prototypes: Tensor
    exemplars: Tensor
    presence: Tensor
    level: Tensor
    similarity_prior: Tensor
    membership_prior: Tensor
    similarity_weight: Tensor
    private_mean: Tensor

    def known_probability(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probability that each sample is known, (n,), and its cosines to the classes, (n, c).

        Args:
            rows: directions of target samples, (n, p), unit rows.
        """
        cosines = rows.double() @ self.prototypes.double().t()
        similarity, nearest = cosines.max(dim=1)
        by_similarity = _similarity_ratio(similarity, self.level, self.private_mean)
        own_exemplar = (rows.double() * self.exemplars.double()[nearest]).sum(dim=1)
        by_membership = _membership_ratio(own_exemplar, len(self.prototypes))
        alone = _posterior(by_similarity, self.similarity_prior)
        together = self.presence[nearest] * _posterior(by_membership, self.membership_prior)
        weight = self.similarity_weight
        return weight * alone + (1 - weight) * together, cosines

    def odds(self, rows: Tensor) -> Tensor:
        """Return the odds of each class against unknown, 1 at the threshold, (n_samples, n_classes), float64."""
        known, cosines = self.known_probability(rows)
        known = known.clamp(1e-6, 1 - 1e-6)
        odds = known / (1 - known) * ((1 - _THRESHOLD) / _THRESHOLD)
        return odds[:, None] * _ratios(cosines, self.level)


def class_ratios(rows: Tensor, prototypes: Tensor) -> Tensor:
    """Return the odds of each class relative to those of the nearest one, (n_samples, n_classes), float64.

    Args:
        rows: (n, p), unit rows.
        prototypes: class means, (c, p), unit rows.
    """
    return _ratios(rows.double() @ prototypes.double().t(), torch.ones((), dtype=torch.float64))


def _ratios(cosines: Tensor, level: Tensor) -> Tensor:
    below = (cosines - cosines.max(dim=1, keepdim=True).values) / (_SOFTNESS * level)
    return below.clamp_min(-500).exp()


def fit_rejection(
    rows: Tensor,
    prototypes: Tensor,
    *,
    n_neighbours: int,
    estimates_prior: bool = True,
) -> Rejection:
    """Fit the rule on the whole target.

    Args:
        rows: directions of the target samples, (n, p), unit rows.
        prototypes: class means, (c, p), unit rows.
        n_neighbours: number of neighbours that were averaged; a class has as many exemplars, or all its samples.
        estimates_prior: whether the private-class priors are estimated; otherwise they are one half.

    Returns:
        The fitted rule.
    """
    seen = _Seen.of(rows, prototypes)
    level = max(quantile(seen.similarity, _LEVEL_QUANTILE), LEAST_LEVEL)
    private_mean = min(max(chance_similarity(rows, prototypes) / level, 0.0), 1.0)
    exemplars, presence = seen.exemplars(rows, n_neighbours), seen.presence()
    similarity_prior = membership_prior = 0.5
    if estimates_prior:
        unit = torch.tensor([level, private_mean], dtype=torch.float64)
        similarity_prior = _private_prior(_similarity_ratio(seen.similarity, unit[0], unit[1]))
        by_membership = _membership_ratio(_own_cosine(rows, exemplars, seen.nearest), len(prototypes))
        membership_prior = _private_prior(by_membership, presence[seen.nearest])
    scalars = (level, similarity_prior, membership_prior, _SIMILARITY_WEIGHT, private_mean)
    return Rejection(prototypes, exemplars, presence, *(torch.tensor(value, dtype=torch.float64) for value in scalars))


@dataclass(frozen=True)
class _Seen:
    """The nearest class of each target sample, and what samples of other classes reach.

    Attributes:
        similarity: cosine of each sample to its nearest class, (n,), float64.
        nearest: index of that class, (n,).
        mean: mean cosine to each class of the samples that are nearest to another class, (c,), float64.
        deviation: standard deviation of the same, (c,), float64.
    """

    similarity: Tensor
    nearest: Tensor
    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, rows: Tensor, prototypes: Tensor) -> _Seen:
        """Compare all samples with all classes, in blocks."""
        n_classes = len(prototypes)
        sums = torch.zeros(2, 3, n_classes, dtype=torch.float64)
        similarity, nearest = [], []
        for block in rows.split(_BLOCK):
            cosines = block.double() @ prototypes.double().t()
            best = cosines.max(dim=1)
            similarity.append(best.values)
            nearest.append(best.indices)
            # The first three are sums over all samples, the last over those that are nearest to the class.
            sums[0] += torch.stack([torch.ones_like(cosines).sum(0), cosines.sum(0), cosines.square().sum(0)])
            own = torch.stack([torch.ones_like(best.values), best.values, best.values.square()])
            sums[1].index_add_(1, best.indices, own)
        others = sums[0] - sums[1]
        count, total, squares = torch.where(others[0] >= _FEWEST_FOR_NULL, others, sums[0])
        mean = total / count
        deviation = ((squares - count * mean.square()) / (count - 1).clamp_min(1)).clamp_min(0).sqrt()
        return cls(torch.cat(similarity), torch.cat(nearest), mean, deviation)

    def exemplars(self, rows: Tensor, n_neighbours: int) -> Tensor:
        """Return the mean direction of the most similar samples of each class, (c, p); zero for an empty class."""
        n_classes = len(self.mean)
        order = torch.argsort(self.similarity, descending=True, stable=True)
        order = order[torch.argsort(self.nearest[order], stable=True)]
        sizes = torch.bincount(self.nearest, minlength=n_classes)
        place = torch.arange(len(order)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        chosen = order[place < n_neighbours]
        means = torch.zeros(n_classes, rows.shape[1], dtype=rows.dtype)
        return F.normalize(means.index_add_(0, self.nearest[chosen], rows[chosen]), dim=1)

    def separation(self) -> Tensor:
        """Return by how many standard deviations each sample exceeds what samples of other classes reach, (n,).

        The expected maximum of n_classes standard normal variables is subtracted: with many classes the nearest one is
        near by chance. The deviation is pooled over classes, because that of a single class rests on few clusters.
        """
        scale = self.deviation.square().mean().sqrt().clamp_min(1e-4)
        return (self.similarity - self.mean[self.nearest]) / scale - _expected_maximum(len(self.mean))

    def presence(self) -> Tensor:
        """Return the probability that each class is in the target, (c,), by the mean separation of its samples."""
        n_classes = len(self.mean)
        sums = torch.zeros(n_classes, dtype=torch.float64).index_add_(0, self.nearest, self.separation())
        mean = sums / torch.bincount(self.nearest, minlength=n_classes).clamp_min(1)
        return torch.sigmoid(mean / _PRESENT_SEPARATION - 1)


def _similarity_ratio(similarity: Tensor, level: Tensor, private_mean: Tensor) -> Tensor:
    room = (_ROOM_TO_VARY * (1 - level)).clamp(_LEAST_DEVIATION, _DEVIATION)
    return _log_ratio(similarity / level, private_mean, 1 - _BELOW_ONE * room, room)


def _membership_ratio(membership: Tensor, n_classes: int) -> Tensor:
    lower = _SPREAD_OF_FEW / max(n_classes, 2)
    spread = torch.tensor(_DEVIATION, dtype=torch.float64)
    return _log_ratio(membership, -lower, 1 - _BELOW_ONE * spread - lower, spread)


def _log_ratio(values: Tensor, private_mean: float | Tensor, common_mean: Tensor, spread: Tensor) -> Tensor:
    """Return log densities, common less private; each is flat beyond its mean, away from the other.

    Args:
        values: (n,), float64.
        private_mean: mean of the private component.
        common_mean: mean of the common component, a float64 scalar.
        spread: standard deviation of the common component, a float64 scalar.
    """
    common = -0.5 * ((torch.minimum(values, common_mean) - common_mean) / spread).square() - spread.log()
    private = (values.clamp_min(private_mean) - private_mean) / _DEVIATION
    ratio = common + 0.5 * private.square() + torch.tensor(_DEVIATION, dtype=torch.float64).log()
    return ratio.clamp(-25, 25)


def _posterior(log_ratio: Tensor, prior: Tensor) -> Tensor:
    """Return the probability of the common component."""
    return torch.sigmoid(log_ratio + ((1 - prior) / prior).log())


def _private_prior(log_ratio: Tensor, weights: Tensor | None = None) -> float:
    """Estimate the prior of the private component by EM; Laplace smoothing keeps it away from 0 and 1."""
    weights = torch.ones_like(log_ratio) if weights is None else weights
    prior, total = 0.5, float(weights.sum())
    for _ in range(_ITERATIONS):
        common = _posterior(log_ratio, torch.tensor(prior, dtype=torch.float64))
        prior = 1 - (float((weights * common).sum()) + 1) / (total + 2)
    return prior


def _own_cosine(rows: Tensor, directions: Tensor, nearest: Tensor) -> Tensor:
    """Return the cosine of each row to the direction of its nearest class, (n,), float64."""
    blocks = zip(rows.split(_BLOCK), nearest.split(_BLOCK), strict=True)
    return torch.cat([(block * directions[index]).sum(dim=1) for block, index in blocks]).double()


@cache
def _expected_maximum(n_variables: int) -> float:
    """Return the expected maximum of independent standard normal variables, by numerical integration."""
    grid = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    # E[max] = b - ∫ F^n over [a, b], where F is 0 at a and 1 at b up to rounding.
    return 10 - float(torch.trapezoid(torch.special.ndtr(grid) ** n_variables, grid))
