"""Train a classifier on the source alone: the baseline of every adaptation method (the paper's ResNet row)."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod


class SourceOnlyOptions(MethodOptions):
    """Hyper-parameters of the baseline."""

    says_unknown: bool = Field(True, description="Whether a sample may be unknown; otherwise each gets a class.")


class SourceOnly(HeadMethod):
    """Train by cross-entropy on the source; unknown if the entropy of a prediction is above half of its maximum."""

    options: SourceOnlyOptions

    def score(self, features: Tensor) -> Tensor:
        """Return 1 - normalised entropy per sample, (n,); at least the threshold if nothing may be unknown.

        Args:
            features: (n, d).
        """
        score = super().score(features)
        return score if self.options.says_unknown else score.clamp_min(self.threshold)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step: L = CE(y, C(f(x))) over the source."""
        source, _ = self.batch_features(batch)
        loss = F.cross_entropy(self.classifier(source), batch.source_labels)
        return Losses(loss, {"source": loss})


INFO = MethodInfo(
    name="source-only",
    title="Source only",
    source="a classifier trained on the source, without adaptation",
    rule="unknown where the entropy of the prediction exceeds half of log C",
    build=SourceOnly,
    options=SourceOnlyOptions,
)
