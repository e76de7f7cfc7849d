"""The adapted model, and features computed in batches of a fixed size: results do not depend on the batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.config import Settings
from uniot.discovery.annotations import Annotations
from uniot.discovery.groups import LabelledFeatures, PrivateGroups, absence
from uniot.errors import DataError, NumericalError
from uniot.images.backbones import ImageReader
from uniot.io.arrays import in_blocks, unit_rows
from uniot.io.predictions import Prediction
from uniot.methods.base import Method
from uniot.methods.decision import Calibration, Decision, Threshold, rejected_fraction, threshold_for
from uniot.methods.unincm.reliability import Reliability
from uniot.training.history import History
from uniot.training.samples import Samples

_BLOCK_ROWS, _BLOCK_IMAGES, _IMAGE_VALUES = 128, 16, 100_000


def features_of_inputs(method: Method, inputs: Tensor) -> Tensor:
    """Return the method's features of inputs (n, …), (n, n_features), on the CPU."""
    size = _block_size(inputs.shape[1:])
    return torch.cat([_features_of_block(method, block, size) for block in inputs.split(size)])


def features_of_samples(method: Method, samples: Samples, ids: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the features of the samples at `ids`, (n, n_features), and the shape of one sample."""
    shape = samples.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
    size = _block_size(shape)
    features = [_features_of_block(method, samples.batch(block), size) for block in ids.split(size)]
    return torch.cat(features), tuple(int(size) for size in shape)


@torch.no_grad()
def embeddings_of_samples(method: Method, samples: Samples, ids: Tensor) -> Tensor:
    """Return the backbone's embeddings of the samples at `ids` as unit rows, (n, width)."""
    device = _device(method)
    blocks = [method.backbone(samples.batch(block).to(device)).flatten(1) for block in ids.split(_BLOCK_IMAGES)]
    return F.normalize(torch.cat(blocks).float(), dim=1).cpu()


@torch.no_grad()
def _features_of_block(method: Method, block: Tensor, size: int) -> Tensor:
    method.eval()
    missing = size - len(block)
    padded = torch.cat([block, block.new_zeros(missing, *block.shape[1:])]) if missing else block
    features: Tensor = method.features(padded.to(_device(method)))[: len(block)]
    return features.float().cpu()


def _odds_and_known(decision: Decision) -> Tensor:
    return torch.cat([decision.odds, decision.known[:, None].to(decision.odds)], dim=1)


def _block_size(shape: Sequence[int]) -> int:
    return _BLOCK_ROWS if math.prod(shape) < _IMAGE_VALUES else _BLOCK_IMAGES


def _device(method: Method) -> torch.device:
    parameter = next(method.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


@dataclass(frozen=True)
class AdaptedModel:
    """Result of a run: a fitted method, and its answers for the target.

    Attributes:
        method: fitted; decides about fitted and new samples alike.
        groups: the private groups of the target.
        absence: score from 0 to 1 that each source class is absent from the target, (n_classes,).
        classes: source classes, text or integers, (n_classes,).
        unknown: label of unknown samples.
        settings: resolved settings.
        input_shape: of one sample.
        target: the answers for the target that was fitted.
        target_features: transformed features of the target, unit rows, (n_target, n_features), float32.
        source: features and classes of the labelled samples, or of some of them, drawn evenly from the classes.
        history: numbers step by step.
        fingerprint: of data and settings.
        reader: of images; None for a run made from arrays.
        threshold: on the largest odds, set by a preference; None for that of the rule.
        target_odds: largest odds of each target sample by the rule, without the preference, (n_target,).
        target_class_probability: of the nearest class of each target sample, if it is known, (n_target,).
        calibration: maps odds to probabilities.
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
    target_odds: np.ndarray
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
        odds = self.target_odds
        if not len(odds):
            raise DataError(
                "private_prior and prefer are measured on the fitted target, and this run was shared without it. "
                "Leave them out, or use the run folder that `uniot adapt` wrote."
            )
        threshold = threshold_for(odds, wanted.private_prior, wanted.prefer)
        # The rule's own decision does not matter: there is a threshold.
        largest = torch.from_numpy(odds)[:, None]
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
                decision.odds[:, 0], torch.from_numpy(self.target_class_probability), decision.known
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
        """Return the names that people gave to private groups; empty without annotations."""
        return {} if self.annotations is None else self.annotations.group_names

    @property
    def private_prior(self) -> float:
        """Return the fraction of the target that the rule calls unknown without a preference; NaN without a target."""
        if self.threshold is None:
            return float((~self.target.known).mean()) if len(self.target) else float("nan")
        return rejected_fraction(self.target_odds)

    def decide(self, features: Tensor) -> Decision:
        """Decide about transformed features, by the threshold of the preference if there is one.

        A fixed batch size makes the result independent of the batch composition.

        Raises:
            NumericalError: the odds are NaN, because features or weights overflow.
        """
        # One tensor per block, because `in_blocks` returns one: the odds, and 0 or 1 for known in the last column.
        joined = in_blocks(lambda rows: _odds_and_known(self.method.decide(rows)), features, _BLOCK_ROWS)
        decision = Decision(joined[:, :-1], joined[:, -1] == 1).by_threshold(self.threshold)
        lost = torch.isnan(decision.odds).any(dim=1)
        if lost.any():
            raise NumericalError(
                f"the model gives no numbers for {int(lost.sum())} of {len(lost)} samples. Its weights are damaged or "
                "too large; make the run again, with a lower learning_rate if it was trained."
            )
        return decision

    def predict(self, inputs: Tensor, samples: Sequence[str] | None = None) -> Prediction:
        """Predict each sample independently, fitted or new; an unknown one gets the nearest private group.

        Args:
            inputs: (n, …).
            samples: names, by which annotated samples are found; None if they have none.

        Returns:
            The prediction for each sample.
        """
        transformed = self._transformed(inputs)
        decision, features = self.decide(transformed), unit_rows(transformed)
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
        """Return transformed features of unit norm, (n_samples, n_features)."""
        return unit_rows(self._transformed(inputs))

    def probabilities(self, inputs: Tensor) -> np.ndarray:
        """Return the probabilities of the classes, then of unknown, (n_samples, n_classes + 1)."""
        return np.asarray(self.decide(self._transformed(inputs)).probabilities(self.calibration).numpy())

    def scores(self, inputs: Tensor) -> np.ndarray:
        """Return the log odds of each class against unknown, (n, c + 1); the last column is unknown, 0 throughout.

        The largest entry of a row is its answer.
        """
        decision = self.decide(self._transformed(inputs))
        odds, nearest = decision.odds.clamp(1e-300, 1e300).log(), decision.nearest[:, None]
        largest = odds.gather(1, nearest)
        # Rounding may leave the largest entry on the other side of 0 than the decision.
        agreeing = torch.where(decision.known[:, None], largest.clamp_min(0), largest.clamp_max(-1e-12))
        odds = odds.scatter(1, nearest, agreeing)
        return np.asarray(torch.cat([odds, torch.zeros(len(odds), 1, dtype=odds.dtype)], dim=1).numpy())

    def _transformed(self, inputs: Tensor) -> Tensor:
        return self.method.transform(features_of_inputs(self.method, inputs))

    @cached_property
    def class_centres(self) -> np.ndarray:
        """Return class prototypes, or means of the labelled samples, (n_classes, n_features), unit rows."""
        prototypes = self.method.class_prototypes()
        if prototypes is not None:
            return unit_rows(prototypes.float())
        sums = np.zeros((len(self.classes), self.source.features.shape[1]), dtype=np.float32)
        np.add.at(sums, self.source.classes, self.source.features)
        return unit_rows(torch.from_numpy(sums))

    def labels(self, prediction: Prediction) -> np.ndarray:
        """Return class names, names of groups, and the unknown label, (n_samples,)."""
        return prediction.labels(self.classes, self.unknown, self.group_names)
