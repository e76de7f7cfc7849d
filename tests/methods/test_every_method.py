"""Every method from arrays to decisions on toy data: how good it is, and what its answers may not depend on."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.methods.registry import METHODS, hyperparameters
from uniot.methods.unincm.method import INFOS as UNIVERSAL_VARIANTS
from uniot.methods.uniot_learners import INFOS as LEARNERS
from uniot.methods.uniot_variants import INFOS as VARIANTS
from uniot.metrics.accuracy import h_score

from tiers import FAMILIES, slow_unless  # isort: skip

pytestmark = pytest.mark.medium

TOY = make_toy_domains(n_common=6, n_source_private=4, n_target_private=4, samples_per_class=20)
SMALL = make_toy_domains()
WIDE = make_toy_domains(6, 6, 3, samples_per_class=20, dimensions=256, shift=0.3)
# As embeddings of a network have it: a direction that all samples share, and that classifiers without a bias need.
SHARING = replace(WIDE, x_source=WIDE.x_source + 1 / 16, x_target=WIDE.x_target + 1 / 16)


@dataclass(frozen=True)
class Trial:
    """How a method is tried.

    Attributes:
        h: the H-score has to be above this, where answers at random have 0.07 to 0.17.
        options: of the method alone.
        data: source and target.
        settings: of the run. The number of private classes is given: no label depends on it, and counting takes long.
        killed_at: steps after which a run is killed, each once; not those of a checkpoint.
    """

    h: float
    options: Mapping[str, Any] = field(default_factory=dict)
    data: ToyDomains = TOY
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {
            "steps": 100,
            "checkpoint_every": 40,
            "queue_size": 360,
            "learning_rate": 0.01,
            "feature_size": 32,
            "input_norm": 10.0,
            "n_private_classes": 4,
        }
    )
    killed_at: tuple[int, ...] = (42,)


OF_UNIOT = {
    "steps": 50,
    "checkpoint_every": 20,
    "hidden_size": 64,
    "feature_size": 32,
    "queue_size": 200,
    "detection_start": 10,
    "n_private_classes": 3,
}
OPEN_SET = {
    "steps": 60,
    "checkpoint_every": 10,
    "learning_rate": 0.01,
    "feature_size": 32,
    "n_private_classes": 3,
}
# Half of the steps train the source model, so they have to be long.
SOURCE_FREE = {
    "steps": 100,
    "checkpoint_every": 40,
    "queue_size": 360,
    "learning_rate": 0.05,
    "feature_size": 32,
    "n_private_classes": 3,
}
TRIALS = {
    "uniot": Trial(0.7, {}, SMALL, OF_UNIOT, (22,)),
    # Nothing is trained, so there is no step at which it could be killed.
    "unincm": Trial(0.8, {}, SMALL, OF_UNIOT, ()),
    **{info.name: Trial(0.6, {}, SMALL, OF_UNIOT, ()) for info in UNIVERSAL_VARIANTS},
    **{info.name: Trial(0.5, {}, SMALL, OF_UNIOT, (22,)) for info in (*VARIANTS, *LEARNERS)},
    "source-only": Trial(0.8),
    "calibrated": Trial(0.8, killed_at=()),
    "clip-distill": Trial(0.8, {"distillation_steps": 100}, killed_at=()),
    # Cosines to class means differ little at 0.05: most samples are unknown.
    "zero-shot": Trial(0.3, killed_at=()),
    "dann": Trial(0.8, {"discriminator_size": 64}),
    "rtn": Trial(0.5),
    "iwan": Trial(0.7, {"discriminator_size": 64}),
    "pada": Trial(0.8, {"discriminator_size": 64}),
    # ATI collects up to step 20 and trains on what it found from there.
    "ati": Trial(0.9, {}, SHARING, OPEN_SET, (12, 42)),
    "osbp": Trial(0.7, {}, SHARING, OPEN_SET, (22,)),
    # UAN's published border suits features on which its watching discriminator has more to go by; here d' is about ½.
    "uan": Trial(0.8, {"discriminator_size": 64, "threshold": -0.1}),
    "cmu": Trial(0.9, {"discriminator_size": 64}),
    "dance": Trial(0.8, {}, SHARING, OPEN_SET, (22,)),
    "dcc": Trial(0.6, {"rounds": 5}),
    "tnt": Trial(0.8),
    # Killed in the alignment, and in the self-training.
    "maths": Trial(0.9, killed_at=(12, 72)),
    "ovanet": Trial(0.9, {}, SHARING, OPEN_SET, (22,)),
    # A method for closed sets, which pairs private samples too; what it is good at is tried below.
    "deepjdot": Trial(0.2),
    "jumbot": Trial(0.8),
    "ts-pot": Trial(0.8),
    # Killed in the pretraining, and in the adaptation.
    "unijdot": Trial(0.2, {"n_clusters": 8}, killed_at=(12, 72)),
    "mlnet": Trial(0.9, {}, SHARING, OPEN_SET, (22,)),
    # Killed in the pretraining, and in the adaptation.
    "ppot": Trial(0.9, {}, TOY, OPEN_SET | {"steps": 100, "learning_rate": 0.03}, (12, 42)),
    # Killed while the source model is trained, and while it is adapted.
    "glc": Trial(0.8, {}, SMALL, SOURCE_FREE, (42, 82)),
    "glc-plus": Trial(0.8, {}, SMALL, SOURCE_FREE, (42, 82)),
    "color": Trial(0.2),
    "tasc": Trial(0.5, {"n_candidates": 30}, killed_at=()),
    "lead": Trial(0.8, {}, SMALL, SOURCE_FREE, (42, 82)),
}


class Killed(Exception):
    """Ends a run between two steps."""


def fit(
    method: str, run: object = None, on_step: Callable[[int, int, Mapping[str, float]], None] | None = None
) -> UniDAClassifier:
    trial = TRIALS[method]
    acting = {*hyperparameters(method), "n_private_classes"}
    settings = {name: value for name, value in trial.settings.items() if name in acting}
    model = UniDAClassifier(method, random_state=0, **trial.options, **settings)
    return model.fit(trial.data.x_source, trial.data.y_source, trial.data.x_target, run=run, on_step=on_step)


fitted = functools.cache(fit)


def weights(model: UniDAClassifier) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.model_.method.state_dict().items()}


def test_no_method_is_left_out():
    assert TRIALS.keys() == METHODS.keys()


@pytest.mark.parametrize("method", TRIALS)
def test_common_classes_are_named_and_private_ones_called_unknown(method):
    data, model = TRIALS[method].data, fitted(method)
    assert h_score(data.oracle_y_target, model.labels_, source_classes=model.classes_) > TRIALS[method].h


def test_method_for_closed_sets_names_the_common_classes_where_nothing_is_rejected():
    data, model = TRIALS["deepjdot"].data, fitted("deepjdot")
    nearest = model.classes_[model.predict_proba(data.x_target)[:, :-1].argmax(axis=1)]
    common = np.isin(data.oracle_y_target, model.classes_)
    assert (nearest[common] == data.oracle_y_target[common]).mean() > 0.95


@pytest.mark.parametrize("method", TRIALS)
def test_class_is_either_found_or_absent(method):
    model = fitted(method)
    absent, found = set(model.absent_classes_.tolist()), set(model.labels_.tolist())
    assert absent == set(model.classes_.tolist()) - found


@pytest.mark.parametrize(
    ("method", "step"),
    slow_unless(
        [(method, step) for method, trial in TRIALS.items() for step in trial.killed_at],
        [(method, TRIALS[method].killed_at[-1]) for method in FAMILIES if TRIALS[method].killed_at],
    ),
)
def test_run_that_was_killed_ends_as_one_that_was_not_whatever_else_draws_random_numbers(method, step, tmp_path):
    def kill(done: int, _steps: int, _row: Mapping[str, float]) -> None:
        if done == step:
            raise Killed

    with pytest.raises(Killed):
        fit(method, tmp_path / "run", kill)
    torch.rand(3)
    one, two = fitted(method), fit(method, tmp_path / "run")
    # NaN is written as NaN, unlike compared.
    assert repr(one.model_.history.rows) == repr(two.model_.history.rows)
    found = weights(two)
    for name, value in weights(one).items():
        assert torch.equal(value, found[name]), name
    assert np.array_equal(one.labels_, two.labels_)


@pytest.mark.parametrize("method", TRIALS)
def test_saved_and_loaded_model_decides_the_same(method, tmp_path):
    data, model = TRIALS[method].data, fitted(method)
    model.save(tmp_path / "run")
    loaded = UniDAClassifier.load(tmp_path / "run")
    assert np.array_equal(loaded.predict(data.x_target), model.labels_)
    assert np.array_equal(loaded.predict_proba(data.x_source), model.predict_proba(data.x_source))


@pytest.mark.parametrize("method", TRIALS)
def test_sample_is_judged_on_its_own(method):
    target, model = TRIALS[method].data.x_target, fitted(method)
    alone = [model.predict(row[None])[0] for row in target[::20]]
    assert alone == model.predict(target)[::20].tolist()


@pytest.mark.parametrize("method", ["uniot", "cmu", "dance", "dcc", "tnt", "maths", "mlnet", "glc", "glc-plus", "lead"])
def test_method_decides_the_same_when_it_has_forgotten_its_samples(method):
    target, model = TRIALS[method].data.x_target, copy.deepcopy(fitted(method))
    before = model.predict_proba(target)
    kept = {name: value for name, value in weights(model).items() if name.endswith((".rows", "queue.features"))}
    assert kept
    assert any(value.abs().sum() > 0 for value in kept.values())
    model.model_.method.forget_samples()
    after = weights(model)
    assert all(after[name].abs().sum() == 0 for name in kept)
    assert np.array_equal(model.predict_proba(target), before)


def test_only_the_method_that_weighs_classes_has_a_class_mass():
    mass = fitted("pada").class_mass_
    private = np.array([str(name).startswith("source-") for name in fitted("pada").classes_])
    assert float(mass.sum()) == pytest.approx(1, abs=1e-5)
    # Classes that the target lacks are predicted less.
    assert mass[private].mean() < 0.7 * mass[~private].mean()
    assert fitted("dann").class_mass_ is None
