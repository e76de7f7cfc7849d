"""What all estimators share: fit to two arrays, predict for arrays, ask and tell, save and load."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesOut
from sklearn.exceptions import DataConversionWarning
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from torch import Tensor
from typing_extensions import Self

from uniot.config import Settings
from uniot.errors import DataError, NotFittedError, SettingsError, UniotWarning
from uniot.io.arrays import by_domain, check_feature_names, feature_names
from uniot.io.predictions import Prediction
from uniot.io.text import listed
from uniot.methods.registry import hyperparameters, method_info
from uniot.rejection.answers import answer_index
from uniot.reliability import Reliability
from uniot.runs.notebook import model_html, rows_as_numbers
from uniot.runs.run import Run
from uniot.training.domains import Domains, domains_from_arrays, inputs_of
from uniot.training.finalize import regrouped
from uniot.training.fit import FitContext, OnStep, fit, log_end
from uniot.training.history import ExperimentLogger, check_logger
from uniot.training.model import AdaptedModel
from uniot.training.processes import Processes
from uniot.training.samples import Augment
from uniot.training.true_labels import oracle_watch

PREFERENCES = ("n_private_classes", "private_prior", "prefer")
"""Parameters of every estimator that are settings as well."""


class _NotFitted(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]
    """The error of uniot as scikit-learn's, which its checks and `check_is_fitted` expect."""


