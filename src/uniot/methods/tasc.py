"""Choose the classes of the target by information maximisation, and reject by what a sample fits better (TASC).

References:
    He et al., Target Semantics Clustering via Text Representations for Robust Universal Domain Adaptation,
    AAAI 2025, arXiv:2506.03521.
    Liang et al., Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised Domain
    Adaptation, ICML 2020, arXiv:2002.08546.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.discovery.kmeans import spherical_kmeans
from uniot.losses import normalised_entropy
from uniot.methods.base import FinalFeatures, MethodInfo, MethodOptions
from uniot.methods.calibrated import Calibrated, CalibratedOptions
from uniot.methods.decision import Decision

# As in the authors' code: at most so many samples are used by the search.
_MOST_ROWS = 5000
_LEAST = 1e-5  # inside the logarithms, as in the authors' code
_GRID = 1000
_FEWEST_ROWS_OF_CLUSTER = 4
_LEAST_VARIANCE = 1e-6
_ROUNDS_OF_EM, _EM_TOLERANCE = 1000, 1e-10


def information(logits: Tensor, diversity_weight: float = 0.6) -> Tensor:
    """Return how sure and how diverse predictions are, a scalar, at most the weight of the diversity.

    It is w H(mean p) - mean H(p), with p = softmax(logits) and entropies divided by log c.

    Args:
        logits: (n, c), c at least 2.
        diversity_weight: w.
    """
    p = logits.softmax(dim=1)
    mean = p.mean(dim=0)
    sure = -(p * (p + _LEAST).log()).sum(dim=1).mean()
    diverse = -(mean * (mean + _LEAST).log()).sum()
    return (diversity_weight * diverse - sure) / math.log(logits.shape[1])


def match_entropy(row: Tensor, anchors: Tensor, temperature: float = 0.01) -> Tensor:
    """Return the entropy of softmax(cosines / T) of unit rows to unit anchors, divided by log k, (n,).

    Args:
        row: (n, d).
        anchors: (k, d).
        temperature: T.
    """
    p = (row @ anchors.t() / temperature).softmax(dim=1)
    return -(p * (p + _LEAST).log()).sum(dim=1) / math.log(max(2, len(anchors)))


def means_of_nearest(rows: Tensor, anchors: Tensor) -> Tensor:
    """Return the unit mean of the rows that are nearest to each anchor, without anchors that have none, (≤ k, d)."""
    nearest = F.one_hot((rows @ anchors.t()).argmax(dim=1), len(anchors)).to(rows)
    return F.normalize((nearest.t() @ rows)[nearest.sum(dim=0) > 0], dim=1)


def search_classes(
    rows: Tensor,
    candidates: Tensor,
    n_source: int,
    *,
    temperature: float = 0.01,
    diversity_weight: float = 0.6,
    certain: float = 0.3,
    rounds: int = 20,
) -> Tensor:
    """Return which candidates are classes of the target, (k,), by a greedy search for the largest `information`.

    All candidates are kept first. One after the other is discarded if that raises the information of the predictions,
    or taken back, until a round changes nothing. A source class that clearly matches one cluster stays.

    Args:
        rows: unit features of the target, (n, d).
        candidates: unit rows, those of the source classes first, (k, d).
        n_source: number of source classes.
        temperature: cosines are divided by it.
        diversity_weight: of the diversity in the information.
        certain: a source class with a smaller `match_entropy` to the means of the nearest samples stays.
        rounds: maximum number.
    """
    logits = rows @ candidates.t() / temperature
    kept = torch.ones(len(candidates), dtype=torch.bool)
    for _ in range(rounds):
        before = kept.clone()
        for place in range(len(candidates)):
            kept[place] = False
            if int(kept.sum()) < 2:
                kept[place] = True
                continue
            without = information(logits[:, kept], diversity_weight)
            kept[place] = True
            kept[place] = bool(information(logits[:, kept], diversity_weight) >= without)
            if place < n_source and not kept[place]:
                kept[place] = True
                means = means_of_nearest(rows, candidates[kept])
                kept[place] = bool(match_entropy(candidates[place : place + 1], means, temperature) < certain)
        if torch.equal(before, kept):
            break
    return kept


def matching_score(
    class_cosines: Tensor, found_cosines: Tensor, class_entropies: Tensor, found_entropies: Tensor
) -> Tensor:
    """Return UniMS, the score of being known, (n,): the fit to a matched class minus that to an unmatched found one.

    It is max over classes of cos (1 - H) minus max over found classes of cos H', with H how evenly a class matches the
    found ones, and H' how evenly a found one matches the classes.

    Args:
        class_cosines: to the source classes, (n, c).
        found_cosines: to the found classes, (n, k).
        class_entropies: H, (c,).
        found_entropies: H', (k,).
    """
    known = (class_cosines * (1 - class_entropies)).amax(dim=1)
    return known - (found_cosines * found_entropies).amax(dim=1)


@dataclass(frozen=True)
class TwoNormals:
    """Two normal distributions of scores.

    Attributes:
        means: of known samples, then of unknown ones, (2,), float64.
        variances: (2,), float64.
    """

    means: Tensor
    variances: Tensor

    @classmethod
    def fit(cls, scores: Tensor, known_share: float) -> TwoNormals:
        """Fit by EM with fixed weights, from the means 0.75 and 0.25.

        Args:
            scores: between 0 and 1, (n,).
            known_share: weight of the first distribution.
        """
        x = scores.double()[:, None]
        weights = torch.tensor([known_share, 1 - known_share], dtype=torch.float64)
        means = torch.tensor([0.75, 0.25], dtype=torch.float64)
        is_known = x[:, 0] >= means.mean()
        # Variances of the two halves, as the authors' code has them of two clusters.
        _, variances = _moments(x, torch.stack([is_known, ~is_known], dim=1).double())
        last = -math.inf
        for _ in range(_ROUNDS_OF_EM):
            log_density = cls(means, variances).log_densities(x[:, 0]) + weights.log()
            likelihood = float(log_density.logsumexp(dim=1).mean())
            means, variances = _moments(x, log_density.softmax(dim=1))
            if likelihood - last < _EM_TOLERANCE:
                break
            last = likelihood
        return cls(means, variances)

    def log_densities(self, x: Tensor) -> Tensor:
        """Return the log density of each distribution at each value up to a constant, (n, 2); x: (n,)."""
        return -((x[:, None] - self.means).square() / self.variances + self.variances.log()) / 2

    def threshold(self) -> float:
        """Return where both are equally dense, between their means; both count one half, whatever the weights were."""
        low, high = float(self.means.min()), float(self.means.max())
        grid = torch.linspace(low, high, _GRID, dtype=torch.float64)
        densities = self.log_densities(grid)
        return low + float((densities[:, 1] > densities[:, 0]).double().mean()) * (high - low)


def _moments(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted means and variances, (2,) each, of values (n, 1) with weights (n, 2)."""
    total = weights.sum(dim=0) + 1e-15
    means = (weights * x).sum(dim=0) / total
    return means, (weights * (x - means).square()).sum(dim=0) / total + _LEAST_VARIANCE


