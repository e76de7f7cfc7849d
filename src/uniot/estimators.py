"""Scikit-learn estimators: UniOT (the paper's method), UniNCM (this project's) and any method by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesOut
from sklearn.utils import check_random_state
from typing_extensions import Self

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.registry import hyperparameters
from uniot.runs.run import Run
from uniot.training.history import ExperimentLogger
from uniot.training.model import AdaptedModel
from uniot.training.parameters import acting_parameters, check_acting, keep_arguments, names_its_successor, values_of
from uniot.training.predictor import ArrayPredictor
from uniot.training.samples import Augment
from uniot.training.source_model import SourceFreeFit

_OF_EVERY_METHOD = ("n_private_classes", "private_prior", "prefer")
_NO_SETTINGS = {"unknown_label", "logger", "augmentation", "random_state", "trainer"}


def load(folder: str | Path) -> UniOT | UniNCM | UniDAClassifier:
    """Return the fitted estimator in a run folder, of the class of its method."""
    model = Run.open(folder).answered_model
    kinds: dict[str, type[UniOT | UniNCM | UniDAClassifier]] = {"uniot": UniOT, "unincm": UniNCM}
    return kinds.get(model.settings.method, UniDAClassifier).from_model(model)


class _UniDAEstimator(ArrayPredictor, NamesOut, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    # Pipelines and searches that route metadata pass it on without a request, those of skada among them.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sample_domain": True}
    random_state: int | np.random.RandomState | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

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
        estimator = cls(**cls._parameters_of(model), unknown_label=model.unknown, random_state=model.settings.seed)
        estimator._set_fitted(model)
        return estimator

    @classmethod
    def _parameters_of(cls, model: AdaptedModel) -> dict[str, Any]:
        raise NotImplementedError

    def _values(self) -> dict[str, Any]:
        """Return the method, its settings and its hyper-parameters, as the constructor was given them."""
        return dict(self.get_params(deep=False))

    def _stored_in(self, run: str | Path | None) -> Any:
        return None if run is None else Run.writer(run)

    def _training_parameters(self) -> dict[str, Any]:
        return dict(self.get_params(deep=False))

    def _settings(self) -> Settings:
        state = self.random_state
        if state is None or not isinstance(state, (int, np.integer)):
            state = int(check_random_state(state).randint(2**31 - 1))
        given = {name: value for name, value in self._values().items() if name not in _NO_SETTINGS}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        return Settings.checked(**{name: value for name, value in plain.items() if value is not None}, seed=int(state))


class UniOT(_UniDAEstimator):
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

    @names_its_successor
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
        keep_arguments(self, locals())

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = self.get_params(deep=False)
        absent = ("backbone_learning_rate", "augmentation") if values["network"] == "none" else ("input_norm",)
        defaults = type(self)().get_params(deep=False)
        check_acting("uniot", values["network"], {n: None for n in absent if values[n] != defaults[n]})
        return {"method": "uniot", **values}

    @classmethod
    def _parameters_of(cls, model: AdaptedModel) -> dict[str, Any]:
        acting = hyperparameters("uniot", model.settings.network)
        return values_of(model, {"network": None, **dict.fromkeys(_OF_EVERY_METHOD), **acting}, "uniot")


class UniNCM(_UniDAEstimator):
    """Universal nearest class mean, this project's own method: closed-form, in seconds, with no network to train.

    Both domains are centred and whitened, target rows are averaged with their neighbours, and a row is rejected by its
    similarity to the nearest class mean, with an estimated private-class prior.

    Args:
        n_neighbours: neighbours that a target row is averaged with; 0 disables smoothing, None derives it from the
            target's size.
        width: principal directions of the embeddings that are kept at most.
        shrinkage: of the within-class covariance towards a sphere.
        own_centres: whether each domain is centred on its own mean.
        whitens: whether directions that vary within classes are scaled down.
        estimates_prior: whether the private-class prior is estimated; otherwise it is one half.
        store_target: whether the target's rows are kept as neighbours of new rows; otherwise new rows are compared with
            averages of at least five target rows each.
        trainer: a `UniOT(network="small-cnn", …)` whose losses train a network on grey images first; None for
            embeddings. Its parameters are reachable as `trainer__steps` and so on.

    The other parameters are those of `UniOT`; set them here, not in the trainer.
    """

    def __init__(
        self,
        *,
        n_neighbours: int | None = None,
        width: int = 256,
        shrinkage: float = 0.3,
        own_centres: bool = True,
        whitens: bool = True,
        estimates_prior: bool = True,
        store_target: bool = True,
        trainer: UniOT | None = None,
        n_private_classes: int | None = None,
        private_prior: float | None = None,
        prefer: str | None = None,
        unknown_label: str | int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def _values(self) -> dict[str, Any]:
        own: dict[str, Any] = {**self.get_params(deep=False), "method": "unincm"}
        trainer = own["trainer"]
        if trainer is None:
            return own
        if not isinstance(trainer, UniOT) or trainer.get_params()["network"] == "none":
            raise SettingsError(
                f"trainer is {trainer}, which trains no network. Give UniOT(network='small-cnn') and grey images, or "
                "leave the trainer out: embeddings need none."
            )
        values = trainer._values()
        misplaced = [n for n in (*_OF_EVERY_METHOD, "unknown_label", "random_state") if values[n] is not None]
        if misplaced:
            raise SettingsError(f"{misplaced[0]} of the trainer does nothing. Give it to UniNCM itself.")
        return values | own

    def _training_parameters(self) -> dict[str, Any]:
        trainer = self.get_params(deep=False)["trainer"]
        return {} if trainer is None else trainer._training_parameters()

    @classmethod
    def _parameters_of(cls, model: AdaptedModel) -> dict[str, Any]:
        network = model.settings.network
        own = values_of(model, {**dict.fromkeys(_OF_EVERY_METHOD), **hyperparameters("unincm")}, "unincm")
        if network != "none":
            own["trainer"] = UniOT(**values_of(model, {"network": None, **hyperparameters("uniot", network)}))
        return own


class UniDAClassifier(_UniDAEstimator, SourceFreeFit):
    """Any method of universal domain adaptation by its name. The other parameters are those of `UniOT`.

    Args:
        method: name of a method; `uniot methods` lists them.
        network: "none" for embeddings; "small-cnn" trains a network on grey images with values from 0 to 1.
        **hyperparameters: those that act for the method: `get_params` lists them with their values.

    Raises:
        SettingsError: a hyper-parameter is not known or does not act; the message lists those that do.
    """

    def __init__(
        self,
        method: str = "unincm",
        *,
        network: str = "none",
        n_private_classes: int | None = None,
        private_prior: float | None = None,
        prefer: str | None = None,
        unknown_label: str | int | None = None,
        random_state: int | np.random.RandomState | None = None,
        **hyperparameters: Any,
    ) -> None:
        keep_arguments(self, {name: value for name, value in locals().items() if name != "hyperparameters"})
        self._changed = self._checked(hyperparameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return every parameter with its value, the hyper-parameters that act for the method among them."""
        named: dict[str, Any] = super().get_params(deep)
        return {**named, **acting_parameters(named["method"], named["network"]), **self._changed}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; hyper-parameters that were set before stay set if the method changes."""
        named = {name: params.pop(name) for name in list(params) if name in self._get_param_names()}
        # Checked before anything is set, so that an error leaves the estimator as it was.
        changed = self._checked({**self._changed, **params}, **named)
        keep_arguments(self, named)
        self._changed = changed
        return self

    def _checked(self, given: Mapping[str, Any], **named: Any) -> dict[str, Any]:
        """Return what differs from the defaults, so that another method can be set later."""
        method, network = ({**vars(self), **named}[name] for name in ("method", "network"))
        acting = check_acting(method, network, given)
        return {name: value for name, value in given.items() if value is not acting[name] and value != acting[name]}

    @classmethod
    def _parameters_of(cls, model: AdaptedModel) -> dict[str, Any]:
        acting = hyperparameters(model.settings.method, model.settings.network)
        return values_of(model, {"method": None, "network": None, **dict.fromkeys(_OF_EVERY_METHOD), **acting})
