"""The fitted model: its predictions for the target and for new samples, and how a person's answers change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uniot.annotations.annotations import Annotations
from uniot.config import Settings
from uniot.discovery.groups import ABSENT, LabelledFeatures, NearestGroups, PrivateGroups, absence
from uniot.errors import DataError, NumericalError
from uniot.images.backbones import ImageReader
from uniot.io.arrays import unit_directions, unit_rows
from uniot.io.predictions import Prediction
from uniot.io.text import as_utf8
from uniot.methods.base import Method
from uniot.methods.decision import Calibration, Decision, Threshold, rejected_fraction, threshold_for
from uniot.rejection.answers import UNKNOWN, Answers
from uniot.rejection.local import class_log_odds
from uniot.rejection.posterior import RejectionPosterior, TargetScores, fit_posterior
from uniot.rejection.questions import questions
from uniot.reliability import Reliability
from uniot.training.features import decide_in_blocks, features_of_inputs
from uniot.training.history import History

# Samples whose features are in memory at a time.
_PREDICTED_ROWS = 8192


@dataclass(frozen=True)
class AdaptedModel:
    """Result of a fit: a fitted method, and its predictions for the target.

    Attributes:
        method: fitted; decides about fitted and new samples alike.
        groups: the private groups of the target.
        absence: absence score of each source class, from 0 to 1, (n_classes,).
        classes: source classes, text or integers, (n_classes,).
        unknown: label of unknown samples.
        settings: resolved settings.
        input_shape: of one sample.
        target: the predictions for the target that was fitted.
        target_features: transformed features of the target, unit rows, (n_target, n_features), float32; of a target
            that is too large, those of a random sample.
        source: features and classes of the labelled samples, or of some of them, drawn evenly from the classes.
        history: numbers step by step; empty if nothing was trained.
        fingerprint: of data and settings.
        reader: of images; None for a run made from arrays.
        threshold: on the largest odds, set by a preference; None for that of the rule.
        target_odds: largest odds of each target sample by the rule, without preference and answers, (n_target,).
        target_nearest: class of these odds, (n_target,).
        target_class_probability: of the nearest class of each target sample, if it is known, (n_target,).
        calibration: maps odds to probabilities.
        reliability: estimated accuracy on the target, and warnings.
        annotations: what people decided about the target, which the predictions follow; None if nobody did.
        answers: of a person about target samples, to questions or as labels that the run was given. These samples keep
            these labels; some of the answers also move the line between known and unknown.
        posterior: what these answers say about other samples; None if the rule of the method decides alone.
        target_class_log_odds: of each class against the nearest one by the rule, (n_target, n_classes), float16; no
            rows if they are not stored, so that answers do not move classes.
        feature_rows: sorted rows of the target that `target_features` has; None for all of them.
        nearest_groups: of each target sample, if `target_features` does not have them all.
        feature_names: names of the numbers of a sample, (n_features,); None if they have none.
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
    target_odds: np.ndarray
    target_nearest: np.ndarray
    target_class_probability: np.ndarray
    calibration: Calibration
    history: History = field(default_factory=History)
    fingerprint: str = ""
    reader: ImageReader | None = None
    threshold: Threshold | None = None
    reliability: Reliability = field(default_factory=Reliability)
    annotations: Annotations | None = None
    feature_rows: np.ndarray | None = None
    nearest_groups: NearestGroups | None = None
    answers: Answers = field(default_factory=Answers)
    posterior: RejectionPosterior | None = None
    target_class_log_odds: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float16))
    feature_names: tuple[str, ...] | None = None

    @cached_property
    def class_names(self) -> list[str]:
        """Return the source classes as text, (n_classes,)."""
        return [as_utf8(str(name)) for name in self.classes.tolist()]

    def with_preference(self, private_prior: float | None = None, prefer: str | None = None) -> AdaptedModel:
        """Return the same model with another threshold, without another fit; itself if no preference is given.

        The private groups stay; a target sample that becomes unknown joins the nearest one. Annotations are applied
        after a preference: what people decided does not depend on a threshold.

        Args:
            private_prior: fraction of the fitted target that is to be unknown, from 0 to 1.
            prefer: "known" halves the fraction that the rule calls unknown, "unknown" the fraction that it calls known.

        Raises:
            SettingsError: both are given, or one is out of its range.
            DataError: the run was stored without its target.
        """
        if private_prior is None and prefer is None:
            return self
        wanted = Settings.checked(private_prior=private_prior, prefer=prefer)
        if not len(self.target_odds):
            raise DataError(
                "private_prior and prefer are measured on the fitted target, and this run was shared without it. "
                "Leave them out, or use the run folder that `uniot adapt` wrote."
            )
        settings = self.settings.model_copy(update={"private_prior": wanted.private_prior, "prefer": wanted.prefer})
        return self._changed(settings=settings)._decided_again()

    def ask(self, n: int = 1) -> np.ndarray:
        """Return the rows of the target whose answers say most about the line between known and unknown, (n,).

        Args:
            n: number of rows; fewer if fewer have no answer yet.

        Raises:
            DataError: the run does not hold its target.
        """
        scores = self._target_scores("there is nothing to ask about")
        posterior = self.posterior or fit_posterior(scores, self.answers)
        return np.asarray(questions(posterior, scores, self.answers, n, self._known_probability).numpy())

    def with_answers(self, answers: Answers) -> AdaptedModel:
        """Return the same model after all answers of a person so far; what a person said is not overruled.

        The private groups stay; a target sample that becomes unknown joins the nearest one.

        Raises:
            DataError: the run does not hold its target, or an answer is about a row or a class that does not exist.
        """
        self._require_target("nothing can be told about it")
        answers.check(len(self.target_odds), len(self.classes))
        if answers.is_same_as(self.answers):
            return self
        posterior = None
        if len(answers.evidence):
            posterior = fit_posterior(self._target_scores("nothing can be told about it"), answers)
        return self._changed(answers=answers, posterior=posterior)._decided_again()

    @cached_property
    def private_share_interval(self) -> tuple[float, float]:
        """Return the interval that contains the share of unknown samples with a probability of nine tenths."""
        posterior = self.posterior or fit_posterior(self._target_scores("its share is not known"), self.answers)
        return posterior.share_interval()

    def _require_target(self, consequence: str) -> None:
        if not len(self.target_odds):
            raise DataError(
                f"this run was shared without its target, so that {consequence}. Use the run folder that `uniot adapt` "
                "wrote."
            )

    def _target_scores(self, consequence: str) -> TargetScores:
        self._require_target(consequence)
        self.require_all_features(consequence)
        return self._scores_by_rule

    @cached_property
    def _scores_by_rule(self) -> TargetScores:
        of_classes = self.target_class_log_odds
        return TargetScores(
            odds=torch.from_numpy(self.target_odds),
            nearest=torch.from_numpy(self.target_nearest),
            features=torch.from_numpy(self.target_features),
            rejected=rejected_fraction(self.target_odds),
            class_log_odds=torch.from_numpy(of_classes) if len(of_classes) == len(self.target_odds) else None,
        )

    def _changed(self, **changes: Any) -> AdaptedModel:
        """Return a model of the same rule and target with other answers, preference or predictions."""
        changed = replace(self, **changes)
        # What follows from rule and target alone is computed once, and what follows from the answers once per answer.
        vars(changed)["_scores_by_rule"] = self._scores_by_rule
        if "posterior" not in changes and self.posterior is not None:
            vars(changed)["_known_probability"] = self._known_probability
            vars(changed)["_classes_after_answers"] = self._classes_after_answers
        return changed

    @cached_property
    def _known_probability(self) -> Tensor:
        """Return the probability that each target sample is known, by rule and answers, (n_target,)."""
        scores = self._target_scores("it cannot be decided again")
        posterior = self.posterior or fit_posterior(scores, self.answers)
        return posterior.known_probability(scores.odds, scores.nearest, scores.features)

    @cached_property
    def odds_after_answers(self) -> np.ndarray:
        """Return the largest odds of each target sample by rule and answers, without a preference, (n_target,)."""
        if self.posterior is None:
            return self.target_odds
        return np.asarray(self.posterior.odds(self._known_probability).numpy())

    @cached_property
    def _classes_after_answers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest class of each target sample by rule and answers, and its probability, (n_target,) each."""
        scores = self._scores_by_rule
        if self.posterior is None or self.posterior.class_shift is None or scores.class_log_odds is None:
            return self.target_nearest, self.target_class_probability
        odds = self.posterior.class_shift(scores.class_log_odds, scores.features).exp()
        probability = self.calibration.class_probabilities(odds).max(dim=1).values
        return odds.argmax(dim=1).numpy(), probability.numpy()

    def _decided_again(self) -> AdaptedModel:
        """Return the model with its target decided by rule, answers and preference."""
        odds = self.odds_after_answers
        threshold = threshold_for(odds, self.settings.private_prior, self.settings.prefer)
        largest = torch.from_numpy(odds)[:, None]
        decision = Decision(largest, largest[:, 0] >= 1).by_threshold(threshold)
        said = self.answers.decided
        known = decision.known.numpy().copy()
        known[said.rows] = said.classes != UNKNOWN
        nearest, class_probability = self._classes_after_answers
        nearest = nearest.copy()
        nearest[said.rows[said.classes != UNKNOWN]] = said.classes[said.classes != UNKNOWN]
        confidence = self.calibration.confidence(
            decision.odds[:, 0], torch.from_numpy(class_probability), decision.known
        ).numpy()
        known_score = decision.known_score.numpy().copy()
        confidence[said.rows], known_score[said.rows] = 1.0, known[said.rows]
        target = replace(self.target, nearest=nearest, known=known, known_score=known_score, confidence=confidence)
        if self.nearest_groups is not None:
            target = self.nearest_groups.applied_to(target)
        else:
            group = np.where(known, -1, self.target.group)
            joining = ~known & (group < 0)
            if self.groups.n_groups:
                group[joining] = self.groups.nearest(self.target_features[joining])
            target = replace(target, group=group, group_confidence=self.groups.confidence(self.target_features, group))
        return self._changed(
            groups=replace(self.groups, group=target.group[~known]),
            absence=absence(target, len(self.classes)),
            target=target,
            threshold=threshold,
        )

    def with_annotations(
        self, annotations: Annotations, private_prior: float | None = None, prefer: str | None = None
    ) -> AdaptedModel:
        """Return the same model after what people decided about the target: their answers, places and names.

        Args:
            annotations: of the target.
            private_prior: as for `with_preference`.
            prefer: as for `with_preference`.

        Raises:
            SettingsError: both preferences are given, or one is out of its range.
            DataError: the run does not have the features of its whole target.
        """
        self.require_all_features("its samples cannot be labelled")
        answered = self.with_answers(annotations.answers)
        annotations = annotations.after(answered.target)
        preferred = answered.with_preference(private_prior, prefer)
        target = annotations.for_target(preferred.target, self.target_features)
        return preferred._changed(
            absence=absence(target, len(self.classes)),
            target=target,
            annotations=annotations,
        )

    def require_all_features(self, consequence: str) -> None:
        """Raise DataError if the features of the target are those of a sample of it."""
        if self.feature_rows is not None:
            raise DataError(
                f"the run has {len(self.target)} samples and the features of {len(self.feature_rows)} of them, so that "
                f"{consequence}. Adapt to fewer samples; `uniot predict` then labels all the others in the same way."
            )

    @property
    def absent_classes(self) -> np.ndarray:
        """Return the source classes that no target sample is labelled with, (n_absent,)."""
        return np.asarray(self.classes[self.absence > ABSENT])

    @property
    def reliability_of_decision(self) -> Reliability:
        """Return the reliability as far as it holds for the present decision.

        The accuracy is estimated for the rule of the method; a preference or answers make it that of another decision.
        """
        if self.threshold is None and self.posterior is None:
            return self.reliability
        return self.reliability.for_other_decision()

    @property
    def shown_share_interval(self) -> tuple[float, float] | None:
        """Return `private_share_interval` if it belongs to the present decision; None if nothing is known about it.

        A preference decides without regard to the share, and a large or shared target cannot be asked about.
        """
        if self.threshold is not None or self.feature_rows is not None or not len(self.target_odds):
            return None
        return self.private_share_interval

    @property
    def labelled_by_people(self) -> np.ndarray:
        """Return which target samples a person said the class of, or that they have none, (n_target,)."""
        labelled = np.zeros(len(self.target), dtype=bool)
        labelled[self.answers.by_people.rows] = True
        return labelled

    def expected_change(self, row: int) -> float:
        """Return the expected fraction of the target whose label changes with an answer about a row."""
        known, changed = float(self._known_probability[row]), 0.0
        nearest = int(self._classes_after_answers[0][row])
        for chance, answer in ((known, nearest), (1 - known, UNKNOWN)):
            after = self.with_answers(self.answers.told([row], [answer]))
            other_class = self.target.known & (after.target.nearest != self.target.nearest)
            changed += chance * float(((after.target.known != self.target.known) | other_class).mean())
        return changed

    @property
    def group_names(self) -> Mapping[int, str]:
        """Return the names that people gave to private groups; empty without annotations."""
        return {} if self.annotations is None else self.annotations.group_names

    @property
    def private_prior(self) -> float:
        """Return the fraction of the target that is called unknown without a preference; NaN without a target."""
        if self.threshold is None:
            return float((~self.target.known).mean()) if len(self.target) else float("nan")
        return rejected_fraction(self.odds_after_answers)

    def decide(self, features: Tensor) -> Decision:
        """Decide about transformed features, by the threshold of the preference if there is one.

        Raises:
            NumericalError: the odds are NaN, because features or weights overflow.
        """
        decision = decide_in_blocks(self.decide_block, features)
        lost = torch.isnan(decision.odds).any(dim=1)
        if lost.any():
            raise NumericalError(
                f"the model gives no numbers for {int(lost.sum())} of {len(lost)} samples. Its weights are damaged or "
                "too large; make the run again, with a lower learning_rate if it was trained."
            )
        return decision

    def decide_block(self, rows: Tensor) -> Decision:
        """Decide about transformed rows, (n_samples, n_features), by rule, answers and preference; as one batch."""
        decision = self.method.decide(rows)
        if self.posterior is not None:
            largest, nearest = decision.odds.max(dim=1)
            features, shift = unit_directions(rows), self.posterior.class_shift
            known = self.posterior.known_probability(largest, nearest, features)
            relative = decision.odds / largest.clamp_min(1e-300)[:, None]
            if shift is not None:
                relative = shift(class_log_odds(decision.odds), features).exp()
            odds = relative * self.posterior.odds(known)[:, None]
            decision = Decision(odds, odds.max(dim=1).values >= 1)
        return decision.by_threshold(self.threshold)

    def predict(self, inputs: Tensor, samples: Sequence[str] | None = None) -> Prediction:
        """Predict each sample independently, fitted or new; an unknown one gets the nearest private group.

        Args:
            inputs: (n, …).
            samples: names, by which annotated samples are found; None if they have none.

        Returns:
            The prediction for each sample.
        """
        blocks = []
        # In blocks, because features take more memory than predictions.
        for start in range(0, max(len(inputs), 1), _PREDICTED_ROWS):
            block = slice(start, start + _PREDICTED_ROWS)
            blocks.append(self._predict_block(inputs[block], None if samples is None else samples[block]))
        return Prediction.joined(blocks)

    def _predict_block(self, inputs: Tensor, samples: Sequence[str] | None) -> Prediction:
        given = features_of_inputs(self.method, inputs)
        transformed = self.method.transform(given)
        decision, features = self.decide(transformed), unit_rows(transformed)
        groups = NearestGroups.of(self.groups, features)
        predicted = groups.applied_to(
            Prediction(
                nearest=decision.nearest.numpy(),
                known=decision.known.numpy(),
                known_score=decision.known_score.numpy(),
                confidence=decision.confidence(self.calibration).numpy(),
                group=groups.group,
                group_confidence=groups.confidence,
            )
        )
        if self.annotations is None:
            return predicted
        far = self.method.is_far(given) if self.group_names else None
        is_far = None if far is None else far.numpy()
        return self.annotations.for_new(predicted, features, self.target_features, samples, is_far)

    def features(self, inputs: Tensor) -> np.ndarray:
        """Return transformed features of unit norm, (n_samples, n_features)."""
        return unit_rows(self._transformed(inputs))

    def probabilities(self, inputs: Tensor) -> np.ndarray:
        """Return the probabilities of the classes, then of unknown, (n_samples, n_classes + 1)."""
        return np.asarray(self.decide(self._transformed(inputs)).probabilities(self.calibration).numpy())

    def scores(self, inputs: Tensor) -> np.ndarray:
        """Return the log odds of each class against unknown, (n, c + 1); the last column is unknown, 0 throughout.

        The largest entry of a row is that of its prediction.
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
