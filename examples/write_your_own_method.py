"""A method of your own: target predictions become surer above a border and less sure below it, and it finds the border.

python examples/write_your_own_method.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from uniot import UniOT
from uniot.data.toy import make_toy_domains
from uniot.evaluation import evaluate
from uniot.losses.entropy import normalised_entropy
from uniot.methods import Batch, Losses, MethodInfo, MethodOptions, register
from uniot.methods.head_method import HeadMethod
from uniot.transport import Shards


class OtsuOptions(MethodOptions):
    """Hyper-parameters that other methods do not have."""

    entropy_weight: float = Field(0.2, ge=0, le=100, description="λ, weight of the target's entropies.")


class Otsu(HeadMethod):
    """Entropy separation at Otsu's border; networks, score and decision are those of `HeadMethod`."""

    options: OtsuOptions

    def step(self, batch: Batch) -> Losses:
        """L = CE(y, C(f_s)) + λ mean(±H(C(f_t)) / log C): plus from the batch's border on, minus below it."""
        source, target = self.batch_features(batch)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        entropy = normalised_entropy(self.classifier(target))
        score = 1 - entropy.detach()
        separation = torch.where(score >= otsu_border(score.histc(64, 0, 1)), entropy, -entropy).mean()
        total = classification + self.options.entropy_weight * separation
        return Losses(total, {"source": classification, "separation": separation})

    @torch.no_grad()
    def conclude(self, features: Tensor, generator: torch.Generator, shards: Shards | None = None) -> None:
        """The border that decides is that of the whole target, of which each process may hold a part."""
        counts = self.score(features).histc(64, 0, 1)
        self.border = otsu_border(counts if shards is None else shards.add(counts))

    def rule_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"border": self.border}

    def load_rule_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        self.border = about["border"]


def otsu_border(counts: Tensor) -> float:
    """Where to cut a histogram from 0 to 1 into the two groups whose means differ most (Otsu, 1979)."""
    shares = counts.double() / counts.sum()
    values = (torch.arange(len(counts)).to(shares) + 0.5) / len(counts)
    below, sum_below = shares.cumsum(0)[:-1], (shares * values).cumsum(0)[:-1]
    between = (below * (shares @ values) - sum_below) ** 2 / (below * (1 - below)).clamp_min(1e-12)
    # Every cut through an empty stretch is as good: take the middle of it.
    best = torch.nonzero(between >= between.max() * (1 - 1e-9))
    return float(best.double().mean() + 1) / len(counts)


rule = "unknown where 1 - H(p) / log C is below Otsu's border"
register(MethodInfo("otsu", "Otsu", "Otsu, 1979, and this file", rule, build=Otsu, options=OtsuOptions))


def main() -> None:
    """Three methods on the same toy domains."""
    toy = make_toy_domains(6, 4, 4, spread=0.8, shift=0.8)
    names = ("h_score", "common_accuracy", "unknown_recall", "auroc")
    print("           ", *(f"{name:>15}" for name in names))
    for method in ("source-only", "otsu", "uniot"):
        # The number of private groups changes no score here, and counting them takes a while.
        model = UniOT(method=method, random_state=0, steps=150, hidden_size=64, feature_size=32, n_private_classes=4)
        model.fit(toy.x_source, toy.y_source, toy.x_target)
        # The truth is used to score, after everything is done.
        known = model.known_score(toy.x_target)
        scores = evaluate(toy.oracle_y_target, model.labels_, source_classes=model.classes_, known_score=known)
        print(f"{method:11}", *(f"{100 * scores.to_dict()[name]:15.1f}" for name in names))


if __name__ == "__main__":
    main()
