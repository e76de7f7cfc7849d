"""Local effects of answers: on known against unknown, and on the classes, of the samples around them.

Both are Gaussian processes on the log odds, with a kernel of regions: samples whose features are close get similar
shifts. How far an answer reaches is not set: several amplitudes are weighted by how well they explain the answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from uniot.io.tensor_files import StoredTensors

# Standard deviations of the log odds per class and per region; the answers weight these pairs by their evidence.
_AMPLITUDES = (
    (0.0, 0.0),
    (1.0, 0.0),
    (0.0, 1.0),
    (1.0, 1.0),
    (2.0, 1.0),
    (1.0, 2.0),
    (2.0, 2.0),
    (0.0, 3.0),
    (2.0, 3.0),
    (4.0, 0.0),
)
# With few classes a whole class is often private although its scores are high: lines of their own are the rule.
_AMPLITUDES_OF_FEW = ((4.0, 0.0), (2.0, 3.0), (4.0, 3.0))
_NEWTON_STEPS = 12
_LEAST = 1e-6
# Shifts of classes: standard deviations that are tried, and factors of the method's log odds, which are too certain if
# domains are far apart. One departure from the method needs this much more evidence, as a log probability.
_CLASS_AMPLITUDES, _TEMPERATURES, _DEPARTURE = (0.0, 1.0, 2.0, 4.0), (1.0, 0.3), 1.0
# The class of an answer reaches this many times as far as the line between known and unknown.
_CLASS_REACH = 2.0
# More answers than these would make the choice slow and say nothing new.
_MOST_COMPARED = 60
_CLASS_STEPS = 30
# Log odds of a class against the nearest one are cut there: no answer would ever outweigh less.
_LEAST_CLASS_LOG_ODDS = -12.0


@dataclass(frozen=True)
class LocalShift:
    """A Gaussian process on top of the line: what answers say about their own class and region.

    Attributes:
        rows: features of the answered samples, (n_answers, n_features), unit rows.
        classes: their nearest classes, (n_answers,).
        of_class: weight of each answer for samples of the same nearest class, (n_answers,), float64.
        of_region: weight of each answer for samples nearby, (n_answers,), float64.
        region: distance, as 1 - cosine, over which an answer has an effect; a float64 scalar.
    """

    rows: Tensor
    classes: Tensor
    of_class: Tensor
    of_region: Tensor
    region: Tensor

    @classmethod
    def fit(
        cls,
        rows: Tensor,
        classes: Tensor,
        log_odds: Tensor,
        known: Tensor,
        region: Tensor,
        *,
        has_few_classes: bool = False,
    ) -> tuple[LocalShift, float]:
        """Fit the process by Laplace's approximation; amplitudes are averaged by their evidence.

        Args:
            rows: features of the answered samples, (n_answers, n_features), unit rows.
            classes: their nearest classes, (n_answers,).
            log_odds: of being known by the common line, (n_answers,), float64.
            known: the answers, (n_answers,), bool.
            region: distance, as 1 - cosine, over which an answer has an effect.
            has_few_classes: whether the target has so few nearest classes that the score says little.

        Returns:
            The process, and the logarithm of how many times as probable it makes the answers as the common line alone.
        """
        same, near = (classes[:, None] == classes).double(), nearness(rows, rows, region)
        evidence, weights = [], []
        for class_deviation, region_deviation in _AMPLITUDES_OF_FEW if has_few_classes else _AMPLITUDES:
            amplitudes = class_deviation**2, region_deviation**2
            kernel = amplitudes[0] * same + amplitudes[1] * near
            weight, found = _laplace(kernel, log_odds, known)
            evidence.append(found)
            weights.append(torch.stack([amplitude * weight for amplitude in amplitudes]))
        of_amplitudes = torch.tensor(evidence, dtype=torch.float64)
        of_class, of_region = torch.einsum("k,kpm->pm", of_amplitudes.softmax(0), torch.stack(weights))
        by_line = torch.nn.functional.logsigmoid(torch.where(known, 1.0, -1.0) * log_odds).sum()
        gain = float(of_amplitudes.logsumexp(0) - by_line) - math.log(len(evidence))
        return cls(rows, classes, of_class, of_region, region), gain

    def __call__(self, features: Tensor, nearest: Tensor) -> Tensor:
        """Return the shift of the log odds of samples, (n_samples,), float64.

        Args:
            features: unit rows, (n_samples, n_features).
            nearest: nearest class of each, (n_samples,).
        """
        same = (nearest[:, None] == self.classes).double()
        return same @ self.of_class + nearness(features, self.rows, self.region) @ self.of_region


@dataclass(frozen=True)
class ClassShift:
    """A Gaussian process on the log odds of the classes: what named samples say about the classes around them.

    Attributes:
        rows: features of the named samples, (n_answers, n_features), unit rows.
        weights: of each answer for the log odds of each class, (n_answers, n_classes), float64.
        factor: of the method's own log odds; a float64 scalar.
        region: distance, as 1 - cosine, over which an answer has an effect; a float64 scalar.
    """

    rows: Tensor
    weights: Tensor
    factor: Tensor
    region: Tensor

    @classmethod
    def fit(cls, rows: Tensor, log_odds: Tensor, classes: Tensor, region: Tensor, error: float) -> ClassShift | None:
        """Fit the process; amplitude and factor are those that predict each answer best from the others.

        Args:
            rows: features of the named samples, (n_answers, n_features), unit rows.
            log_odds: of each class against the nearest one by the method, (n_answers, n_classes), float64.
            classes: the answers, (n_answers,).
            region: distance over which an answer moves the line between known and unknown.
            error: probability of a wrong answer.

        Returns:
            The process; None if the answers are explained best by the method alone.
        """
        near = nearness(rows, rows, _CLASS_REACH * region)
        some = torch.linspace(0, len(rows) - 1, min(len(rows), _MOST_COMPARED), dtype=torch.float64).round().long()
        best, chosen = -torch.inf, (0.0, 1.0)
        for factor in _TEMPERATURES:
            for deviation in _CLASS_AMPLITUDES:
                kernel = deviation**2 * near[some][:, some]
                score = _predicted(kernel, factor * log_odds[some], classes[some], error)
                score -= _DEPARTURE * ((deviation > 0) + (factor != _TEMPERATURES[0]))
                if score > best:
                    best, chosen = score, (deviation, factor)
        deviation, factor = chosen
        if deviation == 0:
            # Another factor alone changes no order of the classes.
            return None
        weights, _ = _class_weights(deviation**2 * near, factor * log_odds, classes)
        scalars = (torch.tensor(factor, dtype=torch.float64), _CLASS_REACH * region)
        return cls(rows, deviation**2 * weights, *scalars)

    def __call__(self, log_odds: Tensor, features: Tensor) -> Tensor:
        """Return the log odds of each class against the most probable one, (n_samples, n_classes), float64.

        Args:
            log_odds: of each class against the nearest one by the method, (n_samples, n_classes).
            features: unit rows, (n_samples, n_features).
        """
        shifted = self.factor * log_odds.double() + nearness(features, self.rows, self.region) @ self.weights
        return shifted - shifted.max(dim=1, keepdim=True).values

    @classmethod
    def read(cls, stored: StoredTensors, width: int, n_classes: int) -> ClassShift:
        """Return the stored process of features of `width` numbers; raises RunFolderError if it is damaged."""
        rows = stored.take("rows", (None, width), torch.float32)
        return cls(
            rows,
            stored.take("weights", (len(rows), n_classes), torch.float64),
            stored.take("factor", (), torch.float64, low=0, high=1),
            stored.take("region", (), torch.float64, low=1e-6, high=4),
        )


def class_log_odds(odds: Tensor) -> Tensor:
    """Return the log odds of each class against the nearest one, (n_samples, n_classes), 0 for that.

    Args:
        odds: of each class against unknown, (n_samples, n_classes).
    """
    largest = odds.max(dim=1, keepdim=True).values.clamp_min(1e-300)
    return (odds / largest).log().clamp_min(_LEAST_CLASS_LOG_ODDS)


def _class_weights(kernel: Tensor, log_odds: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the dual weights of the mode, (n_answers, n_classes), and the Cholesky factor of 1 + kernel / 2.

    The Hessian of the softmax is at most one half, so that every step with this bound increases the posterior, and one
    factorisation serves all classes and steps. At the mode the weights are the answers less their probabilities.
    """
    root = torch.linalg.cholesky(torch.eye(len(kernel), dtype=torch.float64) + kernel / 2)
    answers = torch.nn.functional.one_hot(classes, log_odds.shape[1]).double()
    weights = torch.zeros_like(log_odds)
    for _ in range(_CLASS_STEPS):
        step = torch.cholesky_solve(answers - (log_odds + kernel @ weights).softmax(dim=1) - weights, root)
        weights = weights + step
        if float(step.abs().max()) < _LEAST:
            break
    return weights, root


