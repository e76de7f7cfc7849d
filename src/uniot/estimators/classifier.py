"""Any method by its name, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from uniot.config import Settings
from uniot.errors import UniotWarning
from uniot.estimators.base import PREFERENCES, UniDAEstimator, acting_parameters, check_acting, stored_values
from uniot.io.arrays import feature_names
from uniot.methods.registry import hyperparameters
from uniot.training.fit import FitContext
from uniot.training.history import ExperimentLogger
from uniot.training.samples import Augment
from uniot.training.source_model import SourceModel, check_source_free, train_source


class UniDAClassifier(UniDAEstimator):
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
        self.method = method
        self.network = network
        self.n_private_classes = n_private_classes
        self.private_prior = private_prior
        self.prefer = prefer
        self.unknown_label = unknown_label
        self.random_state = random_state
        self._changed = _changed(hyperparameters, method, network)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return every parameter with its value, the hyper-parameters that act for the method among them."""
        named: dict[str, Any] = super().get_params(deep)
        return {**named, **acting_parameters(self.method, self.network), **self._changed}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; hyper-parameters that were set before stay set if the method changes."""
        named = {name: params.pop(name) for name in list(params) if name in self._get_param_names()}
        # Checked before anything is set, so that an error leaves the estimator as it was.
        changed = _changed(
            {**self._changed, **params}, named.get("method", self.method), named.get("network", self.network)
        )
        for name, value in named.items():
            setattr(self, name, value)
        self._changed = changed
        return self

    def fit_source(self, X: Any, y: Any) -> SourceModel:
        """Train on the source alone, for `fit_target` at a place that does not have the source.

        Args:
            X: source embeddings, (n_source, n_features).
            y: source labels, (n_source,), text or integers.

        Returns:
            The source model; `save` writes it to a file.
        """

        def warn(words: str) -> None:
            warnings.warn(words, UniotWarning, stacklevel=4)

        return train_source(X, y, self._settings(), feature_names=feature_names(X), warn=warn)

    def fit_target(self, X_target: Any, source_model: SourceModel | str | Path) -> Self:
        """Adapt a source model to a target, without the source.

        Args:
            X_target: target embeddings, (n_target, n_features).
            source_model: from `fit_source`, or the file that it was saved to.

        Returns:
            The estimator, fitted as by `fit`.
        """
        settings = self._settings()
        check_source_free(settings)
        source = source_model if isinstance(source_model, SourceModel) else SourceModel.load(source_model)
        context = FitContext(unknown=self.unknown_label, source_weights=source.weights)
        domains = source.domains(X_target, settings, feature_names=feature_names(X_target))
        self._fit_domains(domains, settings, context)
        return self

    def _settings(self) -> Settings:
        return self._checked_settings(self._changed, self.network)

    @property
    def _experiment_logger(self) -> ExperimentLogger | None:
        return self._changed.get("logger")

    @property
    def _augment(self) -> Augment | None:
        return self._changed.get("augmentation")

    @classmethod
    def _parameters_of(cls, settings: Settings) -> dict[str, Any]:
        acting = hyperparameters(settings.method, settings.network)
        return stored_values(settings, ("method", "network", *PREFERENCES, *acting))


def _changed(given: Mapping[str, Any], method: str, network: str) -> dict[str, Any]:
    """Return the hyper-parameters that differ from the defaults, so that another method can be set later.

    Raises:
        SettingsError: one of them does not act for the method.
    """
    acting = check_acting(method, network, given)
    return {name: value for name, value in given.items() if value is not acting[name] and value != acting[name]}
