"""A method of your own: entropy separation at a threshold that is fitted to the target.

python examples/write_your_own_method.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.losses import normalised_entropy
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod
from uniot.methods.registry import register
from uniot.metrics.evaluate import evaluate


class OtsuOptions(MethodOptions):
    """Hyper-parameters that other methods do not have."""

    entropy_weight: float = Field(0.2, ge=0, le=100, description="λ, weight of the target's entropies.")


class Otsu(HeadMethod):
    """Entropy separation at Otsu's threshold; networks, score and decision are those of `HeadMethod`."""

    options: OtsuOptions

    def __init__(
        self, in_features: int, n_classes: int, settings: Settings, options: OtsuOptions, backbone: nn.Module | None
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        # A persistent buffer: the fitted threshold is saved with the weights.
        self.register_buffer("threshold", torch.tensor(0.5, dtype=torch.float64))

    def step(self, batch: Batch) -> Losses:
        """L = CE(y, C(f_s)) + λ mean(±H(C(f_t)) / log C): plus at and above the batch's threshold, minus below it."""
        source, target = self.batch_features(batch)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        entropy = normalised_entropy(self.classifier(target))
        score = 1 - entropy.detach()
        separation = torch.where(score >= otsu_threshold(score.histc(64, 0, 1)), entropy, -entropy).mean()
        total = classification + self.options.entropy_weight * separation
        return Losses(total, {"source": classification, "separation": separation})

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Fit the threshold to the whole target, of which each process may hold a part."""
        counts = self.score(final.target).histc(64, 0, 1)
        self.threshold.fill_(otsu_threshold(counts if final.shards is None else final.shards.add(counts)))


def otsu_threshold(counts: Tensor) -> float:
    """Split a histogram from 0 to 1 into the two groups whose means differ most; return the threshold (Otsu, 1979)."""
    fractions = counts.double() / counts.sum()
    values = (torch.arange(len(counts)).to(fractions) + 0.5) / len(counts)
    below, sum_below = fractions.cumsum(0)[:-1], (fractions * values).cumsum(0)[:-1]
    between = (below * (fractions @ values) - sum_below) ** 2 / (below * (1 - below)).clamp_min(1e-12)
    # All thresholds within an empty range are equally good: take their mean.
    best = torch.nonzero(between >= between.max() * (1 - 1e-9))
    return float(best.double().mean() + 1) / len(counts)


rule = "unknown if 1 - H(p) / log C is below Otsu's threshold"
register(MethodInfo("otsu", "Otsu", "Otsu, 1979, and this file", rule, build=Otsu, options=OtsuOptions))


def main() -> None:
    """Compare three methods on the same toy domains."""
    toy = make_toy_domains(6, 4, 4, spread=0.8, shift=0.8)
    names = ("h_score", "common_accuracy", "unknown_recall", "auroc")
    print("           ", *(f"{name:>15}" for name in names))
    for method in ("source-only", "otsu", "uniot"):
        # The number of private groups changes no score here, and counting them takes a while.
        small = {"hidden_size": 64} if method == "uniot" else {}  # a layer that the others do not have
        model = UniDAClassifier(method, random_state=0, steps=150, feature_size=32, n_private_classes=4, **small)
        model.fit(toy.x_source, toy.y_source, toy.x_target)
        # The truth is used to score, after everything is done.
        known = model.known_score(toy.x_target)
        scores = evaluate(toy.oracle_y_target, model.labels_, source_classes=model.classes_, known_score=known)
        print(f"{method:11}", *(f"{100 * scores.to_dict()[name]:15.1f}" for name in names))


if __name__ == "__main__":
    main()