class TASCOptions(MethodOptions):
    """Hyper-parameters of the first stage of TASC, with the values of the authors' code as defaults."""

    n_candidates: int = Field(100, ge=2, le=10_000, description="Classes from which the search starts.")
    search_temperature: float = Field(0.01, ge=1e-3, le=10, description="Of the predictions in the search.")
    diversity_weight: float = Field(0.6, ge=0, le=100, description="Of the diversity of the predictions.")
    certain: float = Field(0.3, ge=0, le=1, description="A source class that matches a cluster this clearly stays.")
    match_temperature: float = Field(0.02, ge=1e-3, le=10, description="Of the match of classes, and of predictions.")
    rounds: int = Field(20, ge=1, le=1000, description="Largest number of rounds of the search.")


class TASC(Calibrated):
    """Find the classes of the target among the source classes and its clusters, and decide by the UniMS score.

    The networks and the treatment of a trained backbone are those of `Calibrated`; its temperature is the fixed one of
    the predictions.

    Attributes:
        found: unit rows of the classes that the search found, (n_candidates, n_features), the first ones in use.
        entropies: how evenly each source class matches the found ones, (n_classes,).
        found_entropies: how evenly each found class matches the source classes, (n_candidates,); -1 if not in use.
        limits: smallest and largest UniMS of the target, and the threshold between 0 and 1, (3,), float64.
    """

    options: TASCOptions  # type: ignore[assignment]
    found: Tensor
    entropies: Tensor
    found_entropies: Tensor
    limits: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: TASCOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(
            in_features, n_classes, settings, CalibratedOptions(n_halves=1, follows_target=False), backbone
        )
        self.options = options
        size = max(options.n_candidates, n_classes + 2)
        self.register_buffer("found", torch.zeros(size, in_features))
        self.register_buffer("entropies", torch.zeros(n_classes))
        self.register_buffer("found_entropies", torch.full((size,), -1.0))
        self.register_buffer("limits", torch.zeros(3, dtype=torch.float64))

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Search the classes of the target, and fit the threshold to its scores."""
        options, n_classes = self.options, len(self.prototypes)
        assert final.class_sums is not None
        means = F.normalize(final.class_sums.sums.sum(dim=0), dim=1).float()
        if self._given is not None:
            # Texts lie around another centre, and the clusters of the target are compared with them.
            centre = means.mean(dim=0)
            means = centre + self._given.blended(means - centre, torch.eye(means.shape[1]))
        self.prototypes.copy_(F.normalize(means, dim=1))
        target = F.normalize(final.whole_target().float(), dim=1)
        rows = target[torch.randperm(len(target), generator=final.generator)[:_MOST_ROWS].sort().values]
        seed = int(torch.randint(2**31, (), generator=final.generator))
        n_clusters = min(len(self.found) - n_classes, max(2, len(rows) // _FEWEST_ROWS_OF_CLUSTER), len(rows))
        centres = torch.from_numpy(spherical_kmeans(rows.numpy(), n_clusters, seed=seed, restarts=1).centres)
        candidates = torch.cat([self.prototypes, centres])
        kept = search_classes(
            rows,
            candidates,
            n_classes,
            temperature=options.search_temperature,
            diversity_weight=options.diversity_weight,
            certain=options.certain,
            rounds=options.rounds,
        )
        found = candidates[kept]
        cosines = self.prototypes @ found.t() / options.match_temperature
        self.found.zero_()[: len(found)] = found
        self.entropies.copy_(normalised_entropy(cosines))
        self.found_entropies.fill_(-1)[: len(found)] = normalised_entropy(cosines.t())
        self.temperature.fill_(options.match_temperature)
        score = self.unscaled_score(target)
        low, high = float(score.min()), float(score.max())
        shared, n_found = int(kept[:n_classes].sum()), len(found)
        # A mixture of one part has no boundary.
        share = min(max(shared, 1), n_found - 1) / n_found if n_found > 1 else 0.5
        relative = (score - low) / max(high - low, 1e-12)
        threshold = TwoNormals.fit(relative, share).threshold()
        self.limits.copy_(torch.tensor([low, high, min(max(threshold, 1e-6), 1 - 1e-6)]))

    def unscaled_score(self, features: Tensor) -> Tensor:
        """Return UniMS, (n,), of features of any scale (n, d)."""
        rows = F.normalize(features.float(), dim=1)
        used = self.found_entropies >= 0
        # No cosine is as small as that of a place that is not in use.
        found = torch.where(used, rows @ self.found.t(), -2.0)
        weights = torch.where(used, self.found_entropies, 1.0)
        return matching_score(rows @ self.prototypes.t(), found, self.entropies, weights)

    def decide(self, features: Tensor) -> Decision:
        """Decide for the nearest prototype; unknown iff UniMS, scaled over the target, is below the threshold."""
        with torch.no_grad():
            low, high, threshold = self.limits
            score = (self.unscaled_score(features).double() - low) / (high - low).clamp_min(1e-12)
            return Decision.of((self.cosines(features) / self.temperature).softmax(dim=1), score, threshold)


INFO = MethodInfo(
    name="tasc",
    title="TASC (first stage)",
    source="He et al., Target Semantics Clustering via Text Representations for Robust Universal Domain Adaptation, "
    "AAAI 2025, its first stage and its score",
    rule="unknown if it fits a cluster without a matching class better than a class with a matching cluster, by a "
    "threshold between two normal distributions of the scores",
    build=TASC,
    options=TASCOptions,
    is_closed_form=True,
    idle=frozenset({"queue_size", "store_target", "feature_size"}),
)
