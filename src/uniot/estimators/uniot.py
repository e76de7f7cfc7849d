"""UniOT, the paper's method, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np

from uniot.config import Settings
from uniot.estimators.base import PREFERENCES, UniDAEstimator, check_acting, stored_values
from uniot.methods.registry import hyperparameters
from uniot.training.history import ExperimentLogger
from uniot.training.samples import Augment


class UniOT(UniDAEstimator):
    """UniOT as published: optimal transport to common classes, and to clusters of the target.

    Args:
        steps: training steps; derived from the target's size if None.
        batch_size: samples per domain and step.
        queue_size: target features in the queue; derived from the target's size if None.
        hidden_size: width of the projection's hidden layer.
        feature_size: width of a feature.
        input_norm: norm that embeddings are scaled to; for network="none".
        n_clusters: cluster prototypes K; derived from the target's size if None.
        temperature: τ, which divides cosines.
        adaptation_weight: λ, weight of both target losses.
        similarity_threshold: γ, rough threshold between positive and negative rows in adaptive filling.
        class_mass_momentum: μ, momentum of the class mass β.
        epsilon: ε, weight of the entropy in unbalanced transport.
        marginal_penalty: κ, penalty on its marginals.
        balanced_epsilon: weight of the entropy in balanced transport.
        balanced_iterations: scaling iterations of balanced transport.
        detection_start: step after which common-class detection trains.
        learning_rate: initial rate of new layers; 0.01 if None.
        backbone_learning_rate: initial rate of the network; a tenth of the other if None.
        momentum: of stochastic gradient descent.
        weight_decay: of stochastic gradient descent.
        network: "none" for embeddings; "small-cnn" trains a network on grey images with values from 0 to 1.
        augmentation: callable (images, generator) -> images, (n_samples, height, width), for its labelled images.
        n_private_classes: number of private groups; estimated if None.
        private_prior: fraction of the target to reject, from 0 to 1; the method decides if None.
        prefer: "known" halves the fraction that is rejected, "unknown" the other one; excludes `private_prior`.
        unknown_label: label of rejected samples; "unknown" for text classes and -1 for integers if None.
        checkpoint_every: steps between checkpoints, if `fit` has a run folder.
        logger: object with `log_hyperparams`, `log_metrics` and `finalize`, such as lightning fabric's.
        random_state: integer, `RandomState`, or None for another result each time.

    References:
        Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS, arXiv:2210.17067.
    """

    method = "uniot"

    def __init__(
        self,
        *,
        steps: int | None = None,
        batch_size: int = 36,
        queue_size: int | None = None,
        hidden_size: int = 2048,
        feature_size: int = 256,
        input_norm: float = 30.0,
        n_clusters: int | None = None,
        temperature: float = 0.1,
        adaptation_weight: float = 0.1,
        similarity_threshold: float = 0.7,
        class_mass_momentum: float = 0.7,
        epsilon: float = 0.01,
        marginal_penalty: float = 0.5,
        balanced_epsilon: float = 0.05,
        balanced_iterations: int = 3,
        detection_start: int = 100,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        network: str = "none",
        backbone_learning_rate: float | None = None,
        augmentation: Augment | None = None,
        n_private_classes: int | None = None,
        private_prior: float | None = None,
        prefer: str | None = None,
        unknown_label: str | int | None = None,
        checkpoint_every: int = 100,
        logger: ExperimentLogger | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.steps = steps
        self.batch_size = batch_size
        self.queue_size = queue_size
        self.hidden_size = hidden_size
        self.feature_size = feature_size
        self.input_norm = input_norm
        self.n_clusters = n_clusters
        self.temperature = temperature
        self.adaptation_weight = adaptation_weight
        self.similarity_threshold = similarity_threshold
        self.class_mass_momentum = class_mass_momentum
        self.epsilon = epsilon
        self.marginal_penalty = marginal_penalty
        self.balanced_epsilon = balanced_epsilon
        self.balanced_iterations = balanced_iterations
        self.detection_start = detection_start
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.network = network
        self.backbone_learning_rate = backbone_learning_rate
        self.augmentation = augmentation
        self.n_private_classes = n_private_classes
        self.private_prior = private_prior
        self.prefer = prefer
        self.unknown_label = unknown_label
        self.checkpoint_every = checkpoint_every
        self.logger = logger
        self.random_state = random_state

    def _settings(self) -> Settings:
        return self._checked_settings(self._hyperparameters(), self.network)

    def _hyperparameters(self) -> dict[str, Any]:
        """Return the values of the hyper-parameters that act; raise SettingsError if another one was changed."""
        absent = ("backbone_learning_rate", "augmentation") if self.network == "none" else ("input_norm",)
        defaults = UniOT()
        changed = [name for name in absent if getattr(self, name) != getattr(defaults, name)]
        return {name: getattr(self, name) for name in check_acting(self.method, self.network, changed)}

    @property
    def _experiment_logger(self) -> ExperimentLogger | None:
        return self.logger

    @property
    def _augment(self) -> Augment | None:
        return self.augmentation

    @classmethod
    def _parameters_of(cls, settings: Settings) -> dict[str, Any]:
        acting = hyperparameters(cls.method, settings.network)
        return stored_values(settings, ("network", *PREFERENCES, *acting), cls.method)