class UniDAEstimator(NamesOut, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators. A subclass has a constructor, `_settings` and `_parameters_of`.

    Predictions are made row by row: the other rows of an array do not influence them.
    """

    # Requested by default: pipelines and searches that route metadata, such as skada's, pass it on to `fit`.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sample_domain": True}

    method: str
    n_private_classes: int | None
    private_prior: float | None
    prefer: str | None
    unknown_label: str | int | None
    random_state: int | np.random.RandomState | None

    labels_: np.ndarray
    """Source class or unknown label of each target row of `fit`, (n_target,)."""
    output_labels_: np.ndarray
    """Names of the columns of `predict_proba` and `decision_function`, (n_classes + 1,): `classes_`, then the unknown
    label."""
    private_prior_: float
    """Fraction of the target that the method itself rejects, an estimate of the private-class prior; the parameters
    `private_prior` and `prefer` do not change it."""
    absent_classes_: np.ndarray
    """Source classes that no target row is labelled with."""
    classes_: np.ndarray
    """Source classes, sorted, (n_classes,). A sample may also be unknown, which is no class, so `predict_proba` has one
    column more: `output_labels_` has the names of its columns."""
    settings_: Settings
    """Every setting with the value that was used."""
    history_: dict[str, list[float]]
    """Losses step by step; empty if nothing was trained."""
    reliability_: Reliability
    """Accuracy on the target, estimated without labels, and warnings; `fit` issues each as a `UniotWarning`."""
    class_mass_: np.ndarray | None
    """Mass of each source class after the last step, (n_classes,); None if the method has none."""
    n_features_in_: int
    """Numbers per sample."""
    feature_names_in_: np.ndarray
    """Column names of X, (n_features,), if it was a data frame with names that are text."""

    _model: AdaptedModel
    _has_old_groups: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        X_target: Any = None,
        *,
        sample_domain: Any = None,
        prototypes: Any = None,
        prototype_weight: float = 1.0,
        start: UniDAEstimator | None = None,
        run: str | Path | None = None,
        processes: Processes | None = None,
        oracle_y_target: Any = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Fit to a labelled source and an unlabelled target.

        Args:
            X: source embeddings, (n_source, n_features): array, tensor or data frame (pandas, polars, Arrow) of any
                numeric type and scale; or grey images, (n_source, height, width). It may contain target rows that
                somebody labelled.
            y: source labels, (n_source,), text or integers: array, list, series or frame of one column.
            X_target: target embeddings or images, (n_target, …).
            sample_domain: in place of X_target if X and y hold the rows of both domains: a number per row, negative
                for the target. Labels of target rows are not read. In a pipeline it is the simplest way, because the
                earlier steps transform X alone.
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
        if X_target is not None:
            _refuse_untransformed_target(self)
        settings, logger = self._settings(), self._experiment_logger
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
        domains = domains_from_arrays(X, y, X_target, settings, augment=self._augment, feature_names=names)
        if prototypes is not None:
            domains = domains.with_prototypes(prototypes, prototype_weight)
        watch = None
        if oracle_y_target is not None:
            watch = oracle_watch(oracle_y_target, domains.classes, len(domains.target))
        stored = None if run is None else Run.writer(run)
        context = FitContext(
            unknown=self.unknown_label,
            start=None if start is None else start.model_,
            checkpoints=None if stored is None else stored.checkpoints,
            finished=None if stored is None else stored.finished,
            processes=processes or Processes(),
            watch=watch,
            on_step=on_step,
            logger=logger,
        )
        model = self._fit_domains(domains, settings, context)
        if logger is not None and (processes is None or processes.rank == 0):
            log_end(logger, model)
        return self

    def _fit_domains(self, domains: Domains, settings: Settings, context: FitContext) -> AdaptedModel:
        """Fit to the domains, with a `UniotWarning` for each warning; those about the data come before the fit."""
        issued: list[str] = []

        def warn(words: str, stacklevel: int = 5) -> None:
            issued.append(words)
            warnings.warn(words, UniotWarning, stacklevel=stacklevel)

        model = fit(domains, settings, replace(context, warn=warn))
        for words in model.reliability_of_decision.warnings:
            if words not in issued:
                warn(words, stacklevel=4)
        self._set_fitted(model)
        return model

    def _settings(self) -> Settings:
        """Return the settings that the constructor was given; raise SettingsError if one is wrong or does nothing."""
        raise NotImplementedError

    def _checked_settings(self, given: Mapping[str, Any], network: str = "none") -> Settings:
        """Return validated settings.

        Args:
            given: hyper-parameters by name: settings that methods share, and options of this method.
            network: network that is trained in front of the method.
        """
        seed = self.random_state
        if seed is None or not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        values = {**given, **{name: getattr(self, name) for name in PREFERENCES}, "network": network}
        plain = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in values.items()
            if value is not None and name not in _NO_SETTINGS
        }
        shared = {name: value for name, value in plain.items() if name in Settings.model_fields}
        options = method_info(self.method).options.checked(
            **{name: value for name, value in plain.items() if name not in shared}
        )
        own = options.model_dump(include=options.model_fields_set, exclude_none=True)
        return Settings.checked(method=self.method, method_options=own, **shared, seed=int(seed))

    @property
    def _experiment_logger(self) -> ExperimentLogger | None:
        """Return the logger of the training; None if there is none."""
        return None

    @property
    def _augment(self) -> Augment | None:
        """Return the augmentation of labelled images; None if there is none."""
        return None

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

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's diagram for a notebook, and once fitted the result above it."""
        diagram = str(super()._repr_html_inner())
        if not self.__sklearn_is_fitted__() or not len(self.model_.target):
            return diagram
        return model_html(self._grouped_model, type(self).__name__, rows_as_numbers) + diagram

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        # Without it, scikit-learn is set to show text.
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

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

        scikit-learn expects a column per class. Here there is one more, because a sample may belong to none of them:
        `output_labels_` names the columns, so `model.output_labels_[probabilities.argmax(axis=1)]` are the labels, and
        `probabilities[:, :-1]` has the classes alone, whose rows need not sum to 1.
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

        Ask a person "is this one of my classes, and which?" and pass the answers to `tell`. Ask for one row at a time:
        each choice then uses all answers so far. Rows that are requested together are spread over the target.

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

    def save(self, folder: str | Path) -> None:
        """Write a run folder: settings, weights, predictions, history; never a pickle."""
        with Run.writer(folder, wait=True) as writer:
            writer.save(self._grouped_model)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the fitted estimator in a run folder; `uniot.load` finds the class itself."""
        return cls.from_model(Run.open(folder).answered_model)

    @classmethod
    def from_model(cls, model: AdaptedModel) -> Self:
        """Return a fitted estimator around a model; raise SettingsError if its method has another class."""
        estimator = cls(
            **cls._parameters_of(model.settings), unknown_label=model.unknown, random_state=model.settings.seed
        )
        estimator._set_fitted(model)
        return estimator

    @classmethod
    def _parameters_of(cls, settings: Settings) -> dict[str, Any]:
        """Return the constructor's arguments for the settings of a fitted model."""
        raise NotImplementedError

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
        """Return the private group per target row, -1 if known, (n_target,); made again after `tell`."""
        return self._grouped_model.target.group

    @property
    def n_private_classes_(self) -> int:
        """Return the number of private groups, estimated or as given; estimated again after `tell`."""
        return self._grouped_model.groups.n_groups

    @property
    def private_class_interval_(self) -> tuple[int, int]:
        """Return the smallest and the largest plausible number of private classes."""
        return self._grouped_model.groups.number.interval

    def _set_fitted(self, model: AdaptedModel) -> None:
        self._model, self._has_old_groups = model, False
        self.__dict__.pop("feature_names_in_", None)
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self.classes_ = model.classes
        self.output_labels_ = np.append(model.classes, model.unknown)
        self.settings_ = model.settings
        self.n_features_in_ = int(np.prod(model.input_shape))
        self.labels_ = model.labels(model.target)
        self.private_prior_ = model.private_prior
        self.absent_classes_ = model.absent_classes
        self.reliability_ = model.reliability_of_decision
        self.history_ = {name: model.history.column(name) for name in model.history.columns}
        self.class_mass_ = np.array(model.history.class_mass[-1][1:]) if model.history.class_mass else None
        self._n_features_out = model.target_features.shape[1]  # for get_feature_names_out


def _refuse_untransformed_target(estimator: UniDAEstimator) -> None:
    """Raise DataError if a pipeline above this call has transformed X and left X_target as it was.

    A pipeline of scikit-learn passes X_target to its last step alone. The estimator cannot see from its arguments that
    it is in a pipeline, so this function walks up the call stack and looks for one that ends with it.
    """
    frame = sys._getframe(2)
    for _ in range(_CALLS_ABOVE):
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller.steps[-1][1] is estimator:
            before = [name for name, step in caller.steps[:-1] if step is not None and step != "passthrough"]
            if before and "X_target" not in (getattr(caller, "transform_input", None) or ()):
                raise DataError(
                    f"the pipeline transforms X by {listed(before)} and would leave X_target as it is. Give the rows "
                    f"of both domains as X and mark those of the target, negative: `fit(X, y, "
                    f"{caller.steps[-1][0]}__sample_domain=domain)`; or transform both before `fit`."
                )
            return
        if frame.f_back is None:
            return
        frame = frame.f_back


# Calls between the pipeline and this one, those of decorators among them.
_CALLS_ABOVE = 12
# Parameters that are objects of the caller's, and so cannot be settings of a run.
_NO_SETTINGS = ("logger", "augmentation")


def acting_parameters(method: str, network: str) -> dict[str, Any]:
    """Return the hyper-parameters that act for a method, with their defaults; logger and augmentation are among them.

    Args:
        method: its name.
        network: network that is trained in front of the method; "none" for embeddings.
    """
    acting = hyperparameters(method, network)
    if "steps" in acting:
        acting["logger"] = None
    if network != "none":
        acting["augmentation"] = None
    return acting


def check_acting(method: str, network: str, given: Iterable[str]) -> dict[str, Any]:
    """Return the hyper-parameters that act; raise a SettingsError that lists them if one is given that does not.

    Args:
        method: its name.
        network: network that is trained in front of the method; "none" for embeddings.
        given: names of the given hyper-parameters.
    """
    if not isinstance(method, str):
        raise SettingsError(f"method is {method!r}. Give the name of a method; `uniot methods` lists them.")
    acting = acting_parameters(method, network)
    idle = [name for name in given if name not in acting]
    if idle:
        on = f" with network={network!r}" if network != "none" else ""
        raise SettingsError(
            f"{', '.join(idle)} {'does' if len(idle) == 1 else 'do'} nothing for the method {method!r}{on}. "
            f"Hyper-parameters that act are {', '.join(acting)}."
        )
    return acting


def stored_values(settings: Settings, names: Iterable[str], method: str | None = None) -> dict[str, Any]:
    """Return the values of a fitted model, for names of shared settings and of the method's own options.

    Raises:
        SettingsError: the model is of another method than `method`.
    """
    if method not in (None, settings.method):
        raise SettingsError(f"this is a run of {settings.method!r}. Open it with `uniot.load(folder)`.")
    values = settings.model_dump()
    values |= values.pop("method_options")
    return {name: values[name] for name in names if name in values}
