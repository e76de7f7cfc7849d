"""What the compared methods share: a bottleneck, a classifier, and a score that tells known from unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from uniot.losses.entropy import normalised_entropy
from uniot.methods.decision import Decision
from uniot.methods.method import Batch, FeaturesAsTheyAre, Losses, MethodOptions, unchanged
from uniot.settings import Settings
from uniot.transport import Shards


class HeadMethod(FeaturesAsTheyAre, nn.Module):
    """A bottleneck and a linear classifier on embeddings; a subclass gives the losses and the score.

    Attributes:
        backbone: from inputs to embeddings.
        bottleneck: from embeddings to features.
        classifier: from features to logits.
        settings: of the run, resolved.
        options: of the method.
        border: samples whose score is below it are unknown.
    """

    border = 0.5

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: MethodOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone or nn.Identity()
        self.bottleneck: nn.Module = nn.Linear(in_features, settings.feature_size)
        self.classifier: nn.Module = nn.Linear(settings.feature_size, n_classes)
        self.n_classes = n_classes
        self.settings = settings
        self.options = options

    @property
    def steps(self) -> int:
        """Length of the run."""
        assert self.settings.steps is not None
        return self.settings.steps

    @property
    def queue_size(self) -> int:
        """Samples that a memory holds at most."""
        assert self.settings.queue_size is not None
        return self.settings.queue_size

    def features(self, inputs: Tensor) -> Tensor:
        """Inputs to features, (n, d)."""
        features: Tensor = self.bottleneck(self.backbone(inputs))
        return features

    def batch_features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Features of the whole source batch and of the whole target batch, whichever process made them."""
        own = self.features(torch.cat([batch.source, batch.target])).float()
        source, target = own.split([len(batch.source), len(batch.target)])
        return batch.gather(source), batch.gather(target)

    def step(self, batch: Batch) -> Losses:
        """The losses of one step."""
        raise NotImplementedError

    def score(self, features: Tensor) -> Tensor:
        """From 0 to 1 how surely each sample is of a source class, (n,): here one less the normalised entropy.

        With the border of one half, a sample is unknown iff H(p) > log(C) / 2.
        """
        return 1 - normalised_entropy(self.classifier(features))

    def decide(self, features: Tensor) -> Decision:
        """The class of the largest logit; known where the score is not below the border."""
        with torch.no_grad():
            return Decision.of(self.classifier(features).softmax(dim=1), self.score(features), self.border)

    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Nothing has to be seen before the first step."""

    def is_prepared(self) -> bool:
        """Always."""
        return True

    def after_step(self) -> None:
        """Nothing is left to do."""

    def conclude(self, features: Tensor, generator: torch.Generator, shards: Shards | None = None) -> None:
        """The rule is the same whatever the target."""

    def rule_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Nothing but the weights."""
        return {}, {}

    def load_rule_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """There is nothing to load."""

    def forget_samples(self) -> None:
        """No feature of a sample is kept."""

    def class_prototypes(self) -> Tensor | None:
        """There are none."""
        return None

    def cluster_prototypes(self) -> Tensor | None:
        """There are none."""
        return None
