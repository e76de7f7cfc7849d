"""UniNCM, this project's own method, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.estimators.base import PREFERENCES, UniDAEstimator, stored_values
from uniot.estimators.uniot import UniOT
from uniot.methods.registry import hyperparameters
from uniot.training.history import ExperimentLogger
from uniot.training.samples import Augment


class UniNCM(UniDAEstimator):
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

    method = "unincm"

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
        self.n_neighbours = n_neighbours
        self.width = width
        self.shrinkage = shrinkage
        self.own_centres = own_centres
        self.whitens = whitens
        self.estimates_prior = estimates_prior
        self.store_target = store_target
        self.trainer = trainer
        self.n_private_classes = n_private_classes
        self.private_prior = private_prior
        self.prefer = prefer
        self.unknown_label = unknown_label
        self.random_state = random_state

    def _settings(self) -> Settings:
        own = {name: getattr(self, name) for name in hyperparameters(self.method)}
        trainer: object = self.trainer
        if trainer is None:
            return self._checked_settings(own)
        if not isinstance(trainer, UniOT) or trainer.network == "none":
            raise SettingsError(
                f"trainer is {trainer}, which trains no network. Give UniOT(network='small-cnn') and grey images, or "
                "leave the trainer out: embeddings need none."
            )
        misplaced = [
            name for name in (*PREFERENCES, "unknown_label", "random_state") if getattr(trainer, name) is not None
        ]
        if misplaced:
            raise SettingsError(f"{misplaced[0]} of the trainer does nothing. Give it to UniNCM itself.")
        return self._checked_settings(trainer._hyperparameters() | own, trainer.network)

    @property
    def _experiment_logger(self) -> ExperimentLogger | None:
        return None if self.trainer is None else self.trainer.logger

    @property
    def _augment(self) -> Augment | None:
        return None if self.trainer is None else self.trainer.augmentation

    @classmethod
    def _parameters_of(cls, settings: Settings) -> dict[str, Any]:
        own = stored_values(settings, (*PREFERENCES, *hyperparameters(cls.method)), cls.method)
        if settings.network != "none":
            of_training = hyperparameters(UniOT.method, settings.network)
            own["trainer"] = UniOT(**stored_values(settings, ("network", *of_training)))
        return own
