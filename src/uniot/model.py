"""What a run ends with: a trained method with the rule that it decides by, and its answers for the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uniot.annotations import Annotations
from uniot.calibration import Calibration
from uniot.discovery import LabelledFeatures, PrivateGroups, absence
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import DataError, NumericalError
from uniot.methods import Decision, Method, UniOTMethod
from uniot.network_features import features_of_inputs, unit_rows
from uniot.prediction import Prediction
from uniot.settings import Settings
from uniot.threshold import Threshold, rejected_fraction, threshold_for
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
        threshold: on the largest share, set by a preference; None for the rule's own.
        target_shares: largest share of each target sample by the rule, whatever the preference, (n,).
        target_class_probability: of the nearest class of each target sample, if it is known, (n,).
        calibration: how shares become probabilities.
        reliability: estimated accuracy on the target, and warnings; None for a run of an earlier version.
        annotations: what people decided about the target, which the answers follow; None if nobody did.
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
    target_shares: np.ndarray
    target_class_probability: np.ndarray
    calibration: Calibration
    reader: ImageReader | None = None
    threshold: Threshold | None = None
    reliability: Reliability | None = None
    annotations: Annotations | None = None

    def with_preference(self, private_prior: float | None = None, prefer: str | None = None) -> AdaptedModel:
        """Return the same model with another threshold, without adapting again; itself if no preference is given.

        The private groups stay; a target sample that becomes unknown joins the nearest one. Annotations are applied
        after a preference: what people decided does not depend on a threshold.

        Args:
            private_prior: fraction of the fitted target that is to be unknown, from 0 to 1.
            prefer: "known" halves the fraction that the rule calls unknown, "unknown" the fraction that it calls known.

        Raises:
            SettingsError: both are given, or one is out of its range.
            DataError: the run does not hold the answers for its target.
        """
        if private_prior is None and prefer is None:
            return self
        wanted = Settings.checked(private_prior=private_prior, prefer=prefer)
        shares = self.target_shares
        if not len(shares):
            raise DataError(
                "private_prior and prefer are measured on the fitted target, and this run was shared without it. "
                "Leave them out, or use the run folder that `uniot adapt` wrote."
            )
        threshold = threshold_for(shares, wanted.private_prior, wanted.prefer)
        # The rule's own decision does not matter: there is a threshold.
        largest = torch.from_numpy(shares)[:, None]
        decision = Decision(largest, largest[:, 0] >= 1).by_threshold(threshold)
        known = decision.known.numpy()
        group = np.where(known, -1, self.target.group)
        joining = ~known & (group < 0)
        if self.groups.n_groups:
            group[joining] = self.groups.nearest(self.target_features[joining])
        target = Prediction(
            nearest=self.target.nearest,
            known=known,
            known_score=decision.known_score.numpy(),
            confidence=self.calibration.confidence(
                decision.shares[:, 0], torch.from_numpy(self.target_class_probability), decision.known
            ).numpy(),
            group=group,
            group_confidence=self.groups.confidence(self.target_features, group),
        )
        return replace(
            self,
            groups=replace(self.groups, group=group[~known]),
            absence=absence(target, len(self.classes)),
            settings=self.settings.model_copy(update={"private_prior": wanted.private_prior, "prefer": wanted.prefer}),
            target=target,
            threshold=threshold,
        )

    def with_annotations(self, annotations: Annotations) -> AdaptedModel:
        """Return the same model, whose answers follow what people decided about the target."""
        target = annotations.for_target(self.target, self.target_features)
        return replace(
            self,
            absence=absence(target, len(self.classes)),
            target=target,
            annotations=annotations,
        )

    @property
    def group_names(self) -> Mapping[int, str]:
        """What people call private groups; none without annotations."""
        return {} if self.annotations is None else self.annotations.group_names

    @property
    def private_prior(self) -> float:
        """Fraction of the target that the rule calls unknown, whatever the preference; NaN without a target."""
        if self.threshold is None:
            return float((~self.target.known).mean()) if len(self.target) else float("nan")
        return rejected_fraction(self.target_shares)

    def decide(self, adapted: Tensor) -> Decision:
        """What the rule says of adapted features, by the threshold of the preference if there is one.

        Raises:
            NumericalError: it says nothing, as the features or the rule have left the range of numbers.
        """
        decision = self.method.decide(adapted).by_threshold(self.threshold)
        lost = torch.isnan(decision.shares).any(dim=1)
        if lost.any():
            raise NumericalError(
                f"the model gives no numbers for {int(lost.sum())} of {len(lost)} samples. Its weights are damaged or "
                "too large; make the run again, with a lower learning_rate if it was trained."
            )
        return decision

    def predict(self, inputs: Tensor, samples: Sequence[str] | None = None) -> Prediction:
        """Answers for samples, fitted or new, each on its own. An unknown one gets the nearest private group.

        Args:
            inputs: (n, …).
            samples: their names, by which those that people decided about are found; None if they have none.
        """
        adapted = self._adapted(inputs)
        decision, features = self.decide(adapted), unit_rows(adapted)
        known = decision.known.numpy()
        group = np.full(len(known), -1, dtype=np.int64)
        if self.groups.n_groups:
            group[~known] = self.groups.nearest(features[~known])
        answers = Prediction(
            nearest=decision.nearest.numpy(),
            known=known,
            known_score=decision.known_score.numpy(),
            confidence=decision.confidence(self.calibration).numpy(),
            group=group,
            group_confidence=self.groups.confidence(features, group),
        )
        if self.annotations is None:
            return answers
        return self.annotations.for_new(answers, features, self.target_features, samples)

    def features(self, inputs: Tensor) -> np.ndarray:
        """Adapted features of unit norm, (n, feature_size)."""
        return unit_rows(self._adapted(inputs))

    def probabilities(self, inputs: Tensor) -> np.ndarray:
        """(n, c + 1): the classes in order, then unknown. The largest entry is the answer's, and its confidence."""
        return np.asarray(self.decide(self._adapted(inputs)).probabilities(self.calibration).numpy())

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
        """Class names, names of groups, and the unknown label."""
        return prediction.labels(self.classes, self.unknown, self.group_names)
