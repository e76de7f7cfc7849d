"""Separate known from unknown target samples by adversarial training of a class for unknown (OSBP).

References:
    Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018, arXiv:1804.10427.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import reversed_gradient, unknown_boundary_loss
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.decision import Decision
from uniot.methods.head import HeadMethod
from uniot.methods.networks import dropped


class OSBPOptions(MethodOptions):
    """Hyper-parameters of OSBP, with the published values as defaults."""

    boundary: float = Field(
        0.5, gt=0, lt=1, description="t, the probability of unknown that the classifier gives the target."
    )
    adversarial_weight: float = Field(1.0, ge=0, le=1e3, description="Weight of the loss of that boundary.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Share of the generator's values that a step leaves out.")


class OSBP(HeadMethod):
    """Adapt adversarially: the classifier moves p(unknown) of the target to t, the generator moves it away from t.

    The generator is the bottleneck: two linear layers with batch normalisation, ReLU and dropout, as in the authors'
    code and in the Transfer-Learning-Library, with the library's width. In training source and target are normalised
    separately; predictions use the running statistics over both.
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
        """Return the losses of one step.

        L = CE(y, C(G(x_s))) + L_adv, the gradient of L_adv reversed between C and G.

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
        """Return the features of the whole source batch, (b, d), and target batch, (b', d), with dropout."""
        own = self.batch_embeddings(batch).float()
        # Batch normalisation needs the whole batch of a domain, so the processes are joined before the generator.
        source, target = (batch.gather(part) for part in own.split([len(batch.source), len(batch.target)]))
        return self.bottleneck(source, batch.generator), self.bottleneck(target, batch.generator)

    def decide(self, features: Tensor) -> Decision:
        """Decide for the class of the largest logit; unknown if that is the last one. Paper: section 3.

        Args:
            features: (n, d).

        Returns:
            The decision; its score is the probability of the nearest class against unknown alone, (n,).
        """
        with torch.no_grad():
            logits = self.classifier(features)
            known = logits[:, :-1]
            # The score is one half, the threshold, if the nearest class and unknown are equally likely.
            score = (known.amax(dim=1) - logits[:, -1]).double().sigmoid()
            return Decision.of(known.softmax(dim=1), score, self.threshold)


class _Generator(nn.Module):
    """Map embeddings to features by two linear layers, each with batch normalisation, ReLU and dropout."""

    def __init__(self, in_features: int, feature_size: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, feature_size)
        self.first_norm = nn.BatchNorm1d(feature_size)
        self.second = nn.Linear(feature_size, feature_size)
        self.second_norm = nn.BatchNorm1d(feature_size)
        self.dropout = dropout

    def forward(self, embeddings: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the features, (n, d), of embeddings (n, in_features); without a `generator` there is no dropout."""
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