def _predicted(kernel: Tensor, log_odds: Tensor, classes: Tensor, error: float) -> float:
    """Return the log probability of the answers, each predicted from the others, one of them left out at a time."""
    weights, root = _class_weights(kernel, log_odds, classes)
    # As in regression with a noise variance of 2, the inverse of the bound: the prediction without a sample is its
    # pseudo-target less its weight over the diagonal of the inverse of the noisy kernel.
    own = torch.cholesky_inverse(root).diagonal() / 2
    without = log_odds + kernel @ weights + 2 * weights - weights / own[:, None]
    right = without.softmax(dim=1).gather(1, classes[:, None])[:, 0]
    return float(((1 - error) * right + error / log_odds.shape[1]).log().sum())


def _laplace(kernel: Tensor, log_odds: Tensor, known: Tensor) -> tuple[Tensor, float]:
    """Return the dual weights of the mode of a Gaussian process, (n_answers,), and its log evidence."""
    n_answers, truth = len(log_odds), known.double()
    mode, weight = torch.zeros(n_answers, dtype=torch.float64), torch.zeros(n_answers, dtype=torch.float64)
    unit = torch.eye(n_answers, dtype=torch.float64)
    root = unit
    for _ in range(_NEWTON_STEPS):
        probability = torch.sigmoid(log_odds + mode)
        curvature = (probability * (1 - probability)).clamp_min(_LEAST)
        scale = curvature.sqrt()
        root = torch.linalg.cholesky(unit + scale[:, None] * kernel * scale)
        step = curvature * mode + truth - probability
        weight = step - scale * torch.cholesky_solve((scale * (kernel @ step))[:, None], root)[:, 0]
        before, mode = mode, kernel @ weight
        if float((mode - before).abs().max()) < _LEAST:
            break
    fit = torch.nn.functional.logsigmoid(torch.where(known, 1.0, -1.0) * (log_odds + mode)).sum()
    return weight, float(fit - 0.5 * weight @ mode - root.diagonal().log().sum())


def nearness(one: Tensor, other: Tensor, region: Tensor) -> Tensor:
    """Return the kernel of regions between unit rows, (n, m), float64: 1 for equal rows, 1 / e at the distance."""
    return (((one @ other.t()).double().clamp(-1, 1) - 1) / region).exp()
