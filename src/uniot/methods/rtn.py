"""RTN: the source's classifier is the target's and a residual; features are aligned by their mean discrepancy."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.losses.adversarial import reversal_strength
from uniot.losses.discrepancy import fused_distances, mean_discrepancy
from uniot.losses.entropy import entropy
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.settings import Settings

# Standard deviation of the residual's first weights: small, so that both classifiers begin as one.
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
    """The classifier is the target's, and decides; the source's is learnt as that and a residual.

    The authors' bottleneck is 128 wide and has a ReLU.

    Paper: Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016, section 3.
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
        """L = CE(y, c(f_s) + r(c(f_s))) + MMD²(f_s ⊗ c(f_s), f_t ⊗ c(f_t)) + 0.1 ρ mean H(c(f_t)).

        c is the target's classifier, r the residual, ρ rises from 0 to 1 as 2 / (1 + exp(-10 p)) - 1 in the first tenth
        of the run (published: in 2000 of 20 000 steps). The discrepancy is over all pairs, where the published code
        draws some at random, and on whole outer products, which it pools 2 × 2.
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
        """Between the domains, of features and logits fused. Paper: section 3.1."""
        distances = fused_distances(features, logits)
        return mean_discrepancy(distances, n_source, self.options.n_kernels, self.options.kernel_factor)


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
