"""Adapt the classifier by a residual and the features by their maximum mean discrepancy (RTN).

References:
    Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016, arXiv:1602.04433.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import entropy, fused_distances, maximum_mean_discrepancy, reversal_strength
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod

# Small initial weights of the residual make both classifiers nearly equal at the start.
_RESIDUAL_SCALE = 0.01


class RTNOptions(MethodOptions):
    """Hyper-parameters of RTN."""

    discrepancy_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the discrepancy between the domains.")
    entropy_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the entropy of target predictions.")
    entropy_ramp: float = Field(
        0.1, gt=0, le=1, description="Share of the run in which the weight of the entropy rises from zero."
    )
    n_kernels: int = Field(5, ge=1, le=100, description="Gaussian kernels that are summed in the discrepancy.")
    kernel_factor: float = Field(2.0, gt=1, le=100, description="Between the bandwidths of two neighbouring kernels.")


class RTN(HeadMethod):
    """Adapt by a target classifier, which decides; the source classifier is the target classifier plus a residual.

    The authors' bottleneck has a width of 128 and a ReLU.

    Paper: Long et al., NeurIPS 2016, section 3.
    """

    options: RTNOptions

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: RTNOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.residual = nn.Sequential(_small_layer(n_classes), nn.ReLU(), _small_layer(n_classes))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, c(f_s) + r(c(f_s))) + MMD²(f_s ⊗ c(f_s), f_t ⊗ c(f_t)) + 0.1 ρ mean H(c(f_t)).

        c is the target classifier, r the residual; ρ rises from 0 to 1 as 2 / (1 + exp(-10 p)) - 1 in the first tenth
        of the run (published: in 2000 of 20 000 steps). The discrepancy is computed over all pairs, while the published
        code draws some at random, and on whole outer products, which it pools 2 × 2.
        """
        source, target = self.batch_features(batch)
        logits, target_logits = self.classifier(source), self.classifier(target)
        classification = F.cross_entropy(logits + self.residual(logits), batch.source_labels)
        discrepancy = self.discrepancy(torch.cat([source, target]), torch.cat([logits, target_logits]), len(source))
        uncertainty = entropy(target_logits).mean()
        ramp = reversal_strength(batch.step, self.options.entropy_ramp * self.steps)
        total = (
            classification
            + self.options.discrepancy_weight * discrepancy
            + self.options.entropy_weight * ramp * uncertainty
        )
        return Losses(total, {"source": classification, "discrepancy": discrepancy, "entropy": uncertainty})

    def discrepancy(self, features: Tensor, logits: Tensor, n_source: int) -> Tensor:
        """Return MMD² between the domains on fused features and logits, a scalar. Paper: section 3.1.

        Args:
            features: of both domains, source first, (n, d).
            logits: of both domains, (n, c).
            n_source: number of source rows.
        """
        distances = fused_distances(features, logits)
        return maximum_mean_discrepancy(distances, n_source, self.options.n_kernels, self.options.kernel_factor)


def _small_layer(size: int) -> nn.Linear:
    layer = nn.Linear(size, size)
    nn.init.normal_(layer.weight, std=_RESIDUAL_SCALE)
    nn.init.zeros_(layer.bias)
    return layer


INFO = MethodInfo(
    name="rtn",
    title="RTN",
    source="Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016",
    rule="unknown where the entropy of the prediction exceeds half of log C; RTN itself has no rule",
    build=RTN,
    options=RTNOptions,
)
