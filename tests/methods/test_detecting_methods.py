"""UAN, CMU, DCC and TNT, which tell common from private samples as they train, from arrays to decisions on toy data."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from uniot import UniOT
from uniot.data.toy import make_toy_domains
from uniot.evaluation import h_score

# Each method has to be this good where answers at random have 0.09.
H_SCORES = {"uan": 0.8, "cmu": 0.9, "dcc": 0.6, "tnt": 0.8}
TOY = make_toy_domains(n_common=6, n_source_private=4, n_target_private=4, samples_per_class=20)
# UAN's published border suits features on which its watching discriminator has more to go by; here d' is about ½.
SMALL = {
    "uan": {"discriminator_size": 64, "threshold": -0.1},
    "cmu": {"discriminator_size": 64},
    "dcc": {"rounds": 5},
    "tnt": {},
}
STEPS = 100


class Killed(Exception):
    """Ends a run between two steps."""


def estimator(method: str) -> UniOT:
    return UniOT(
        method=method,
        method_options=SMALL[method],
        random_state=0,
        steps=STEPS,
        queue_size=360,
        learning_rate=0.01,
        feature_size=32,
        input_norm=10.0,
        n_private_classes=4,
        checkpoint_every=30,
    )


def fit(
    method: str, run: object = None, on_step: Callable[[int, int, Mapping[str, float]], None] | None = None
) -> UniOT:
    return estimator(method).fit(TOY.x_source, TOY.y_source, TOY.x_target, run=run, on_step=on_step)


fitted = functools.cache(fit)


def weights(model: UniOT) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.model_.method.state_dict().items()}


@pytest.mark.parametrize("method", H_SCORES)
def test_common_classes_are_named_and_private_ones_called_unknown(method):
    is_source_class = np.isin(TOY.oracle_y_target, TOY.y_source)
    truth = np.where(is_source_class, TOY.oracle_y_target, "unknown")
    assert h_score(truth, fitted(method).labels_) > H_SCORES[method]


@pytest.mark.parametrize("method", H_SCORES)
def test_run_that_was_killed_ends_as_one_that_was_not(method, tmp_path):
    def kill(step: int, _steps: int, _numbers: Mapping[str, float]) -> None:
        if step == 45:
            raise Killed

    with pytest.raises(Killed):
        fit(method, tmp_path / "run", kill)
    # Whatever else draws random numbers meanwhile.
    torch.rand(3)
    one, two = fitted(method), fit(method, tmp_path / "run")
    assert one.model_.history.rows == two.model_.history.rows
    found = weights(two)
    assert all(torch.equal(value, found[name]) for name, value in weights(one).items())
    assert np.array_equal(one.labels_, two.labels_)


@pytest.mark.parametrize("method", H_SCORES)
def test_saved_and_loaded_model_decides_the_same(method, tmp_path):
    model = fitted(method)
    model.save(tmp_path / "run")
    loaded = UniOT.load(tmp_path / "run")
    assert np.array_equal(loaded.predict(TOY.x_target), model.labels_)
    assert np.array_equal(loaded.predict_proba(TOY.x_source), model.predict_proba(TOY.x_source))


@pytest.mark.parametrize("method", H_SCORES)
def test_sample_is_judged_on_its_own(method):
    model = fitted(method)
    alone = [model.predict(row[None])[0] for row in TOY.x_target[::20]]
    assert alone == model.predict(TOY.x_target)[::20].tolist()


@pytest.mark.parametrize("method", ["cmu", "dcc", "tnt"])
def test_method_decides_the_same_when_it_has_forgotten_its_samples(method):
    model = copy.deepcopy(fitted(method))
    before = model.predict_proba(TOY.x_target)
    kept = {name: value for name, value in weights(model).items() if "bank.rows" in name or "queue.features" in name}
    assert kept
    assert any(value.abs().sum() > 0 for value in kept.values())
    model.model_.method.forget_samples()
    after = weights(model)
    assert all(after[name].abs().sum() == 0 for name in kept)
    assert np.array_equal(model.predict_proba(TOY.x_target), before)
