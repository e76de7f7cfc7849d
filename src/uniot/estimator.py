"""UniOT as a scikit-learn estimator: arrays in, arrays out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from torch import Tensor

from uniot.adaptation import OnStep, log_end
from uniot.arrays import adapt_arrays, inputs_of
from uniot.data.domains import by_domain
from uniot.errors import DataError, NotFittedError, SettingsError, UniotWarning
from uniot.experiment_loggers import ExperimentLogger, check_logger
from uniot.methods import check_method
from uniot.model import AdaptedModel
from uniot.model_files import load_model, save_model
from uniot.prediction import Prediction
from uniot.processes import Processes
from uniot.settings import Settings

_VARIANTS = {"paper": "uniot", "universal": "uniot-universal"}
_DEFAULT_METHOD = Settings.checked().method
_FROM_SETTINGS = tuple(name for name in Settings.model_fields if name != "seed")


class UniOT(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels an unlabelled collection by a labelled one from elsewhere, and says what is in neither.

    Args:
        variant: of UniOT: "paper" as published, "universal" for what goes beyond it; short for the methods "uniot" and
            "uniot-universal". The method decides if None.
        method: which method labels the target: "uniot-universal", or another that `uniot methods` lists. What follows
            up to `weight_decay` is of training, and "uniot-universal" trains only where a network is trained.
        method_options: hyper-parameters of that method alone.
        n_clusters: cluster prototypes K; from the target's size if None.
        queue_size: target features kept in the queue; from the target's size if None.
        steps: training steps; from the target's size if None.
        batch_size: samples of each domain in a step.
        hidden_size: width of the projection's hidden layer.
        feature_size: width of a feature.
        input_norm: every embedding is scaled to this norm, so the scale it came in does not matter.
        temperature: τ.
        adaptation_weight: λ, weight of both target losses.
        similarity_threshold: γ, rough border of positive and negative rows in adaptive filling.
        class_mass_momentum: μ, memory of the class mass β.
        epsilon: entropy of the unbalanced transport.
        marginal_penalty: κ, penalty on its marginals.
        balanced_epsilon: entropy of the balanced transport.
        balanced_iterations: its scaling steps.
        detection_start: step after which common-class detection trains.
        learning_rate: of all layers but the backbone, at the start; the method's own if None.
        backbone_learning_rate: of the backbone, at the start; a tenth of the other if None.
        momentum: of stochastic gradient descent.
        weight_decay: of stochastic gradient descent.
        network: "none" for embeddings (n, d); "small-cnn" for small grey images (n, height, width) from 0 to 1.
        n_private_classes: private groups to find; estimated if None.
        private_prior: fraction of the target that is to be unknown, from 0 to 1; the rule decides if None.
        prefer: "known" halves the fraction that the rule calls unknown, "unknown" the fraction that it calls known;
            neither if None. Give this or `private_prior`, not both.
        unknown_label: what unknown samples are called; "unknown" for text classes and -1 for integers if None.
        store_target: whether the target's embeddings are kept, where the method looks at neighbours; without them new
            samples are compared with averages of at least five target samples each.
        checkpoint_every: steps between two checkpoints, where `fit` is given a folder.
        logger: where settings, losses step by step and the final estimates are logged, if the method trains: an object
            with `log_hyperparams`, `log_metrics` and `finalize`, as the loggers of lightning fabric have; nowhere if
            None.
        random_state: integer, `RandomState`, or None for another result each time.

    Attributes:
        labels_: one per target row of `fit`: a source class, or the unknown label.
        groups_: private group of each unknown target row, -1 where known.
        n_private_classes_: how many groups there are, estimated or as given.
        private_class_interval_: between which numbers that lies.
        private_prior_: fraction of the target that the rule calls unknown, an estimate of the private-class prior;
            `private_prior` and `prefer` do not change it.
        absent_classes_: source classes that the target seems to lack.
        classes_: source classes, sorted.
        settings_: every setting with the value that was used.
        history_: losses step by step.
        reliability_: estimated accuracy on the target, without labels, and warnings; `fit` issues each as a
            `UniotWarning`.
        class_mass_: β, the mass that each source class was given in the end; None where the method has no such thing.
    """

    # Pipelines and searches that route metadata hand it on without being asked to, those of skada among them.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sample_domain": True}

    def __init__(
        self,
        *,
        variant: str | None = None,
        method: str = _DEFAULT_METHOD,
        method_options: Mapping[str, bool | int | float | str] | None = None,
        n_clusters: int | None = None,
        queue_size: int | None = None,
        steps: int | None = None,
        batch_size: int = 36,
        hidden_size: int = 2048,
        feature_size: int = 256,
        input_norm: float = 30.0,
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
        backbone_learning_rate: float | None = None,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        network: str = "none",
        n_private_classes: int | None = None,
        private_prior: float | None = None,
        prefer: str | None = None,
        store_target: bool = True,
        unknown_label: str | int | None = None,
        checkpoint_every: int = 100,
        logger: ExperimentLogger | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.variant = variant
        self.method = method
        self.method_options = method_options
        self.n_clusters = n_clusters
        self.queue_size = queue_size
        self.steps = steps
        self.batch_size = batch_size
        self.hidden_size = hidden_size
        self.feature_size = feature_size
        self.input_norm = input_norm
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
        self.backbone_learning_rate = backbone_learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.network = network
        self.n_private_classes = n_private_classes
        self.private_prior = private_prior
        self.prefer = prefer
        self.store_target = store_target
        self.unknown_label = unknown_label
        self.checkpoint_every = checkpoint_every
        self.logger = logger
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        X_target: Any = None,
        *,
        sample_domain: Any = None,
        start: UniOT | None = None,
        run: str | Path | None = None,
        processes: Processes | None = None,
        oracle_y_target: Any = None,
        on_step: OnStep | None = None,
    ) -> UniOT:
        """Learns from a labelled source and an unlabelled target.

        Args:
            X: source embeddings, (n, d): numpy, torch or DataFrame, any numeric type, any scale. Rows of the
                target that you labelled may be among them.
            y: source labels, (n,), text or whole numbers.
            X_target: target embeddings, (m, d).
            sample_domain: instead of X_target, where X and y hold the rows of both domains: one number per row of X,
                negative for the target. The labels of these rows are not looked at; all other rows are the source.
            start: a fitted estimator to go on from: its weights, and the prototypes of the classes that it had.
            run: folder for checkpoints. A `fit` that was interrupted goes on from there when it is called again
                with the same data and settings.
            processes: who shares the work, from `uniot.processes.start_processes`; every process calls `fit` with all
                the data.
            oracle_y_target: true target labels. They add the columns `oracle_recall` and `oracle_specificity` of
                the detection to `history_` and nothing else.
            on_step: called with step, number of steps and numbers of the step.
        """
        settings = self._given_settings()
        check_method(settings)
        if self.logger is not None:
            check_logger(self.logger)
        if sample_domain is not None:
            if X_target is not None:
                raise DataError("X_target and sample_domain were both given. Give the one or the other.")
            X, y, X_target = by_domain(X, y, sample_domain)
        if X_target is None:
            raise DataError(
                "X_target is missing. Call fit(X_source, y_source, X_target): the target is what is adapted to. "
                "Where X holds the rows of both, say which are the target's: fit(X, y, sample_domain=…), negative "
                "there."
            )
        model = adapt_arrays(
            X,
            y,
            X_target,
            settings,
            unknown=self.unknown_label,
            start=None if start is None else start.model_,
            run=None if run is None else Path(run),
            processes=processes,
            oracle_y_target=oracle_y_target,
            on_step=on_step,
            logger=self.logger,
        )
        if self.logger is not None and (processes is None or processes.rank == 0):
            if not model.settings.steps:
                warnings.warn(f"{settings.method} trains nothing, so nothing was logged.", UniotWarning, stacklevel=2)
            log_end(self.logger, model)
        for words in () if model.reliability is None else model.reliability.warnings:
            warnings.warn(words, UniotWarning, stacklevel=2)
        return self._set_fitted(model)

    def predict(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> np.ndarray:
        """A source class or the unknown label for each row, fitted or new; each row is judged on its own.

        Args:
            X: embeddings, (n, d), or small grey images, as in `fit`.
            private_prior: fraction of the fitted target that is to be unknown, instead of what `fit` was given.
            prefer: "known" or "unknown", likewise. Nothing is fitted again: the threshold alone changes.
        """
        return self.model_.labels(self.predict_full(X, private_prior=private_prior, prefer=prefer))

    def predict_full(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> Prediction:
        """Return everything that is known of each row; preferences as in `predict`."""
        return self.model_.with_preference(private_prior, prefer).predict(self._inputs(X))

    def predict_proba(self, X: Any, *, private_prior: float | None = None, prefer: str | None = None) -> np.ndarray:
        """(n, c + 1): the columns are `classes_` and then unknown; the largest is what `predict` says.

        It is the confidence too. Preferences as in `predict`.
        """
        return self.model_.with_preference(private_prior, prefer).probabilities(self._inputs(X))

    def predict_group(self, X: Any) -> np.ndarray:
        """Private group of each row that is unknown, -1 where it is known."""
        return self.predict_full(X).group

    def confidence(self, X: Any) -> np.ndarray:
        """Probability of what `predict` says of each row, (n,): of its class, or of being unknown.

        Calibrated to the estimated accuracy in `reliability_`, if there is one.
        """
        return self.predict_full(X).confidence

    def known_score(self, X: Any) -> np.ndarray:
        """From 0 to 1 what speaks for each row being of a source class, (n,); known from one half on.

        For a ranking, as AUROC and OSCR look at; `confidence` is a probability.
        """
        return self.predict_full(X).known_score

    def transform(self, X: Any) -> np.ndarray:
        """The adapted features of unit norm, (n, feature_size)."""
        return self.model_.features(self._inputs(X))

    def save(self, folder: str | Path) -> None:
        """Writes a run folder: settings, weights, predictions, history. Never a pickle."""
        save_model(self.model_, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> UniOT:
        """A fitted estimator from a run folder."""
        return cls.from_model(load_model(Path(folder)))

    @classmethod
    def from_model(cls, model: AdaptedModel) -> UniOT:
        """A fitted estimator around what was learnt."""
        values = model.settings.model_dump()
        estimator = cls(
            **{name: values[name] for name in _FROM_SETTINGS}, unknown_label=model.unknown, random_state=values["seed"]
        )
        return estimator._set_fitted(model)

    @property
    def model_(self) -> AdaptedModel:
        """Everything that was learnt."""
        if not hasattr(self, "_model"):
            raise NotFittedError("this UniOT has not been fitted. Call fit(X_source, y_source, X_target) first.")
        return self._model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def _set_fitted(self, model: AdaptedModel) -> UniOT:
        self._model = model
        self.classes_ = model.classes
        self.settings_ = model.settings
        self.n_features_in_ = int(np.prod(model.input_shape))
        self.labels_ = model.labels(model.target)
        self.groups_ = model.target.group
        self.n_private_classes_ = model.groups.n_groups
        self.private_class_interval_ = model.groups.number.interval
        self.private_prior_ = model.private_prior
        self.absent_classes_ = model.classes[model.absence > 0.5]
        self.reliability_ = model.reliability
        self.history_ = {name: model.history.column(name) for name in model.history.columns}
        self.class_mass_ = np.array(model.history.class_mass[-1][1:]) if model.history.class_mass else None
        return self

    def _given_settings(self) -> Settings:
        state = self.random_state
        if state is None or not isinstance(state, (int, np.integer)):
            state = int(check_random_state(state).randint(2**31 - 1))
        given = {name: getattr(self, name) for name in _FROM_SETTINGS}
        given = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        given["method"] = self._method()
        given["method_options"] = dict(self.method_options or {})
        return Settings.checked(**given, seed=int(state))

    def _method(self) -> str:
        if self.variant is None:
            return self.method
        if self.variant not in _VARIANTS:
            raise SettingsError(f"variant is {self.variant!r}. Give one of {', '.join(map(repr, _VARIANTS))}, or none.")
        named = _VARIANTS[self.variant]
        if self.method not in (_DEFAULT_METHOD, named):
            raise SettingsError(
                f"variant {self.variant!r} is of UniOT, and method is {self.method!r}. Give the one or the other."
            )
        return named

    def _inputs(self, X: Any) -> Tensor:
        return inputs_of(X, self.model_)
