"""OSBP, ATI, DANCE and OVANet, each with a rule of its own for unknown, from arrays to decisions on toy data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from uniot import UniOT
from uniot.data.toy import make_toy_domains
from uniot.evaluation import h_score

# Each method has to be this good where answers at random have 0.12.
H_SCORES = {"osbp": 0.7, "ati": 0.9, "dance": 0.8, "ovanet": 0.9}
TOY = make_toy_domains(6, 6, 3, samples_per_class=20, dimensions=256, shift=0.3)
# As embeddings of a network have it: a direction that all samples share, and that classifiers without a bias need.
X_SOURCE, X_TARGET = TOY.x_source + 1 / 16, TOY.x_target + 1 / 16
STEPS = 60


class Killed(Exception):
    """Ends a run between two steps."""


def fit(
    method: str, run: object = None, on_step: Callable[[int, int, Mapping[str, float]], None] | None = None
) -> UniOT:
    model = UniOT(
        method=method,
        random_state=0,
        steps=STEPS,
        learning_rate=0.01,
        feature_size=32,
        n_private_classes=3,
        checkpoint_every=10,
    )
    return model.fit(X_SOURCE, TOY.y_source, X_TARGET, run=run, on_step=on_step)


fitted = functools.cache(fit)


def weights(model: UniOT) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.model_.method.state_dict().items()}


@pytest.mark.parametrize("method", H_SCORES)
def test_common_classes_are_named_and_private_ones_called_unknown(method):
    is_source_class = np.isin(TOY.oracle_y_target, TOY.y_source)
    truth = np.where(is_source_class, TOY.oracle_y_target, "unknown")
    assert h_score(truth, fitted(method).labels_) > H_SCORES[method]


@pytest.mark.parametrize("method", H_SCORES)
def test_two_runs_are_identical_whatever_else_draws_random_numbers(method):
    one = fitted(method)
    torch.rand(3)
    two = fit(method)
    assert one.model_.history.rows == two.model_.history.rows
    of_two = weights(two)
    for name, value in weights(one).items():
        assert torch.equal(value, of_two[name]), name


# ATI collects up to step 20 and trains on what it found from there.
@pytest.mark.parametrize(("method", "step"), [("osbp", 25), ("ati", 15), ("ati", 45), ("dance", 25)])
def test_killed_run_resumes_to_the_same_weights(method, step, tmp_path):
    def kill(done: int, _steps: int, _row: Mapping[str, float]) -> None:
        if done == step:
            raise Killed

    with pytest.raises(Killed):
        fit(method, tmp_path, kill)
    resumed = weights(fit(method, tmp_path))
    for name, value in weights(fitted(method)).items():
        assert torch.equal(value, resumed[name]), name


@pytest.mark.parametrize("method", H_SCORES)
def test_saved_and_loaded_model_decides_the_same(method, tmp_path):
    model = fitted(method)
    model.save(tmp_path / "run")
    loaded = UniOT.load(tmp_path / "run")
    assert np.array_equal(loaded.predict(X_TARGET), model.labels_)
    assert np.array_equal(loaded.predict_proba(X_SOURCE), model.predict_proba(X_SOURCE))


@pytest.mark.parametrize("method", H_SCORES)
def test_sample_is_judged_on_its_own(method):
    model = fitted(method)
    alone = [model.predict(row[None])[0] for row in X_TARGET[::20]]
    assert alone == model.predict(X_TARGET)[::20].tolist()
