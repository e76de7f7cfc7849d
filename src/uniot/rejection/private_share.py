"""Estimate how much of a target is private: BBE, DEDPUL, PULSE and the double exponential tilt.

The source is a sample of positives, and the target is unlabelled: a mixture of samples as in the source and of private
ones. All estimates need common classes that look alike in both domains, but for the double tilt, which lets them change
by the exponential of a linear function.

References:
    Garg et al., Mixture Proportion Estimation and PU Learning: A Modern Approach, NeurIPS 2021, arXiv:2111.00980: BBE.
    Garg, Balakrishnan and Lipton, Domain Adaptation under Open Set Label Shift, NeurIPS 2022, arXiv:2207.13048: PULSE.
    Ivanov, DEDPUL: Difference-of-Estimated-Densities-based Positive-Unlabeled Learning, ICMLA 2020, arXiv:1902.06965.
    Liu et al., Positive and Unlabeled Data: Model, Estimation, Inference, and Classification, JASA 2025,
    arXiv:2407.09735: the double exponential tilt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uniot.errors import DataError

_LOOSENESS = 0.01  # γ of the best bin, as in the authors' code
# Of DEDPUL, as in the code that the authors of PULSE compare with.
_TARGET_WIDTH, _SOURCE_WIDTH = 0.05, 0.1
_LARGEST_RATIO = 50.0
_NARROW_MEDIAN, _MEDIANS_OF_TARGET = 5, 20
# Of PULSE: rounds of training after the first, and the inverse strength of the penalty of its classifiers.
_ROUNDS, _INVERSE_PENALTY = 8, 1.0
_GRID, _LARGEST_ERROR, _CONVERGED, _ITERATIONS, _ROUNDING = 1000, 0.05, 1e-5, 1000, 1e-12
# A ridge that keeps the tilts finite if a line separates the samples.
_RIDGE = 1e-4


@dataclass(frozen=True)
class PrivateShare:
    """An estimate of the fraction of the target that is private.

    Attributes:
        share: the estimate, from 0 to 1.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class DoubleTilt:
    """Two exponential tilts of the source whose mixture is the target.

    The density of part k is exp(α_k + β_k · x) times that of the source.

    Attributes:
        share: fraction of the private part in the target.
        tilts: β of the common and of the private part, (2, d).
        private_probability: of each target sample, (m,).
        log_likelihood: of the domains of all samples, per sample, without the ridge.
    """

    share: float
    tilts: np.ndarray
    private_probability: np.ndarray
    log_likelihood: float


def best_bin_share(source: np.ndarray, target: np.ndarray, level: float = 0.9) -> PrivateShare:
    """Return the share by the best bin estimator (BBE), with its bound.

    The samples above a threshold are a bin. If all private samples lie below it, the fraction of the target in the bin
    over the fraction of the source in it is the share of common samples. The bin with the least upper bound is taken.

    Args:
        source: scores of labelled samples, the higher, the more like the source, (n,).
        target: scores of unlabelled samples, (m,).
        level: one minus δ, the probability with which the bound on each of both distributions may fail.

    Raises:
        DataError: a domain has no samples, a score is no number, or the level is not between 0 and 1.

    Paper: Garg et al., NeurIPS 2021, Algorithm 1.
    """
    source, target = _checked(source, target)
    if not 0 < level < 1:
        raise DataError(f"the level is {level}. Give a probability between 0 and 1, such as 0.9.")
    n, m = len(source), len(target)
    ordered, edges = np.sort(target)[::-1], np.arange(m - 1)
    above = np.searchsorted(np.sort(-source), -ordered[:-1], side="right")
    # As in the authors' code: the sample at the edge of a bin does not count, and bins of one sample do not either.
    edges = edges[(np.diff(ordered) < 0) & (above > 1) & (edges > 1)]
    if not len(edges):
        return PrivateShare(1.0, 0.0, 1.0)
    above = above[edges]
    common = edges * n / (above * m)
    margin = math.sqrt(math.log(1 / (1 - level)) / 2) * (n**-0.5 + m**-0.5) * (1 + _LOOSENESS) * n / above
    best = int((common + margin).argmin())
    share, low, high = (min(max(1 - common[best] + sign * margin[best], 0.0), 1.0) for sign in (0, -1, 1))
    return PrivateShare(float(share), float(low), float(high))


