"""No constructor argument does nothing: changing each one that is listed changes the fitted result."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from uniot import UniDAClassifier, UniNCM, UniOT
from uniot.datasets import make_toy_domains
from uniot.methods.registry import METHODS, hyperparameters

from tiers import slow_unless  # isort: skip

TOY = make_toy_domains(samples_per_class=12, dimensions=16, spread=1.0)
EMBEDDINGS = (TOY.x_source, TOY.y_source, TOY.x_target)
# `follows_target` acts only if the shift is large.
FOLLOW = ("calibrated", "clip-distill", "zero-shot")
SHIFTED = (TOY.x_source, TOY.y_source, TOY.x_target + 1)
PIXELS = np.random.default_rng(0).random((30, 12, 12)).astype(np.float32) / 2
PIXELS[::2, 3:8] += 0.4
IMAGES = (PIXELS, np.arange(30) % 3, PIXELS)
# Small enough to be fitted hundreds of times; the number of groups is given, because counting takes longest.
SMALL = {"steps": 8, "batch_size": 12, "queue_size": 24, "feature_size": 8, "hidden_size": 8, "detection_start": 2}
SMALL |= {"discriminator_size": 8, "confidence": 0.25}
# Parameters that act only with another value of a second one: halves are for calibration, and with more candidates than
# samples the search ends at once.
ACTS_WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("zero-shot", "n_halves"): {"calibrates": True},
    ("zero-shot", "follows_target"): {"calibrates": True},
    ("tasc", "rounds"): {"n_candidates": 8},
}
# Values for parameters whose default is None, and for those of which half, or the opposite, makes no difference on
# few steps and few samples.
OTHER = {
    "n_clusters": 3,
    "n_neighbours": 2,
    "label_updates": 2,
    "width": 4,
    "learning_rate": 0.003,
    "backbone_learning_rate": 0.02,
    "kernel_factor": 3.0,
    "refreshes": 2,
    "rounds": 1,
    "marginal_penalty": 5.0,
    "tolerance": 0.9,
    "drawn_classes": 1,
    "warmup": 0.5,
    "pretraining": 0.25,
    "most_false": 0.5,
    "n_candidates": 8,
    "alpha_rate": 0.9,
    # Whatever the p-value is, private classes are found.
    "significance": 1.0,
    # LEAD needs more features than classes.
    "feature_size": 6,
    "n_private_classes": 3,
    "private_prior": 0.3,
    "prefer": "known",
    "unknown_label": "none of these",
    "random_state": 1,
    "augmentation": lambda images, _generator: 1 - images,
}


def changed(name: str, value: Any) -> Any:
    """Return another value of a parameter: from `OTHER`, the opposite, or half."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return max(1, value // 2) if value > 1 else value + 1
    return value / 2


def result(model: Any, data: tuple) -> str:
    """Return all that a fit leads to: losses, and decisions for the rows of the fit and for new ones."""
    model.fit(*data)
    scores = [model.decision_function(rows).tolist() for rows in (data[2], data[0][::2] * 0.9)]
    return repr([model.model_.history.rows, scores, model.labels_.tolist(), model.groups_.tolist()])


def idle_parameters(parameters: dict[str, Any], fitted: Any) -> list[str]:
    """Return the parameters of which another value does not change the result; `fitted` goes from values to it."""
    usual = fitted()
    return [name for name, value in parameters.items() if fitted(**{name: changed(name, value)}) == usual]


def of_method(method: str, network: str = "none", **change: Any) -> str:
    small = {name: value for name, value in SMALL.items() if name in hyperparameters(method, network)}
    model = UniDAClassifier(method, network=network, n_private_classes=2, random_state=0, **(small | change))
    embeddings = SHIFTED if method in FOLLOW else EMBEDDINGS
    return result(model, embeddings if network == "none" else IMAGES)


@pytest.mark.filterwarnings("ignore::uniot.errors.UniotWarning")
@pytest.mark.parametrize(
    ("method", "network"),
    slow_unless([*((one, "none") for one in METHODS), ("uniot", "small-cnn")], [("unincm", "none"), ("dance", "none")]),
)
def test_every_listed_hyperparameter_acts(method: str, network: str) -> None:
    listed = hyperparameters(method, network)
    # It decides how often a run folder is written to, as the tests of the loop show.
    listed.pop("checkpoint_every", None)
    parameters = {name: SMALL.get(name, value) for name, value in listed.items()}
    fitted = functools.partial(of_method, method, network)
    second = {name: ACTS_WITH[method, name] for name in parameters if (method, name) in ACTS_WITH}
    assert idle_parameters({name: parameters[name] for name in parameters.keys() - second.keys()}, fitted) == []
    for name, others in second.items():
        assert idle_parameters({name: parameters[name]}, functools.partial(fitted, **others)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::uniot.errors.UniotWarning")
def test_every_argument_of_unincm_acts() -> None:
    parameters = UniNCM().get_params()
    # Without a network there is nothing to train, and without many samples nothing is drawn.
    for name in ("trainer", "random_state"):
        del parameters[name]
    assert idle_parameters(parameters, lambda **given: result(UniNCM(**{"random_state": 0, **given}), EMBEDDINGS)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::uniot.errors.UniotWarning")
def test_every_argument_of_uniot_on_images_acts() -> None:
    small = {name: value for name, value in SMALL.items() if name in UniOT().get_params()}
    usual = {**small, "network": "small-cnn", "random_state": 0, "n_private_classes": 2}
    images = (IMAGES[0], IMAGES[1].astype(str), IMAGES[2])
    names = ("augmentation", "private_prior", "prefer", "unknown_label", "random_state", "n_private_classes")
    parameters = UniOT(**usual).get_params()
    assert (
        idle_parameters(
            {name: parameters[name] for name in names}, lambda **given: result(UniOT(**(usual | given)), images)
        )
        == []
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::uniot.errors.UniotWarning")
def test_every_argument_of_the_trainer_of_unincm_acts() -> None:
    small = {name: value for name, value in SMALL.items() if name in UniOT().get_params()}

    def fitted(**given: Any) -> str:
        trainer = UniOT(network="small-cnn", **(small | given))
        return result(UniNCM(trainer=trainer, n_private_classes=2, random_state=0), IMAGES)

    parameters = {**hyperparameters("uniot", "small-cnn"), **small, "augmentation": None}
    del parameters["checkpoint_every"]
    assert idle_parameters(parameters, fitted) == []
