"""One model of known against unknown for every method: its prior is the method's rule, its data are answers.

The score of a sample is the rank of its largest odds within the target, z = logit(rank). Given a slope a and a share u
of unknown samples, a sample is known with the probability

    P(known | z) = σ(a (z - t)),    t such that the mean of 1 - P over the target is u.

The prior of u is wide and centred on the share that the rule of the method rejects; "nothing is private" (u = 0) and
"nothing is common" (u = 1) have a probability of their own, because no value of u in between reaches them: the more the
rule calls known, the more probable is the first, and the more it rejects, the second. So has "the rule is right", with
the odds that it gives. Both parameters are integrated on a grid. What answers say beyond the
common line, about single classes and about regions of the feature space, is a Gaussian process added to the log odds.

The threshold on the resulting probability maximises the expected H-score, not the accuracy: where the score ranks
samples badly, the most accurate answer is to call everything unknown, which helps nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from uniot.errors import RunFolderError
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors
from uniot.rejection.answers import UNKNOWN, Answers
from uniot.rejection.local import ClassShift, LocalShift

# Prior of the slope: log a is normal around the first with the second as deviation. On the choice splits of six
# collections the slope of the best logistic curve is between 0.1 and 2.2; the model of regions explains the rest.
_SLOPE, _SLOPE_DEVIATION, _N_SLOPES = 1.2, 0.8, 7
# The score may say nothing at all: this slope has a prior probability of its own, a larger one if classes are few.
_FLAT_SLOPE, _FLAT, _FLAT_OF_FEW = 0.05, 0.15, 0.4
# Prior of the share: logit u is Student t around that of the rule. Heavy tails, because rules can be far off.
_SHARE_SCALE, _SHARE_FREEDOM, _N_SHARES = 0.9, 2.0, 39
_LARGEST_LOGIT = 5.5
# Prior probability that the rule of the method is right; that nothing is private, times the share that the rule calls
# known; and that nothing is common, times the share that it rejects. Up to the number of nearest classes below, that
# share says nothing and one half takes its place: a private class is often as near to a class as its own samples are.
_RULE, _NOTHING_PRIVATE, _NOTHING_COMMON = 0.2, 0.4, 0.3
_FEW_CLASSES = 4
# Shares of the rule that are nearer to 0 or 1 count as these.
_LEAST_SHARE, _LARGEST_SHARE = 0.02, 0.98
# No rule is more certain than this: log odds are cut there.
_MOST_LOG_ODDS = 3.0
# Hypotheses that are no curve of the score: the three above.
_N_SPECIAL = 3
# Probability that an answer is wrong. People err less often; a larger number also keeps a single sample with a
# misleading score from excluding a hypothesis, which gains most if answers are few.
_WRONG_ANSWER = 0.07
# If the share of unknown samples is below this, the decision maximises the accuracy on known samples, and above one
# minus this, the recall of unknown ones: the H-score would give up many samples for the sake of a few.
_SMALL_SHARE = 0.05
# Two samples are of one region if 1 - cosine is small against this part of its mean over the target; with two clusters
# the median is that within a cluster.
_REGION = 0.14
_MOST_COMPARED = 400
# Larger numbers of answers, as from moving whole groups, would make the process slow and add little.
_MOST_LOCAL_ANSWERS = 300
# Points of the score at which the target is represented: hypotheses are functions of the score alone.
_KNOTS = 257
_CANDIDATES = 256
_LEAST_WEIGHT = 1e-4
# Probabilities under every hypothesis are computed for this many samples at once: 40 MB for some hundred hypotheses.
_ROWS_AT_ONCE = 1 << 14
_LEAST = 1e-6


@dataclass(frozen=True)
class TargetScores:
    """Scores, nearest classes and features of a target.

    Attributes:
        odds: largest odds of each sample by the rule of the method, (n_samples,), float64.
        nearest: class of these odds, (n_samples,).
        features: unit rows, (n_samples, n_features).
        rejected: share of the target that the rule calls unknown.
        class_log_odds: of each class against the nearest one, 0 for that, (n_samples, n_classes); None if they are not
            known, so that answers do not move classes.
    """

    odds: Tensor
    nearest: Tensor
    features: Tensor
    rejected: float
    class_log_odds: Tensor | None = None

    @cached_property
    def representatives(self) -> Tensor:
        """Return some hundred rows, evenly from the whole target, (n_rows, n_features)."""
        return self.features[:: -(-len(self.features) // _MOST_COMPARED)]

    @cached_property
    def region(self) -> Tensor:
        """Return the distance, as 1 - cosine, over which answers have an effect; a float64 scalar."""
        distances = 1 - (self.representatives @ self.representatives.t()).double()
        return (_REGION * distances.mean()).clamp_min(1e-3)

    @cached_property
    def scale(self) -> ScoreScale:
        """Return the scale of the score."""
        return ScoreScale.of(self.odds)

    @cached_property
    def z(self) -> Tensor:
        """Return the score of each sample, (n_samples,), float64."""
        return self.scale(self.odds)

    @cached_property
    def prior(self) -> Hypotheses:
        """Return the hypotheses before any answer."""
        return Hypotheses.prior(self.z, self.rejected, has_few_classes=self.has_few_classes)

    @cached_property
    def has_few_classes(self) -> bool:
        """Return whether the target has so few nearest classes that the score says little."""
        return len(torch.unique(self.nearest)) <= _FEW_CLASSES


@dataclass(frozen=True)
class ScoreScale:
    """Maps odds to the logit of their rank within the target, by linear interpolation between quantiles.

    Attributes:
        knots: increasing log odds, (n_knots,), float64.
        values: logit of the rank at each, (n_knots,), float64.
    """

    knots: Tensor
    values: Tensor

    @classmethod
    def of(cls, odds: Tensor) -> ScoreScale:
        """Fit the scale to the largest odds of the target, (n_samples,)."""
        ordered = _log(odds).sort().values
        n_samples = len(ordered)
        place = torch.linspace(0, n_samples - 1, min(_KNOTS, n_samples), dtype=torch.float64).round().long()
        knots, index, sizes = torch.unique_consecutive(ordered[place], return_inverse=True, return_counts=True)
        # Equal odds have one rank, the mean of theirs.
        ranks = torch.zeros_like(knots).index_add_(0, index, place.double()) / sizes
        return cls(knots, torch.logit((ranks + 0.5) / n_samples))

    def __call__(self, odds: Tensor) -> Tensor:
        """Return the logit of the rank of odds (n_samples,), within the range of the target."""
        if len(self.knots) == 1:
            return torch.zeros_like(odds)
        values = _log(odds)
        # Comparisons instead of a search, which ONNX does not know.
        above = (values[:, None] >= self.knots[None, 1:-1]).sum(dim=1)
        low, high = self.knots[above], self.knots[above + 1]
        part = ((values - low) / (high - low)).clamp(0, 1)
        return self.values[above] + part * (self.values[above + 1] - self.values[above])


@dataclass(frozen=True)
class Hypotheses:
    """Weighted hypotheses about the line between known and unknown.

    The last three are: the rule is right, nothing is private, nothing is common.

    Attributes:
        slope: a, (n_hypotheses,), float64; 0 for the last three.
        threshold: t, (n_hypotheses,), float64; 0 for the last three.
        share: share of unknown samples in the target, (n_hypotheses,), float64.
        log_weight: logarithm of the probability, (n_hypotheses,), float64.
    """

    slope: Tensor
    threshold: Tensor
    share: Tensor
    log_weight: Tensor

    @classmethod
    def prior(cls, z: Tensor, rejected: float, *, has_few_classes: bool = False) -> Hypotheses:
        """Return the hypotheses about a target.

        Args:
            z: scores of the target, (n_samples,).
            rejected: share of the target that the rule calls unknown.
            has_few_classes: whether the target has so few nearest classes that this share does not tell if anything is
                private or common.
        """
        deviations = torch.linspace(-2, 2, _N_SLOPES, dtype=torch.float64)
        flat = torch.tensor([_FLAT_SLOPE], dtype=torch.float64)
        slopes = torch.cat([flat, _SLOPE * (_SLOPE_DEVIATION * deviations).exp()])
        of_flat = _FLAT_OF_FEW if has_few_classes else _FLAT
        of_slope = torch.cat([flat * 0 + of_flat, (1 - of_flat) * (-0.5 * deviations.square()).softmax(0)])
        logits = torch.linspace(-_LARGEST_LOGIT, _LARGEST_LOGIT, _N_SHARES, dtype=torch.float64)
        shares = torch.sigmoid(logits)
        by_rule = min(max(rejected, _LEAST_SHARE), _LARGEST_SHARE)
        centre = torch.logit(torch.tensor(by_rule, dtype=torch.float64))
        scaled = (logits - centre) / _SHARE_SCALE
        of_share = -(_SHARE_FREEDOM + 1) / 2 * torch.log1p(scaled.square() / _SHARE_FREEDOM)
        log_weight = of_slope.log()[:, None] + of_share.log_softmax(0)
        believed = 0.5 if has_few_classes else by_rule
        masses = [_RULE, _NOTHING_PRIVATE * (1 - believed), _NOTHING_COMMON * believed]
        special = torch.tensor(masses, dtype=torch.float64)
        some = z if len(z) <= _KNOTS else z.sort().values[:: -(-len(z) // _KNOTS)]
        thresholds = torch.stack([_thresholds(some, slope, shares) for slope in slopes])
        none = torch.zeros(_N_SPECIAL, dtype=torch.float64)
        return cls(
            slope=torch.cat([slopes.repeat_interleave(_N_SHARES), none]),
            threshold=torch.cat([thresholds.flatten(), none]),
            share=torch.cat([shares.repeat(len(slopes)), torch.tensor([rejected, 0.0, 1.0], dtype=torch.float64)]),
            log_weight=torch.cat([log_weight.flatten() + torch.log1p(-special.sum()), special.log()]),
        )

    @property
    def weight(self) -> Tensor:
        """Return the probability of each hypothesis, (n_hypotheses,)."""
        return self.log_weight.exp()

    def known_probability(self, z: Tensor, odds: Tensor, shift: Tensor | None = None) -> Tensor:
        """Return P(known) of each sample under each hypothesis, (n_samples, n_hypotheses).

        Args:
            z: scores, (n_samples,).
            odds: largest odds by the rule, (n_samples,).
            shift: of the log odds, (n_samples,); "nothing is private" and "nothing is common" admit none.
        """
        of_rule = _log(odds).clamp(-_MOST_LOG_ODDS, _MOST_LOG_ODDS)[:, None]
        log_odds = torch.cat([self.slope[:-_N_SPECIAL] * (z[:, None] - self.threshold[:-_N_SPECIAL]), of_rule], dim=1)
        if shift is not None:
            log_odds = log_odds + shift[:, None]
        ones = torch.ones_like(of_rule)
        return torch.cat([torch.sigmoid(log_odds), ones, 0 * ones], dim=1)

    def mean_known_probability(self, z: Tensor, odds: Tensor, shift: Tensor | None = None) -> Tensor:
        """Return P(known) of each sample, the mean over the hypotheses, (n_samples,); arguments as above."""
        # An exported graph is given its samples in blocks.
        if torch.compiler.is_exporting() or len(z) <= _ROWS_AT_ONCE:
            return self.known_probability(z, odds, shift) @ self.weight
        shifts = torch.zeros_like(z) if shift is None else shift
        blocks = zip(*(values.split(_ROWS_AT_ONCE) for values in (z, odds, shifts)), strict=True)
        return torch.cat([self.mean_known_probability(*block) for block in blocks])

    def told(self, z: Tensor, odds: Tensor, known: Tensor) -> Hypotheses:
        """Return the hypotheses after answers about samples.

        Args:
            z: scores, (n_answers,).
            odds: largest odds by the rule, (n_answers,).
            known: the answers, (n_answers,), bool.
        """
        of_known = _WRONG_ANSWER + (1 - 2 * _WRONG_ANSWER) * self.known_probability(z, odds)
        likelihood = torch.where(known[:, None], of_known, 1 - of_known).log().sum(dim=0)
        return replace(self, log_weight=(self.log_weight + likelihood).log_softmax(0))

    def explained(self, gain: float) -> Hypotheses:
        """Return the hypotheses after regions have explained the answers better than the line alone.

        Args:
            gain: log probability of the answers with regions, less that by the line; "nothing is private" and "nothing
                is common" admit no regions.
        """
        gained = self.log_weight.clone()
        gained[: -_N_SPECIAL + 1] += gain
        return replace(self, log_weight=gained.log_softmax(0))

    def likely(self) -> Hypotheses:
        """Return the hypotheses without those of negligible weight; the special ones stay."""
        kept = self.weight > _LEAST_WEIGHT * self.weight.max()
        kept[-_N_SPECIAL:] = True
        weight = self.log_weight[kept].log_softmax(0)
        return Hypotheses(self.slope[kept], self.threshold[kept], self.share[kept], weight)

    def share_interval(self, level: float) -> tuple[float, float]:
        """Return the central interval of the share of unknown samples with that probability."""
        order = torch.argsort(self.share, stable=True)
        cumulated = self.weight[order].cumsum(0)
        tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = torch.searchsorted(cumulated, tails).clamp_max(len(order) - 1).tolist()
        return float(self.share[order[low]]), float(self.share[order[high]])

    @property
    def mean_share(self) -> float:
        """Return the expected share of unknown samples."""
        return float(self.weight @ self.share)


@dataclass(frozen=True)
class RejectionPosterior:
    """The decision between known and unknown after some answers.

    Attributes:
        scale: of the score.
        hypotheses: about the line.
        shift: what answers say about known and unknown around them; None without two answers.
        threshold: on the probability of being known.
        class_shift: what answers say about the classes around them; None if that is nothing.
    """

    scale: ScoreScale
    hypotheses: Hypotheses
    shift: LocalShift | None
    threshold: float
    class_shift: ClassShift | None = None

    def known_probability(self, odds: Tensor, nearest: Tensor, features: Tensor) -> Tensor:
        """Return the probability that each sample is of a source class, (n_samples,), float64.

        Args:
            odds: largest odds by the rule of the method, (n_samples,).
            nearest: class of these odds, (n_samples,).
            features: unit rows, (n_samples, n_features).
        """
        shift = None if self.shift is None else self.shift(features, nearest)
        return self.hypotheses.mean_known_probability(self.scale(odds), odds, shift)

    def odds(self, known_probability: Tensor) -> Tensor:
        """Return the odds of being known, 1 at the threshold, (n_samples,), from the probabilities."""
        known = known_probability.clamp(_LEAST, 1 - _LEAST)
        limit = min(max(self.threshold, _LEAST), 1 - _LEAST)
        return known / (1 - known) * ((1 - limit) / limit)

    def share_interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the central interval of the share of unknown samples with that probability."""
        return self.hypotheses.share_interval(level)

    def tensors(self) -> dict[str, Tensor]:
        """Return what a run folder stores, by name."""
        parts: dict[str, Any] = {"scale": vars(self.scale), "hypotheses": vars(self.hypotheses)}
        if self.shift is not None:
            parts["shift"] = vars(self.shift)
        if self.class_shift is not None:
            parts["class_shift"] = vars(self.class_shift)
        stored = {f"{part}.{name}": tensor for part, own in parts.items() for name, tensor in own.items()}
        return {**stored, "threshold": torch.tensor(self.threshold, dtype=torch.float64)}

    @classmethod
    def read(cls, stored: StoredTensors, width: int, n_classes: int) -> RejectionPosterior:
        """Return the stored posterior of features of `width` numbers; raises RunFolderError if it is damaged."""
        kind, scale, lines, shift, of_classes = (
            torch.float64,
            *(stored.below(f"{part}.") for part in ("scale", "hypotheses", "shift", "class_shift")),
        )
        knots = scale.take("knots", (None,), kind)
        slope = lines.take("slope", (None,), kind, low=0)
        if len(knots) < 1 or (knots.diff() <= 0).any() or len(slope) < _N_SPECIAL:
            raise RunFolderError(f"{stored.where} has answers whose line is damaged. {MAKE_AGAIN}")
        local = None
        if shift.tensors:
            classes = shift.take("classes", (None,), torch.int64, low=0, high=n_classes - 1)
            local = LocalShift(
                rows=shift.take("rows", (len(classes), width), torch.float32),
                classes=classes,
                of_class=shift.take("of_class", (len(classes),), kind),
                of_region=shift.take("of_region", (len(classes),), kind),
                region=shift.take("region", (), kind, low=1e-6, high=2),
            )
        return cls(
            ScoreScale(knots, scale.take("values", (len(knots),), kind)),
            Hypotheses(
                slope=slope,
                threshold=lines.take("threshold", (len(slope),), kind),
                share=lines.take("share", (len(slope),), kind, low=0, high=1),
                log_weight=lines.take("log_weight", (len(slope),), kind, high=1e-9),
            ),
            local,
            float(stored.take("threshold", (), kind, low=0, high=1)),
            ClassShift.read(of_classes, width, n_classes) if of_classes.tensors else None,
        )