def class_shares(
    source: np.ndarray,
    labels: np.ndarray,
    target: np.ndarray,
    estimate: Callable[[np.ndarray, np.ndarray], float] = lambda source, target: best_bin_share(source, target).share,
) -> np.ndarray:
    """Return the share of each class in the target and, last, of private samples, (c + 1,); they need not sum to 1.

    A class is the positive sample of its own problem, with its probability as the score. What is left is private.

    Args:
        source: class probabilities of the source, (n, c).
        labels: its classes, (n,); a class without samples has the share 0.
        target: class probabilities of the target, (m, c).
        estimate: maps the scores of both domains to the share that is not of the class.

    Paper: Garg et al., NeurIPS 2022, the first step of PULSE.
    """
    present = np.isin(np.arange(source.shape[1]), labels)
    shares = [
        1 - estimate(source[labels == one, one], target[:, one]) if here else 0.0 for one, here in enumerate(present)
    ]
    return np.array([*shares, max(1 - sum(shares), 0.0)])


def resampled(labels: np.ndarray, shares: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return rows of a source whose classes have the given shares, drawn with replacement, (≤ n,).

    Args:
        labels: classes of the source, (n,).
        shares: of the classes, (c,), of any sum; even if all are zero.
        generator: of the draw.
    """
    shares = np.where(np.isin(np.arange(len(shares)), labels), shares, 0.0)
    if not shares.sum() > 0:
        return np.arange(len(labels))
    counts = (shares / shares.sum() * len(labels)).astype(int)
    # Rounding down may leave nothing of many classes with few samples.
    counts[shares.argmax()] += counts.sum() == 0
    drawn = [
        generator.choice(np.flatnonzero(labels == one), count) for one, count in enumerate(counts.tolist()) if count
    ]
    return np.concatenate(drawn)


def density_ratios(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the smoothed densities of the source over those of the target at the target's scores, decreasing, (m,).

    Kernel estimates of the log odds; a running median, then made monotone on the side of the source, then the median of
    a twentieth of the target on either side.

    Args:
        source: probabilities of being from the source, (n,), at least two different ones.
        target: the same of the target, (m,), at least two different ones.

    Paper: Ivanov, ICMLA 2020, Algorithm 1.
    """
    from scipy.stats import gaussian_kde

    # Of being from the target, as in the paper; sorted, so that the most source-like are first.
    of_source, of_target = 1 - source, np.sort(1 - target)
    middle = (of_source.mean() + of_target.mean()) / 2

    def log_odds(p: np.ndarray) -> np.ndarray:
        return np.log((p + 1e-7) / (1 - p + 1e-5))

    places, jacobian = log_odds(of_target), of_target * (1 - of_target) + 1e-5
    density = gaussian_kde(log_odds(of_source), _SOURCE_WIDTH)(places) / jacobian
    of_all = gaussian_kde(places, _TARGET_WIDTH)(places) / jacobian
    ratios = _running_median(np.minimum(density / (of_all + 1e-5), _LARGEST_RATIO), _NARROW_MEDIAN)
    n_like_source = int((of_target <= middle).sum())
    ratios[:n_like_source] = np.maximum.accumulate(ratios[:n_like_source][::-1])[::-1]
    return np.sort(_running_median(ratios, len(ratios) // _MEDIANS_OF_TARGET))[::-1]


def dedpul_share(source: np.ndarray, target: np.ndarray) -> float:
    """Return the share by the difference of estimated densities (DEDPUL).

    A share u makes the probability of being private max(1 - (1 - u) ratio, 0). The share is a fixed point of the mean
    of these; without one, it is where the slope of the difference between mean and share rises most.

    Args:
        source: probabilities of being from the source, (n,).
        target: the same of the target, (m,).

    Returns:
        The share, from 0 to 1; 0 if one of the domains has a single value, so that it has no density.

    Paper: Ivanov, ICMLA 2020, Algorithms 1 and 2.
    """
    source, target = _checked(source, target)
    if min(source.min(), target.min()) < 0 or max(source.max(), target.max()) > 1:
        raise DataError("scores are outside of 0 to 1. Give probabilities of being from the source.")
    if np.ptp(source) == 0 or np.ptp(target) == 0:
        return 0.0
    ratios = density_ratios(source, target)

    def mean_private(shares: np.ndarray) -> np.ndarray:
        return np.asarray((1 - ratios * (1 - shares[:, None])).clip(0).mean(axis=1))

    converged = 0.0
    for _ in range(_ITERATIONS):
        mean = float(mean_private(np.array([converged]))[0])
        # No probability is zero: everything is private to some degree, and the mean would rise to one.
        if abs(mean - converged) < _CONVERGED or ratios.max() * (1 - converged) < 1:
            break
        converged = mean
    grid = np.arange(_GRID) / _GRID
    errors = mean_private(grid) - grid
    allowed = errors[1:-1] < _LARGEST_ERROR
    bends = np.diff(errors, 2)[allowed]
    # The mean is linear between the inverse ratios: what is left there is rounding.
    if bends.max(initial=0.0) < _ROUNDING:
        return converged
    bend = float(grid[1:-1][allowed][bends.argmax()])
    has_fixed_point = int((errors < 0).sum()) > 1 and converged < 1 - 1 / _GRID
    return converged if bend >= converged or has_fixed_point else bend


def pulse_share(
    source: np.ndarray, labels: np.ndarray, target: np.ndarray, generator: np.random.Generator, level: float = 0.9
) -> PrivateShare:
    """Return the share by PULSE: the best bin of a classifier of domains that common target samples do not train.

    One half of each domain trains, the other is estimated on. Classes of the source are drawn by the shares that
    `class_shares` estimates. In each round, target samples that resemble the source most are left out of the training,
    as many as the last estimate calls common. Both classifiers are linear.

    Args:
        source: features, (n, d), of similar scale.
        labels: classes of the source, from 0, (n,).
        target: features, (m, d).
        generator: of the halves and of the draw of the source.
        level: see `best_bin_share`.

    Raises:
        DataError: a domain has fewer than four samples.

    Paper: Garg et al., NeurIPS 2022, Algorithm 1; discarding is that of CVIR (NeurIPS 2021).
    """
    from sklearn.linear_model import LogisticRegression

    if min(len(source), len(target)) < 4:
        raise DataError(f"source and target have {len(source)} and {len(target)} samples. Give four of each or more.")
    halves = [np.array_split(generator.permutation(len(rows)), 2) for rows in (source, target)]
    (fitted, held), (fitted_target, held_target) = halves
    seen, n_classes = np.unique(labels[fitted]), int(labels.max()) + 1
    probabilities = np.zeros((len(held) + len(held_target), n_classes))
    tested = np.concatenate([source[held], target[held_target]])
    if len(seen) > 1:
        classifier = LogisticRegression(C=_INVERSE_PENALTY, max_iter=300).fit(source[fitted], labels[fitted])
        probabilities[:, seen] = classifier.predict_proba(tested)
    else:
        probabilities[:, seen] = 1
    of_classes = class_shares(probabilities[: len(held)], labels[held], probabilities[len(held) :])
    drawn = resampled(labels[held], of_classes[:-1], generator)
    rows = np.concatenate([source[fitted], target[fitted_target]])
    is_source = np.repeat([1, 0], [len(fitted), len(fitted_target)])
    weights, found = np.ones(len(rows)), PrivateShare(1.0, 0.0, 1.0)
    for _ in range(1 + _ROUNDS):
        discriminator = LogisticRegression(C=_INVERSE_PENALTY, max_iter=300).fit(rows, is_source, weights)
        scores = discriminator.predict_proba(tested)[:, 1]
        found = best_bin_share(scores[: len(held)][drawn], scores[len(held) :], level)
        kept = int(found.share * len(fitted_target))
        # The source weighs as much as the common part: with nothing of either, there is nothing to train.
        if kept == 0 or found.share == 1:
            break
        likeness = discriminator.predict_proba(target[fitted_target])[:, 1]
        is_private = np.argsort(np.argsort(likeness, kind="stable")) < kept
        weights = np.concatenate([np.full(len(fitted), 1 - found.share), found.share * is_private])
        weights = weights / weights.mean()
    return found


def fit_double_tilt(source: np.ndarray, target: np.ndarray, *, common_moves: bool = True) -> DoubleTilt:
    """Fit the target as a mixture of two exponential tilts of the source, by maximum empirical likelihood.

    If nothing is private, or nothing common, one tilt suffices, and the share may be any: the likelihood does not tell.

    With the odds of the target Σ_k exp(a_k + β_k · x), the likelihood is that of a classifier of domains; the share of
    part k is the mean over the target of its part of the odds. The part with the smaller divergence from the source is
    the common one.

    Args:
        source: features, (n, d) or (n,); few, and scaled to similar sizes.
        target: features, (m, d) or (m,).
        common_moves: whether the common part is tilted, too; otherwise it is distributed as the source.

    Paper: Liu et al., JASA 2025, the double exponential tilting model.
    """
    from scipy.optimize import minimize

    source, target = (rows[:, None] if rows.ndim == 1 else rows for rows in _checked(source, target))
    both = np.concatenate([source, target])
    centre, scale = both.mean(axis=0), both.std(axis=0)
    # A feature that is the same everywhere has no tilt.
    x = np.column_stack([np.ones(len(both)), (both - centre) / np.where(scale > 0, scale, 1)])
    is_target = np.repeat([0.0, 1.0], [len(source), len(target)])
    acts = np.ones((2, x.shape[1]))
    acts[0, 1:] = common_moves

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(acts.shape) * acts
        parts = x @ weights.T
        odds = np.logaddexp(parts[:, 0], parts[:, 1])
        p = np.exp(-np.logaddexp(0, -odds))
        value = np.logaddexp(0, odds) - is_target * odds
        slopes = (p - is_target)[:, None] * np.exp(parts - odds[:, None])
        gradient = slopes.T @ x / len(x)
        gradient[:, 1:] += _RIDGE * weights[:, 1:]
        return float(value.mean() + _RIDGE / 2 * (weights[:, 1:] ** 2).sum()), (gradient * acts).ravel()

    direction = x[is_target == 1, 1:].mean(axis=0) - x[is_target == 0, 1:].mean(axis=0)
    direction = direction / max(float(np.linalg.norm(direction)), 1e-12)
    level = math.log(len(target) / len(source) / 2)
    found = []
    for size in (1.0, 4.0, -1.0):
        start = np.zeros(acts.shape)
        start[:, 0] = level
        start[1, 1:] = size * direction
        found.append(minimize(loss, start.ravel(), jac=True, method="L-BFGS-B"))
    weights = min(found, key=lambda one: one.fun).x.reshape(acts.shape) * acts
    parts = x[is_target == 1] @ weights.T
    of_part = np.exp(parts - np.logaddexp(parts[:, 0], parts[:, 1])[:, None])
    shares = of_part.mean(axis=0)
    # log of each part's density over that of the source, averaged over the part.
    density = parts - np.log(np.maximum(shares, 1e-12) * len(target) / len(source))
    divergence = (of_part * density).sum(axis=0) / np.maximum(of_part.sum(axis=0), 1e-12)
    order = np.argsort(divergence, kind="stable") if common_moves else np.array([0, 1])
    likelihood = -loss(weights.ravel())[0] + _RIDGE / 2 * float((weights[:, 1:] ** 2).sum())
    tilts = weights[order, 1:] / np.where(scale > 0, scale, 1)
    return DoubleTilt(float(shares[order[1]]), tilts, of_part[:, order[1]], likelihood)


def bootstrap_interval(
    estimate: Callable[[np.ndarray, np.ndarray], float],
    source: np.ndarray,
    target: np.ndarray,
    generator: np.random.Generator,
    *,
    level: float = 0.9,
    samples: int = 50,
) -> tuple[float, float]:
    """Return the central interval of an estimate over bootstrap samples of both domains.

    Args:
        estimate: maps rows of both domains to a share.
        source: rows, (n, ...).
        target: rows, (m, ...).
        generator: of the samples.
        level: fraction of the estimates within the interval.
        samples: their number.
    """
    drawn = [
        estimate(*(rows[generator.integers(len(rows), size=len(rows))] for rows in (source, target)))
        for _ in range(samples)
    ]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _checked(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays in float64; raises DataError if one is empty or not finite."""
    found = tuple(np.asarray(array, dtype=np.float64) for array in arrays)
    for name, array in zip(("source", "target"), found, strict=True):
        if not len(array):
            raise DataError(f"the {name} has no samples. Give the scores of at least one.")
        if not np.isfinite(array).all():
            raise DataError(f"the {name} has scores that are no numbers. Remove these samples.")
    return found


def _running_median(values: np.ndarray, most: int) -> np.ndarray:
    """Return the median of the values up to `most` places to either side, of fewer near the ends, (n,)."""
    n = len(values)
    reach = np.minimum(np.minimum(np.arange(n), np.arange(n)[::-1]), most)
    return np.array([np.median(values[place - r : place + r + 1]) for place, r in enumerate(reach.tolist())])
