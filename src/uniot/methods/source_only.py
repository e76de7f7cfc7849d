"""A classifier that has seen the source alone: what every adaptation is measured against (the paper's ResNet row)."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions


class SourceOnlyOptions(MethodOptions):
    """Whether there is a rule at all."""

    says_unknown: bool = Field(True, description="Whether a sample may be unknown; otherwise each gets a class.")


class SourceOnly(HeadMethod):
    """Cross-entropy on the source; unknown where the entropy of a prediction is above half of its maximum."""

    options: SourceOnlyOptions

    def score(self, features: Tensor) -> Tensor:
        """One less the normalised entropy; never below the border where nothing is to be unknown."""
        score = super().score(features)
        return score if self.options.says_unknown else score.clamp_min(self.border)

    def step(self, batch: Batch) -> Losses:
        """L = CE(y, C(f(x))) over the source."""
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