def fit_posterior(target: TargetScores, answers: Answers) -> RejectionPosterior:
    """Return the posterior after a person's answers about samples of the target.

    Args:
        target: scores, nearest classes and features of the target.
        answers: those that are no evidence have no effect, such as "cannot tell".
    """
    z, said = target.z, answers.evidence
    rows, known = torch.from_numpy(said.rows), torch.from_numpy(said.classes != UNKNOWN)
    hypotheses = target.prior.told(z[rows], target.odds[rows], known).likely()
    shift, moved = None, None
    if len(rows) > 1:
        some = _evenly(rows)
        rows, known = rows[some], known[some]
        by_line = hypotheses.mean_known_probability(z[rows], target.odds[rows]).clamp(0.02, 0.98)
        of_rows = target.features[rows], target.nearest[rows]
        shift, gain = LocalShift.fit(
            *of_rows, torch.logit(by_line), known, target.region, has_few_classes=target.has_few_classes
        )
        hypotheses, moved = hypotheses.explained(gain), shift(target.features, target.nearest)
    threshold = _threshold_of_largest_h(hypotheses, z, target.odds, moved)
    return RejectionPosterior(target.scale, hypotheses, shift, threshold, _class_shift(target, said.of_classes))


def _class_shift(target: TargetScores, named: Answers) -> ClassShift | None:
    """Return what answers that name a class say about the classes of other samples; None if that is nothing."""
    if target.class_log_odds is None or target.class_log_odds.shape[1] < 2 or not len(named):
        return None
    rows, classes = torch.from_numpy(named.rows), torch.from_numpy(named.classes)
    some = _evenly(rows)
    rows, classes = rows[some], classes[some]
    log_odds = target.class_log_odds[rows].double()
    return ClassShift.fit(target.features[rows], log_odds, classes, target.region, _WRONG_ANSWER)


