"""OSBP: open-set adaptation by backpropagation, through a further class for unknown (Saito et al., ECCV 2018)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.errors import SettingsError
from uniot.losses.adversarial import reversed_gradient
from uniot.losses.unknown_boundary import unknown_boundary_loss
from uniot.methods.decision import Decision
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks.dropout import dropped
from uniot.settings import Settings


class OSBPOptions(MethodOptions):
    """Published values of OSBP."""

    boundary: float = Field(
        0.5, gt=0, lt=1, description="t, the probability of unknown that the classifier gives the target."
    )
    adversarial_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the loss of that boundary.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Share of the generator's values that a step leaves out.")


class OSBP(HeadMethod):
    """The classifier puts the target on the boundary of unknown; the generator pushes each sample off it, to a side.

    The generator is the bottleneck: two linear layers with batch norm, ReLU and dropout, as in the authors' code and in
    the Transfer-Learning-Library, of the library's width. In training source and target are normalised apart;
    predictions use the running means over both.
    """

    options: OSBPOptions

    bottleneck: _Generator

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: OSBPOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        if settings.batch_size < 2:
            raise SettingsError("osbp normalises over a batch, and batch_size is 1. Set batch_size to 2 or more.")
        self.bottleneck = _Generator(in_features, settings.feature_size, options.dropout)
        self.classifier = nn.Linear(settings.feature_size, n_classes + 1)

    def step(self, batch: Batch) -> Losses:
        """L = CE(y, C(G(x_s))) + L_adv, the gradient of L_adv reversed between C and G.

        L_adv = mean(-t log p(unknown | x_t) - (1 - t) log(1 - p(unknown | x_t))): C minimises it, G maximises it.
        Paper: Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018, section 3.
        """
        source, target = self.batch_features(batch)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        boundary = unknown_boundary_loss(self.classifier(reversed_gradient(target)), self.options.boundary)
        return Losses(
            total=classification + self.options.adversarial_weight * boundary,
            parts={"source": classification, "boundary": boundary},
        )

    def batch_features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Features of the whole source batch and of the whole target batch, with dropout."""
        own = self.backbone(torch.cat([batch.source, batch.target])).float()
        # Gathered before the generator: batch norm must see the whole batch of a domain, whichever process made it.
        source, target = (batch.gather(part) for part in own.split([len(batch.source), len(batch.target)]))
        return self.bottleneck(source, batch.generator), self.bottleneck(target, batch.generator)

    def decide(self, features: Tensor) -> Decision:
        """Unknown where the further class has the largest logit. Paper: section 3."""
        with torch.no_grad():
            logits = self.classifier(features)
            known = logits[:, :-1]
            # Against unknown alone: one half where the nearest class and unknown are as likely as each other.
            score = (known.amax(dim=1) - logits[:, -1]).double().sigmoid()
            return Decision.of(known.softmax(dim=1), score, self.border)


class _Generator(nn.Module):
    """Two linear layers, each with batch norm, ReLU and dropout."""

    def __init__(self, in_features: int, feature_size: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, feature_size)
        self.first_norm = nn.BatchNorm1d(feature_size)
        self.second = nn.Linear(feature_size, feature_size)
        self.second_norm = nn.BatchNorm1d(feature_size)
        self.dropout = dropout

    def forward(self, embeddings: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Features (n, d) of embeddings; `generator`: of the dropout's masks, nothing is dropped without one."""
        hidden = dropped(F.relu(self.first_norm(self.first(embeddings))), self.dropout, generator)
        return dropped(F.relu(self.second_norm(self.second(hidden))), self.dropout, generator)


INFO = MethodInfo(
    name="osbp",
    title="OSBP",
    source="Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018",
    rule="unknown where the further class of the classifier is the likeliest",
    build=OSBP,
    options=OSBPOptions,
    learning_rate=0.001,
)
