"""The base of the compared methods: a bottleneck, a classifier and a score of known against unknown."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import normalised_entropy
from uniot.methods.base import Batch, Method, MethodOptions
from uniot.methods.decision import Decision


class HeadMethod(Method):
    """A bottleneck and a linear classifier on embeddings; a subclass implements `step`, and `score` if it has its own.

    Attributes:
        bottleneck: maps embeddings to features.
        classifier: maps features to logits.
        options: hyper-parameters of the method.
        threshold: samples with a lower score are unknown; float64 scalar. It is not in the state_dict: a method that
            fits it registers a buffer of the same name.
    """

    threshold: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: MethodOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        """Build the method with random weights.

        Args:
            in_features: width of an embedding, or of the backbone's output.
            n_classes: number of source classes.
            settings: resolved settings.
            options: hyper-parameters of the method.
            backbone: maps inputs to embeddings; None if the inputs are embeddings.
        """
        super().__init__()
        self.backbone = backbone or nn.Identity()
        self.bottleneck: nn.Module = nn.Linear(in_features, settings.feature_size)
        self.classifier: nn.Module = nn.Linear(settings.feature_size, n_classes)
        self.n_classes = n_classes
        self.settings = settings
        self.options = options
        self.register_buffer("threshold", torch.tensor(0.5, dtype=torch.float64), persistent=False)

    @property
    def steps(self) -> int:
        """Return the number of training steps of the run."""
        assert self.settings.steps is not None
        return self.settings.steps

    @property
    def queue_size(self) -> int:
        """Return the largest number of samples in a memory."""
        assert self.settings.queue_size is not None
        return self.settings.queue_size

    def features(self, inputs: Tensor) -> Tensor:
        """Return the features of inputs, (n_samples, feature_size)."""
        return self.embedding_features(self.backbone(inputs))

    def embedding_features(self, embeddings: Tensor) -> Tensor:
        """Return the bottleneck's output, (n_samples, feature_size), of embeddings (n_samples, d)."""
        features: Tensor = self.bottleneck(embeddings)
        return features

    def batch_features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the features of the whole source batch and of the whole target batch, over all processes."""
        own = self.embedding_features(self.batch_embeddings(batch)).float()
        source, target = own.split([len(batch.source), len(batch.target)])
        return batch.gather(source), batch.gather(target)

    def score(self, features: Tensor) -> Tensor:
        """Return a score from 0 (unknown) to 1 (known) per sample, (n_samples,): here 1 - H(p) / log C.

        With the threshold of one half, a sample is unknown iff H(p) > log(C) / 2.
        """
        return 1 - normalised_entropy(self.classifier(features))

    def decide(self, features: Tensor) -> Decision:
        """Decide for the class of the largest logit; known if the score is not below the threshold."""
        with torch.no_grad():
            return Decision.of(self.classifier(features).softmax(dim=1), self.score(features), self.threshold)


class NormalisedHeadMethod(HeadMethod):
    """The same with batch normalisation after the bottleneck.

    Attributes:
        norm: the normalisation; prediction uses its running statistics.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: MethodOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.norm = nn.BatchNorm1d(settings.feature_size)

    def project(self, embeddings: Tensor, *, learning: bool) -> Tensor:
        """Return features, (n, feature_size), of embeddings (n, d).

        Args:
            embeddings: output of the backbone.
            learning: whether to normalise with the statistics of these rows instead of the running ones.
        """
        norm, rows = self.norm, self.bottleneck(embeddings).float()
        learning = learning and len(rows) > 1  # the variance of a single row is undefined
        return F.batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, learning)

    def embedding_features(self, embeddings: Tensor) -> Tensor:
        """Return features, (n, feature_size), of embeddings (n, d)."""
        return self.project(embeddings, learning=False)