def _evenly(rows: Tensor) -> Tensor:
    """Return the places of some of the rows, evenly from all of them."""
    n_rows = min(len(rows), _MOST_LOCAL_ANSWERS)
    return torch.linspace(0, len(rows) - 1, n_rows, dtype=torch.float64).round().long()


def _threshold_of_largest_h(hypotheses: Hypotheses, z: Tensor, odds: Tensor, shift: Tensor | None) -> float:
    """Return the threshold on the mean probability that maximises the expected H-score.

    If hardly anything is private, the score of a decision is the fraction of common samples called known; if hardly
    anything is common, that of private samples called unknown.

    Args:
        hypotheses: with their weights.
        z: scores of the target, (n_samples,).
        odds: largest odds by the rule, (n_samples,).
        shift: of the log odds, (n_samples,), or None.
    """
    mean = hypotheses.mean_known_probability(z, odds, shift)
    order = torch.argsort(mean, descending=True, stable=True)
    n_samples = len(order)
    counts = torch.linspace(0, n_samples, min(_CANDIDATES, n_samples) + 1, dtype=torch.float64).round().long()
    # Expected number of common samples among the first ones, for each of the counts and each hypothesis.
    before = torch.zeros(1, len(hypotheses.weight), dtype=torch.float64)
    sums, n_before = [before], 0
    for rows in order.split(_ROWS_AT_ONCE):
        of_rows = None if shift is None else shift[rows]
        up_to = before + hypotheses.known_probability(z[rows], odds[rows], of_rows).cumsum(0)
        within = counts[(counts > n_before) & (counts <= n_before + len(rows))]
        sums.append(up_to[within - n_before - 1])
        before, n_before = up_to[-1:], n_before + len(rows)
    found = torch.cat(sums)
    rejected = n_samples - counts[:, None] - (found[-1] - found)
    accuracy, recall = found / found[-1].clamp_min(_LEAST), rejected / (n_samples - found[-1]).clamp_min(_LEAST)
    h_score = 2 * accuracy * recall / (accuracy + recall).clamp_min(_LEAST)
    h_score = torch.where(hypotheses.share < _SMALL_SHARE, accuracy, h_score)
    h_score = torch.where(hypotheses.share > 1 - _SMALL_SHARE, recall, h_score)
    n_known = int(counts[int((h_score @ hypotheses.weight).argmax())])
    if n_known == 0:
        return float((mean.max() + 1) / 2)
    if n_known == n_samples:
        return float(mean.min() / 2)
    return float((mean[order[n_known - 1]] + mean[order[n_known]]) / 2)


def _thresholds(z: Tensor, slope: Tensor, shares: Tensor) -> Tensor:
    """Return the threshold with which each share of the scores (n,) is expected to be unknown, by bisection."""
    low = (z.min() - 12 / slope).expand(len(shares)).clone()
    high = (z.max() + 12 / slope).expand(len(shares)).clone()
    for _ in range(40):
        middle = (low + high) / 2
        unknown = 1 - torch.sigmoid(slope * (z[:, None] - middle)).mean(dim=0)
        low, high = torch.where(unknown < shares, middle, low), torch.where(unknown < shares, high, middle)
    return (low + high) / 2


def _log(odds: Tensor) -> Tensor:
    return odds.double().clamp_min(1e-300).log()
