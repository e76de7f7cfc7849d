"""Reject as much of the target as possible while the source is not rejected (CoLOR).

References:
    Chaudhari et al., Open-Set Domain Adaptation Under Background Distribution Shift: Challenges and A Provably
    Efficient Solution, TMLR 2025, arXiv:2512.01152.
    Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, arXiv:1412.6980.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import false_rejection_losses, rejection_lagrangian, rejection_rates
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.decision import Decision
from uniot.methods.head import HeadMethod
from uniot.methods.networks import dropped

_MEAN_RATE, _SQUARE_RATE = 0.9, 0.999  # of Adam


def chosen_head(source_rates: Tensor, target_rates: Tensor, most_false: float) -> int:
    """Return the head that rejects most of the target among those that reject at most `most_false` of the source.

    If none does, it is the head that rejects least of the source.

    Args:
        source_rates: fraction of the source that each head rejects, (h,).
        target_rates: fraction of the target that it rejects, (h,).
        most_false: β.
    """
    allowed = source_rates <= most_false
    if not bool(allowed.any()):
        return int(source_rates.argmin())
    return int(target_rates.masked_fill(~allowed, -1).argmax())


class CoLOROptions(MethodOptions):
    """Hyper-parameters of CoLOR, with the values of the authors' code as defaults."""

    least_rate: float = Field(0.02, gt=0, lt=1, description="α of the first head, which rejects at least this much.")
    largest_rate: float = Field(0.45, gt=0, lt=1, description="α of the last head; those between are evenly spaced.")
    n_heads: int = Field(10, ge=1, le=1000, description="Number of heads that reject.")
    most_false: float = Field(0.005, ge=0, lt=1, description="β, largest fraction of the source that is rejected.")
    sharpness: float = Field(2.0, gt=0, le=100, description="Of the differentiable fraction of rejected samples.")
    multiplier_rate: float = Field(0.02, gt=0, le=10, description="Learning rate of the multipliers λ.")
    penalty: float = Field(0.01, ge=0, le=10, description="Weight of the sum of squares of all weights, per head.")
    dropout: float = Field(0.2, ge=0, lt=1, description="Of the embeddings and of the features.")


class CoLOR(HeadMethod):
    """Ten heads reject a growing fraction α of the target; the best that spares the source is chosen at the end.

    Each head minimises the loss of rejecting the source such that it rejects at least α of the target. The multipliers
    of these constraints are trained too, upwards. A classifier on the same features is trained on the source.

    Attributes:
        heads: maps features to the log-odds of a rejection by each head.
        multipliers: λ, not negative, (n_heads,).
        moments: Adam's mean gradient and mean squared gradient of the multipliers, (2, n_heads).
        least_rates: α of each head, (n_heads,).
        chosen: head that decides, a scalar; -1 before `finalize`.
    """

    options: CoLOROptions
    classifier: nn.Linear
    multipliers: Tensor
    moments: Tensor
    least_rates: Tensor
    chosen: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: CoLOROptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.heads = nn.Linear(settings.feature_size, options.n_heads)
        self.register_buffer("multipliers", torch.ones(options.n_heads))
        self.register_buffer("moments", torch.zeros(2, options.n_heads))
        rates = torch.linspace(options.least_rate, max(options.least_rate, options.largest_rate), options.n_heads)
        self.register_buffer("least_rates", rates, persistent=False)
        self.register_buffer("chosen", torch.tensor(-1))

    def features(self, inputs: Tensor) -> Tensor:
        """Return the features, (n_samples, feature_size)."""
        return F.relu(self.bottleneck(self.backbone(inputs)))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step, and move the multipliers.

        L = Σ_h CE(not rejected, head h of f_s) + λ_h (α_h - rate_h of f_t) + CE(y, C(f_s)) + penalty ‖θ‖²
        """
        own = self.batch_embeddings(batch).float()
        source_rows, target_rows = map(batch.gather, own.split([len(batch.source), len(batch.target)]))
        rows = dropped(torch.cat([source_rows, target_rows]), self.options.dropout, batch.generator)
        both = dropped(F.relu(self.bottleneck(rows)), self.options.dropout, batch.generator)
        source, target = both.split([len(source_rows), len(target_rows)])
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        false = false_rejection_losses(self.heads(source))
        hard, soft = rejection_rates(self.heads(target), self.options.sharpness)
        # A copy: the multipliers move before the gradients are computed.
        lagrangian = rejection_lagrangian(false, soft, self.least_rates, self.multipliers.clone())
        new = (*self.bottleneck.parameters(), *self.classifier.parameters(), *self.heads.parameters())
        squares = torch.stack([weight.square().sum() for weight in new]).sum()
        # The authors' loss is a sum over heads of a vector to which both of these are added.
        total = lagrangian + self.options.n_heads * (classification + self.options.penalty * squares)
        violation = self.least_rates - hard.detach()
        self.move_multipliers(violation, batch.step)
        return Losses(
            total=total / self.options.n_heads,
            parts={"source": classification, "false_rejection": false.mean(), "violation": violation.mean()},
            notes={"multiplier": float(self.multipliers.mean())},
        )

    @torch.no_grad()
    def move_multipliers(self, violation: Tensor, step: int) -> None:
        """Raise the multipliers of violated constraints and lower the others, by a step of Adam; none is negative.

        Args:
            violation: α minus the fraction that is rejected, (n_heads,).
            step: number of steps before this one.
        """
        mean, square = self.moments
        mean.mul_(_MEAN_RATE).add_((1 - _MEAN_RATE) * violation)
        square.mul_(_SQUARE_RATE).add_((1 - _SQUARE_RATE) * violation.square())
        unbiased = mean / (1 - _MEAN_RATE ** (step + 1))
        scale = (square / (1 - _SQUARE_RATE ** (step + 1))).sqrt() + 1e-8
        self.multipliers.add_(self.options.multiplier_rate * unbiased / scale).clamp_min_(0)

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Choose the head that decides."""
        of_source, of_target = (rejection_rates(self.heads(rows))[0] for rows in (final.source, final.whole_target()))
        self.chosen.fill_(chosen_head(of_source, of_target, self.options.most_false))

    def is_finalized(self) -> bool:
        """Whether a head is chosen."""
        return bool(self.chosen >= 0)

    def score(self, features: Tensor) -> Tensor:
        """Return the probability that the chosen head does not reject, (n_samples,)."""
        log_odds: Tensor = self.heads(features)
        return (-log_odds.index_select(1, self.chosen.view(1).clamp_min(0))[:, 0]).sigmoid()

    def decide(self, features: Tensor) -> Decision:
        """Decide for the class of the largest logit; unknown iff the chosen head rejects."""
        with torch.no_grad():
            return Decision.of(self.classifier(features).softmax(dim=1), self.score(features), self.threshold)


INFO = MethodInfo(
    name="color",
    title="CoLOR",
    source="Chaudhari et al., Open-Set Domain Adaptation Under Background Distribution Shift: Challenges and A "
    "Provably Efficient Solution, TMLR 2025",
    rule="unknown if it is rejected by the head that rejects most of the target among those that reject at most 0.5 % "
    "of the source",
    build=CoLOR,
    options=CoLOROptions,
)
