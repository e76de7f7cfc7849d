"""Add to GLC a contrast between stored neighbours and samples of the batch that are probably of other classes (GLC++).

References:
    Qu et al., GLC++: Source-Free Universal Domain Adaptation through Global-Local Clustering and Contrastive Affinity
    Learning, arXiv:2403.14410.
"""

from __future__ import annotations

import math

from pydantic import Field
from torch import Tensor

from uniot.losses import contrastive_affinity_loss
from uniot.methods.base import MethodInfo
from uniot.methods.glc_clustering import one_vs_all_labels
from uniot.methods.source_free import SourceFreeMethod, SourceFreeOptions, TargetBatch


class GLCPlusOptions(SourceFreeOptions):
    """Hyper-parameters of GLC++, with the values published for Office-31 as defaults."""

    prior: float = Field(
        0.75, ge=0, le=1, description="ρ, least factor of the cosine to a class; 1 trusts every class alike."
    )
    contrast_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the contrastive affinity loss.")


class GLCPlus(SourceFreeMethod):
    """Adapt as GLC does, with contrastive affinity learning. Paper: Qu et al., arXiv:2403.14410.

    L = L_GLC + λ mean(Σ cosines to 4 hard negatives of the batch - Σ cosines to the 4 nearest stored samples). The
    ⌈batch / K⌉ most similar samples of the batch are no negatives, with K the estimated number of target classes.
    """

    options: GLCPlusOptions

    def loss_weights(self) -> dict[str, float]:
        """Return the weight of each loss of stage 2 by its name."""
        return super().loss_weights() | {"contrast": self.options.contrast_weight}

    def target_losses(self, target: TargetBatch) -> dict[str, Tensor]:
        """Return the losses of stage 2 by their names, scalars."""
        n_skipped = math.ceil(len(target.features) / int(self.n_clusters))
        contrast = contrastive_affinity_loss(target.features, target.features.detach(), target.neighbours, n_skipped)
        return super().target_losses(target) | {"contrast": contrast}

    def pseudo_labels(self, features: Tensor, probabilities: Tensor) -> Tensor:
        """Return a pseudo-label per stored sample, `n_classes` for unknown, (n,), as GLC does.

        Args:
            features: unit rows, (n, d).
            probabilities: predictions of the classifier, (n, c).
        """
        return one_vs_all_labels(features, probabilities, int(self.n_clusters), self.options.prior)


INFO = MethodInfo(
    name="glc-plus",
    title="GLC++",
    source="Qu et al., GLC++: Source-Free Universal Domain Adaptation through Global-Local Clustering and Contrastive "
    "Affinity Learning, TPAMI 2025",
    rule="unknown if the entropy of the prediction exceeds 0.55 log C",
    build=GLCPlus,
    options=GLCPlusOptions,
    is_source_free=True,
    idle=frozenset({"store_target"}),
)
