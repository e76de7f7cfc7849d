"""Fit to two arrays and predict for arrays: the part that all estimators share."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from torch import Tensor
from typing_extensions import Self

from uniot.errors import DataError, NotFittedError, UniotWarning
from uniot.io.arrays import by_domain, check_feature_names, feature_names
from uniot.methods.registry import check_method
from uniot.rejection.answers import answer_index
from uniot.training.domains import domains_from_arrays, inputs_of
from uniot.training.finalize import regrouped
from uniot.training.fit import FitContext, OnStep, fit, log_end, oracle_watch
from uniot.training.history import check_logger
from uniot.training.processes import Processes

if TYPE_CHECKING:
    from uniot.config import Settings
    from uniot.io.predictions import Prediction
    from uniot.training.domains import Domains
    from uniot.training.model import AdaptedModel


class _NotFitted(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]
    """The error of uniot as scikit-learn's, which its checks and `check_is_fitted` expect."""


class ArrayPredictor:
    """Predictions for rows, fitted or new; rows do not influence each other.

    Attributes:
        labels_: a source class or the unknown label per target row of `fit`, (n_target,).
        groups_: private group per target row, -1 if known, (n_target,); made again after `tell`.
        n_private_classes_: number of private groups, estimated or as given; estimated again after `tell`.
        private_class_interval_: smallest and largest plausible number.
        private_prior_: fraction of the target that the method itself rejects, an estimate of the private-class prior;
            the parameters `private_prior` and `prefer` do not change it.
        absent_classes_: source classes that no target sample is labelled with.
        classes_: source classes, sorted, (n_classes,).
        settings_: every setting with the value that was used.
        history_: losses step by step; empty if nothing was trained.
        reliability_: accuracy on the target, estimated without labels, and warnings; `fit` issues each as a
            `UniotWarning`.
        class_mass_: mass of each source class after the last step, (n_classes,); None if the method has none.
        n_features_in_: numbers per sample.
        feature_names_in_: column names of X, (n_features,), if it was a data frame with names that are text.
    """

    unknown_label: str | int | None
    _model: AdaptedModel
    _has_old_groups: bool

    def fit(
        self,
        X: Any,
        y: Any,
        X_target: Any = None,
        *,
        sample_domain: Any = None,
        prototypes: Any = None,
        prototype_weight: float = 1.0,
        start: ArrayPredictor | None = None,
        run: str | Path | None = None,
        processes: Processes | None = None,
        oracle_y_target: Any = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Fit to a labelled source and an unlabelled target.

        Args:
            X: source embeddings, (n_source, n_features): array, tensor or DataFrame of any numeric type and scale; or
                grey images, (n_source, height, width). It may contain target rows that somebody labelled.
            y: source labels, (n_source,), text or integers.
            X_target: target embeddings or images, (n_target, …).
            sample_domain: in place of X_target if X and y hold the rows of both domains: a number per row, negative
                for the target. Labels of target rows are not read.
            prototypes: class prototypes in the space of the embeddings, such as CLIP's embeddings of the class names:
                (n_classes, n_features) in the order of the sorted classes, or a mapping from class to row. UniNCM
                decides by them, DANCE starts from them; other methods refuse them.
            prototype_weight: 1 uses the prototypes in place of the class means of the source, 0.5 averages both.
            start: fitted estimator whose weights and class prototypes training starts from.
            run: folder for checkpoints. The same call continues an interrupted run, and reads back a finished one.
            processes: from `uniot.training.processes.start_processes`; every process calls `fit` with all the data.
            oracle_y_target: true target labels, (n_target,); they add `oracle_recall` and `oracle_specificity` of the
                detection to `history_` and change nothing else.
            on_step: called with step, number of steps and the numbers of the step.

        Returns:
            The estimator.
        """
        settings = self._settings()
        check_method(settings)
        training = self._training_parameters()
        logger = training.get("logger")
        if logger is not None:
            check_logger(logger)
        if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Give it the shape (n_samples,).",
                DataConversionWarning,
                stacklevel=2,
            )
            y = np.asanyarray(y).ravel()  # which keeps a mask
        names = feature_names(X)
        check_feature_names(X_target, names, "X_target")
        if sample_domain is not None:
            if X_target is not None:
                raise DataError("X_target and sample_domain were both given. Give the one or the other.")
            X, y, X_target = by_domain(X, y, sample_domain)
        if X_target is None:
            raise DataError(
                "X_target is missing. Call fit(X_source, y_source, X_target): the target is what is adapted to. "
                "If X holds the rows of both domains, mark those of the target: fit(X, y, sample_domain=…), negative "
                "for the target."
            )
        domains = domains_from_arrays(
            X, y, X_target, settings, augment=training.get("augmentation"), feature_names=names
        )
        if prototypes is not None:
            domains = domains.with_prototypes(prototypes, prototype_weight)
        watch = None
        if oracle_y_target is not None:
            watch = oracle_watch(oracle_y_target, domains.classes, len(domains.target))
        stored = self._stored_in(run)
        context = FitContext(
            unknown=self.unknown_label,
            start=None if start is None else start.model_,
            checkpoints=stored and stored.checkpoints,
            finished=stored and stored.finished,
            processes=processes or Processes(),
            watch=watch,
            on_step=on_step,
            logger=logger,
        )
        model = self._fit_domains(domains, settings, context)
        if logger is not None and (processes is None or processes.rank == 0):
            log_end(logger, model)
        if names is not None:
            self.feature_names_in_ = names
        return self

    def _fit_domains(self, domains: Domains, settings: Settings, context: FitContext) -> AdaptedModel:
        """Fit to the domains, with a `UniotWarning` for each warning; those about the data come before the fit."""
        issued: list[str] = []

        def warn(words: str, stacklevel: int = 5) -> None:
            issued.append(words)
            warnings.warn(words, UniotWarning, stacklevel=stacklevel)

        model = fit(domains, settings, replace(context, warn=warn))
        reliability = model.reliability_of_decision
        for words in () if reliability is None else reliability.warnings:
            if words not in issued:
                warn(words, stacklevel=4)
        self._set_fitted(model)
        return model

    def _stored_in(self, run: str | Path | None) -> Any:
        """Return an object with `checkpoints` and `finished` for a run folder; None without one."""
        raise NotImplementedError

    def _settings(self) -> Settings:
        """Return the settings that the constructor was given."""
        raise NotImplementedError

    def _training_parameters(self) -> dict[str, Any]:
        """Return the parameters of the constructor that trains, among them `logger` and `augmentation`."""
        raise NotImplementedError

    @property
    def model_(self) -> AdaptedModel:
        """Return the fitted model."""
        if not hasattr(self, "_model"):
            name = type(self).__name__
            raise _NotFitted(f"this {name} has not been fitted. Call fit(X_source, y_source, X_target) first.")
        return self._model

    @property
    def private_share_interval_(self) -> tuple[float, float]:
        """Return the smallest and the largest plausible share of unknown samples in the target."""
        return self.model_.private_share_interval

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def predict(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> np.ndarray:
        """Predict a source class or the unknown label per row.

        Args:
            X: embeddings, (n_samples, n_features), or grey images, (n_samples, height, width), as in `fit`.
            private_prior: fraction of the fitted target to reject, in place of the constructor's.
            prefer: "known" or "unknown", in place of the constructor's. Both move the threshold; nothing is refitted.

        Returns:
            Labels, (n_samples,).
        """
        model = self.model_
        return model.labels(model.with_preference(private_prior, prefer).predict(self._inputs(X)))

    def predict_full(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> Prediction:
        """Return nearest class, whether it is known, scores and group per row; arguments as in `predict`."""
        return self._grouped_model.with_preference(private_prior, prefer).predict(self._inputs(X))

    def predict_proba(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> np.ndarray:
        """Return calibrated probabilities, (n_samples, n_classes + 1): `classes_` in order, then unknown.

        The largest of a row belongs to the label that `predict` returns. Arguments as in `predict`.
        """
        return self.model_.with_preference(private_prior, prefer).probabilities(self._inputs(X))

    def decision_function(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> np.ndarray:
        """Return the scores that decide, (n_samples, n_classes + 1): columns as in `predict_proba`.

        A score is the log odds of a class against unknown; the last column, of unknown, is 0. The largest of a row
        belongs to the label that `predict` returns. Arguments as in `predict`.
        """
        return self.model_.with_preference(private_prior, prefer).scores(self._inputs(X))

    def predict_group(self, X: Any) -> np.ndarray:
        """Return the private group per row, -1 if it is known, (n_samples,)."""
        return self.predict_full(X).group

    def confidence(self, X: Any) -> np.ndarray:
        """Return the probability of the predicted label per row, (n_samples,).

        It is calibrated to the estimated accuracy in `reliability_`, if there is one.
        """
        return self.model_.predict(self._inputs(X)).confidence

    def known_score(self, X: Any) -> np.ndarray:
        """Return a score from 0 to 1 for being of a source class, (n_samples,); known from 0.5 on.

        It ranks samples, as AUROC and OSCR need it; `confidence` is a probability.
        """
        return self.model_.predict(self._inputs(X)).known_score

    def transform(self, X: Any) -> np.ndarray:
        """Return unit rows in the space in which the method decides, (n_samples, n_components).

        For UniOT n_components is `feature_size`, for UniNCM the rank of its metric, which is `width` at most.
        """
        return self.model_.features(self._inputs(X))

    def ask(self, n: int = 1) -> np.ndarray:
        """Return the target rows of `fit` whose answers say most about what is unknown, (n,).

        Ask a person "is this one of my classes, and which?" and pass the answers to `tell`. One question after another
        says more than several at once, which are spread over the target.

        Args:
            n: number of rows; fewer if fewer have no answer yet.
        """
        if n < 1:
            raise DataError(f"n is {n}. Ask at least one question.")
        return self.model_.ask(n)

    def tell(self, indices: Any, answers: Any) -> Self:
        """Add a person's answers about target rows; labels and predictions follow them without another fit.

        Told rows keep the told label. The other rows follow a model of the line between known and unknown, which the
        answers move: for all classes, for single classes, and for regions of the feature space.

        Args:
            indices: row of the target, or several, (n_answers,); of two answers about one row the last one counts.
            answers: for each row a source class, the unknown label for none of them, or None for "cannot tell".

        Returns:
            The estimator.

        Raises:
            DataError: an index is out of range, or an answer is not a class.
        """
        model = self.model_
        rows, said = np.atleast_1d(np.asarray(indices)), answers
        if np.ndim(indices) == 0:
            said = [answers]
        elif isinstance(answers, str):
            raise DataError(f"answers is the text {answers!r} for {len(rows)} indices. Give one answer per index.")
        if rows.dtype.kind not in "iu":
            raise DataError(
                f"indices are {rows.dtype}; expected rows of the target as integers, as `ask` returns them."
            )
        if len(rows) != len(said):
            raise DataError(f"there are {len(said)} answers for {len(rows)} indices. Give one answer per index.")
        out_of_range = rows[(rows < 0) | (rows >= len(model.target_odds))]
        if len(out_of_range):
            raise DataError(
                f"index {out_of_range[0]} is not a row of the target, which has {len(model.target_odds)}. "
                "Give indices as `ask` returns them."
            )
        classes = [answer_index(answer, model.classes, model.unknown) for answer in said]
        self._set_fitted(model.with_answers(model.answers.told(rows, classes)))
        # Counting classes takes longer than an answer: they are counted when somebody looks.
        self._has_old_groups = self._model.annotations is None
        return self

    def _inputs(self, X: Any) -> Tensor:
        model = self.model_
        check_feature_names(X, getattr(self, "feature_names_in_", None), "X")
        return inputs_of(X, model, type(self).__name__)

    @property
    def _grouped_model(self) -> AdaptedModel:
        """Return the fitted model; after answers its unknown samples are grouped again first."""
        model = self.model_
        if self._has_old_groups:
            model = self._model = regrouped(model)
            self._has_old_groups = False
        return model

    @property
    def groups_(self) -> np.ndarray:
        """Return the private group per target row, -1 if known, (n_target,)."""
        return self._grouped_model.target.group

    @property
    def n_private_classes_(self) -> int:
        """Return the number of private groups."""
        return self._grouped_model.groups.n_groups

    @property
    def private_class_interval_(self) -> tuple[int, int]:
        """Return the smallest and the largest plausible number of private classes."""
        return self._grouped_model.groups.number.interval

    def _set_fitted(self, model: AdaptedModel) -> None:
        self._model, self._has_old_groups = model, False
        vars(self).pop("feature_names_in_", None)
        self.classes_ = model.classes
        self.settings_ = model.settings
        self.n_features_in_ = int(np.prod(model.input_shape))
        self.labels_ = model.labels(model.target)
        self.private_prior_ = model.private_prior
        self.absent_classes_ = model.absent_classes
        self.reliability_ = model.reliability_of_decision
        self.history_ = {name: model.history.column(name) for name in model.history.columns}
        self.class_mass_ = np.array(model.history.class_mass[-1][1:]) if model.history.class_mass else None
        self._n_features_out = model.target_features.shape[1]  # for get_feature_names_out
