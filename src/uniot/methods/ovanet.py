"""Reject by one binary classifier per class, trained on hard negatives (OVANet).

References:
    Saito and Saenko, OVANet: One-vs-All Network for Universal Domain Adaptation, ICCV 2021, arXiv:2104.03344.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import Prototypes, one_vs_all_entropy, one_vs_all_loss, one_vs_all_probabilities
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod


class OVANetOptions(MethodOptions):
    """Hyper-parameters of OVANet, with the published values as defaults."""

    one_vs_all_weight: float = Field(
        0.5, ge=0, le=1e3, description="Weight of the one-vs-all loss of the source, which is the sum of its two means."
    )
    entropy_weight: float = Field(
        0.1, ge=0, le=1e3, description="λ, weight of the entropy of the one-vs-all classifiers on the target."
    )


class OVANet(HeadMethod):
    """Adapt by a closed-set classifier that predicts the class and a one-vs-all classifier that accepts or rejects it.

    As in the authors' code, both take the output of the backbone, without a bottleneck (on embeddings they are all that
    is trained), have no bias, and do not normalise the features; the rows of the one-vs-all classifiers have unit norm.

    Attributes:
        one_vs_all: 2c rows, c for "not of this class" and then c for "of this class".
    """

    options: OVANetOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: OVANetOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.bottleneck = nn.Identity()
        self.classifier = nn.Linear(in_features, n_classes, bias=False)
        self.one_vs_all = Prototypes(2 * n_classes, in_features)

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, C₁(f_s)) + ½ (L_pos + L_neg) + λ L_ent.

        L_pos = mean(-log p_y) and L_neg = mean(max over k ≠ y of -log(1 - p_k)) over the source, where p_k is the
        probability of class k by its classifier; L_ent is the mean entropy of the c classifiers on the target. The
        factor ½ is that of the authors' code. Paper: Saito and Saenko, OVANet, ICCV 2021, section 3.
        """
        source, target = self.batch_features(batch)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        claimed, refused = one_vs_all_loss(self.one_vs_all_logits(source), batch.source_labels)
        entropy = one_vs_all_entropy(self.one_vs_all_logits(target))
        one_vs_all = claimed + refused
        return Losses(
            total=classification + self.options.one_vs_all_weight * one_vs_all + self.options.entropy_weight * entropy,
            parts={"source": classification, "one_vs_all": one_vs_all, "entropy": entropy},
        )

    @torch.no_grad()
    def after_step(self) -> None:
        """Normalise the rows of the one-vs-all classifiers to unit norm."""
        self.one_vs_all.renormalise()

    def score(self, features: Tensor) -> Tensor:
        """Return the one-vs-all probability of the predicted class per sample, (n,). Paper: section 3, inference.

        Args:
            features: (n, d).
        """
        nearest = self.classifier(features).argmax(dim=1, keepdim=True)
        return one_vs_all_probabilities(self.one_vs_all_logits(features).double()).gather(1, nearest).squeeze(1)

    def one_vs_all_logits(self, features: Tensor) -> Tensor:
        """Return the logits of the one-vs-all classifiers, (n, 2, c), of features (n, d)."""
        logits: Tensor = self.one_vs_all(features)
        return logits.view(-1, 2, self.n_classes)


INFO = MethodInfo(
    name="ovanet",
    title="OVANet",
    source="Saito and Saenko, OVANet: One-vs-All Network for Universal Domain Adaptation, ICCV 2021",
    rule="unknown where the one-vs-all classifier of the nearest class gives less than one half",
    build=OVANet,
    options=OVANetOptions,
)
