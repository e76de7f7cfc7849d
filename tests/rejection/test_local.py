"""What named samples say about the classes of the samples around them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize

from uniot.errors import RunFolderError
from uniot.io.tensor_files import StoredTensors
from uniot.rejection import UNKNOWN, Answers, TargetScores, fit_posterior
from uniot.rejection.local import ClassShift, _class_weights, _predicted, class_log_odds, nearness

REGION = torch.tensor(0.1, dtype=torch.float64)


def clusters(n_each: int = 40, n_clusters: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit rows around the axes, and the axis of each."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.arange(n_clusters).repeat_interleave(n_each)
    rows = F.one_hot(axis, 16).float() + 0.05 * torch.randn(len(axis), 16, generator=generator)
    return F.normalize(rows, dim=1), axis


def log_odds_for(believed: torch.Tensor, n_classes: int, margin: float) -> torch.Tensor:
    found = torch.full((len(believed), n_classes), -margin, dtype=torch.float64)
    return found.scatter(1, believed[:, None], 0.0)


def test_log_odds_are_zero_for_the_nearest_class_and_finite_for_odds_of_zero():
    odds = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    found = class_log_odds(odds)
    assert found[0].tolist() == pytest.approx([0.0, np.log(0.5), -12.0])
    assert torch.isfinite(found).all()


def test_weights_are_those_of_the_largest_posterior():
    generator = torch.Generator().manual_seed(3)
    rows = F.normalize(torch.randn(6, 5, generator=generator), dim=1)
    kernel = 4 * nearness(rows, rows, torch.tensor(0.5, dtype=torch.float64))
    log_odds = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    classes = torch.tensor([0, 1, 2, 0, 1, 1])

    def loss(flat: np.ndarray) -> float:
        weights = torch.from_numpy(flat).view(6, 3)
        fit = F.cross_entropy(log_odds + kernel @ weights, classes, reduction="sum")
        return float(fit + 0.5 * (weights * (kernel @ weights)).sum())

    expected = minimize(loss, np.zeros(18), method="BFGS").x
    weights, _ = _class_weights(kernel, log_odds, classes)
    assert loss(weights.numpy().ravel()) <= loss(expected) + 1e-6
    # At the mode the weights are the answers less their probabilities.
    residual = F.one_hot(classes, 3) - (log_odds + kernel @ weights).softmax(dim=1)
    assert torch.allclose(weights, residual, atol=1e-3)


def test_prediction_without_an_answer_is_that_of_a_fit_without_it():
    generator = torch.Generator().manual_seed(1)
    rows = F.normalize(torch.randn(12, 4, generator=generator), dim=1)
    kernel = nearness(rows, rows, torch.tensor(0.5, dtype=torch.float64))
    log_odds = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    classes = torch.randint(3, (12,), generator=generator)
    exact = 0.0
    for row in range(12):
        others = torch.arange(12) != row
        weights, _ = _class_weights(kernel[others][:, others], log_odds[others], classes[others])
        predicted = (log_odds[row] + kernel[row, others] @ weights).softmax(dim=0)[classes[row]]
        exact += float((0.9 * predicted + 0.1 / 3).log())
    assert _predicted(kernel, log_odds, classes, 0.1) == pytest.approx(exact, rel=0.05)


def test_a_cluster_that_is_named_twice_gets_that_class_and_the_others_keep_theirs():
    rows, axis = clusters()
    believed = torch.tensor([0, 1, 2, 2])[axis]  # the method takes the last cluster for the third
    log_odds = log_odds_for(believed, 4, margin=1.5)
    told = torch.tensor([int(torch.nonzero(axis == one)[place]) for one in (0, 1, 2, 3, 3) for place in (1, 5)])
    shift = ClassShift.fit(rows[told], log_odds[told], axis[told], REGION, 0.1)
    assert shift is not None
    found = shift(log_odds, rows)
    assert (found.argmax(dim=1) == axis).double().mean() > 0.97
    assert found.max(dim=1).values.abs().max() == 0


def test_answers_that_the_method_expected_change_nothing():
    rows, axis = clusters()
    log_odds = log_odds_for(axis, 4, margin=6.0)
    told = torch.arange(0, len(axis), 20)
    assert ClassShift.fit(rows[told], log_odds[told], axis[told], REGION, 0.1) is None


def test_answers_without_other_answers_near_them_do_not_reach_others():
    # Nothing tells how far such an answer reaches: each explains itself, whatever that is.
    rows = torch.eye(8, 16)
    log_odds = log_odds_for(torch.zeros(8, dtype=torch.long), 4, margin=3.0)
    said = torch.tensor([1, 2, 3, 1, 2, 3, 1, 2])
    assert ClassShift.fit(rows, log_odds, said, REGION, 0.1) is None


def test_one_wrong_answer_among_many_does_not_turn_its_cluster():
    rows, axis = clusters()
    log_odds = log_odds_for(axis, 4, margin=3.0)
    told = torch.cat([torch.nonzero(axis == one).flatten()[:4] for one in range(4)])
    said = axis[told].clone()
    said[0] = 2
    shift = ClassShift.fit(rows[told], log_odds[told], said, REGION, 0.1)
    found = log_odds if shift is None else shift(log_odds, rows)
    assert (found.argmax(dim=1) == axis).double().mean() > 0.95


def test_posterior_has_no_shift_of_classes_without_their_odds_or_without_a_named_sample():
    rows, axis = clusters()
    odds = torch.linspace(0.2, 5, len(axis), dtype=torch.float64)
    log_odds = log_odds_for((axis + 1) % 4, 4, margin=1.0)
    without = TargetScores(odds, (axis + 1) % 4, rows, 0.5)
    target = TargetScores(odds, (axis + 1) % 4, rows, 0.5, log_odds)
    told = np.arange(0, len(axis), 16)
    named, unknown = Answers().told(told, axis.numpy()[told]), Answers().told(told, np.full(len(told), UNKNOWN))
    assert fit_posterior(without, named).class_shift is None
    assert fit_posterior(target, unknown).class_shift is None
    assert fit_posterior(target, named).class_shift is not None


def test_stored_shift_is_read_back_and_a_damaged_one_is_refused():
    rows, axis = clusters()
    log_odds = log_odds_for((axis + 1) % 4, 4, margin=1.0)
    told = torch.arange(0, len(axis), 16)
    shift = ClassShift.fit(rows[told], log_odds[told], axis[told], REGION, 0.1)
    stored = dict(vars(shift))
    again = ClassShift.read(StoredTensors("a file", stored), 16, 4)
    assert torch.equal(again(log_odds, rows), shift(log_odds, rows))
    with pytest.raises(RunFolderError, match="weights"):
        ClassShift.read(StoredTensors("a file", {**stored, "weights": stored["weights"][:1]}), 16, 4)
