"""A classifier that has seen the source alone: what every adaptation is measured against (the paper's ResNet row)."""

from __future__ import annotations

import torch.nn.functional as F

from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo


class SourceOnly(HeadMethod):
    """Cross-entropy on the source; unknown where the entropy of a prediction is above half of its maximum."""

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
)
