"""What a run ends with: a trained method with the rule that it decides by, and its answers for the target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uniot.discovery import LabelledFeatures, PrivateGroups
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import DataError
from uniot.methods import Method, UniOTMethod
from uniot.network_features import features_of_inputs, unit_rows
from uniot.prediction import Prediction
from uniot.settings import Settings
from uniot.training import History
from uniot.transport import UnbalancedPotential
from uniot.universal import Reliability


@dataclass(frozen=True)
class AdaptedModel:
    """What a run ends with.

    Attributes:
        method: the trained networks, with the rule that decides about old and new samples alike.
        groups: the private groups of the target.
        absence: from 0 to 1, how surely each source class is absent from the target, (c,).
        classes: source classes, text or integers, (c,).
        unknown: what an unknown sample is called.
        settings: resolved settings.
        input_shape: of one sample.
        target: the answers for the target that was fitted.
        target_features: (n, feature_size), float32.
        source: features and classes of the labelled samples, or of some of them, drawn evenly from the classes.
        history: numbers step by step.
        fingerprint: of data and settings.
        reader: what makes inputs from images; None where the run was made from arrays.
        reliability: estimated accuracy on the target, and warnings; None for a run of an earlier version.
    """

    method: Method
    groups: PrivateGroups
    absence: np.ndarray
    classes: np.ndarray
    unknown: str | int
    settings: Settings
    input_shape: tuple[int, ...]
    target: Prediction
    target_features: np.ndarray
    source: LabelledFeatures
    history: History
    fingerprint: str
    reader: ImageReader | None = None
    reliability: Reliability | None = None

    def predict(self, inputs: Tensor) -> Prediction:
        """Answers for samples, fitted or new, each on its own. An unknown one gets the nearest private group."""
        adapted = self._adapted(inputs)
        decision, features = self.method.decide(adapted), unit_rows(adapted)
        known = decision.known.numpy()
        group = np.full(len(known), -1, dtype=np.int64)
        if self.groups.n_groups:
            group[~known] = self.groups.nearest(features[~known])
        return Prediction(
            nearest=decision.nearest.numpy(),
            known=known,
            confidence=decision.confidence.numpy(),
            group=group,
            group_confidence=self.groups.confidence(features, group),
        )

    def features(self, inputs: Tensor) -> np.ndarray:
        """Adapted features of unit norm, (n, feature_size)."""
        return unit_rows(self._adapted(inputs))

    def probabilities(self, inputs: Tensor) -> np.ndarray:
        """(n, c + 1): the classes in order, then unknown. The largest entry is what `predict` says."""
        return np.asarray(self.method.decide(self._adapted(inputs)).probabilities().numpy())

    def _adapted(self, inputs: Tensor) -> Tensor:
        return self.method.adapted(features_of_inputs(self.method, inputs))

    @cached_property
    def class_centres(self) -> np.ndarray:
        """Where the classes are among the features, (c, d), unit rows: prototypes, or means of the labelled samples."""
        prototypes = self.method.class_prototypes()
        if prototypes is not None:
            return unit_rows(prototypes.float())
        sums = np.zeros((len(self.classes), self.source.features.shape[1]), dtype=np.float32)
        np.add.at(sums, self.source.classes, self.source.features)
        return unit_rows(torch.from_numpy(sums))

    @property
    def rule(self) -> UnbalancedPotential:
        """The solved transport of the whole target, where the method is UniOT."""
        solved = self.method.solved if isinstance(self.method, UniOTMethod) else None
        if solved is None:
            raise DataError(
                f"this run was made with {self.settings.method!r}, which has no transport. Give one of UniOT."
            )
        return solved

    def labels(self, prediction: Prediction) -> np.ndarray:
        """Class names, and the unknown label."""
        return prediction.labels(self.classes, self.unknown)
