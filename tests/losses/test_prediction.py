"""UniOT in a loop of one's own: prediction, and what the loss refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot.errors import DataError
from uniot.losses import CommonClassDetectionLoss, FeatureQueue, PrivateClassDiscoveryLoss, Prototypes, UniOTLoss
from uniot.transport import filled_potential

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "losses.md"
N, C, K, D, QUEUE = 60, 4, 5, 8, 12


def unit(n: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(n, D, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.fixture
def target():
    """Samples around the four class prototypes and around four other directions, in turn."""
    rows = torch.eye(D)[torch.arange(N) % D]
    return F.normalize(rows + 0.1 * torch.randn(N, D, generator=torch.Generator().manual_seed(1)), dim=1)


@pytest.fixture
def loss(target):
    torch.manual_seed(0)
    loss = UniOTLoss(C, K, D, QUEUE, detection_start=0)
    with torch.no_grad():
        loss.classes.weight.copy_(torch.eye(D)[:C])
    loss.queue.push(target[:QUEUE], torch.arange(QUEUE))
    loss.common.class_mass.copy_(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    return loss


def step(loss, source, target, number: int = 1):
    return loss(source, torch.zeros(len(source), dtype=torch.long), target, torch.arange(len(target)), step=number)


# --- prediction -------------------------------------------------------------------------------------------


def test_prediction_is_the_papers_test_rule_row_by_row(loss, target):
    found = loss.fit_rule(target).predict(target)
    cosines = target.double() @ loss.classes.weight.detach().double().t()
    solution = filled_potential(
        cosines,
        loss.classes.weight.detach().double(),
        loss.common.class_mass,
        tolerance=1e-9,
        start=loss.common.potential,
        generator=torch.Generator().manual_seed(0),
    )
    mass = solution.log_mass(cosines).exp()
    expected = [int(row.argmax()) if float(row.max()) >= 1 / solution.n_rows else -1 for row in mass]
    assert found.tolist() == expected
    # The four prototypes are found, and the other four directions are unknown.
    assert found.tolist() == [i % D if i % D < C else -1 for i in range(N)]


def test_prediction_uses_the_trained_class_mass(loss, target):
    between = F.normalize(torch.eye(D)[:1] + torch.eye(D)[1:2], dim=1)
    sides = []
    for mass in ([0.9, 0.02, 0.04, 0.04], [0.02, 0.9, 0.04, 0.04]):
        loss.common.class_mass.copy_(torch.tensor(mass))
        sides.append(int(loss.fit_rule(target).odds(between).argmax()))
    assert sides == [0, 1]


def test_prediction_is_deterministic_and_changes_nothing(loss, target):
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    random = torch.get_rng_state()
    first = loss.fit_rule(target)
    torch.manual_seed(5)
    second = loss.fit_rule(target)
    assert torch.equal(first.odds(target), second.odds(target))
    torch.set_rng_state(random)
    loss.fit_rule(target).predict(target)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


def test_batches_and_new_samples_are_predicted_one_by_one(loss, target):
    rule = loss.fit_rule(target)
    whole = rule.predict(target)
    assert torch.equal(torch.cat([rule.predict(part) for part in target.split(7)]), whole)
    assert rule.predict(torch.eye(D)).tolist() == [0, 1, 2, 3, -1, -1, -1, -1]


def test_rule_stays_as_fitted_while_the_training_goes_on(loss, target):
    rule = loss.fit_rule(target)
    before = rule.odds(target)
    with torch.no_grad():
        loss.classes.weight.copy_(loss.classes.weight.roll(1, dims=0))
    assert torch.equal(rule.odds(target), before)


def test_known_are_those_with_odds_of_at_least_one(loss, target):
    rule = loss.fit_rule(target)
    odds = rule.odds(target)
    assert odds.shape == (N, C)
    assert ((odds.max(dim=1).values >= 1) == (rule.predict(target) >= 0)).all()


def test_solution_needs_no_generator(loss, target):
    cosines = loss.classes(target).detach()
    torch.manual_seed(3)
    found = loss.common.solve(cosines, loss.classes)
    expected = loss.common.solve(cosines, loss.classes, torch.default_generator.manual_seed(3))
    assert torch.equal(found.class_potential, expected.class_potential)


# --- the page ---------------------------------------------------------------------------------------------


def test_snippet_of_the_page_trains_and_labels_the_target():
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[0]
    scope: dict = {}
    exec(code, scope)
    classes, truth = scope["classes"], scope["toy"].oracle_y_target
    is_common = np.isin(truth, classes)
    names = np.append(classes, "unknown")[scope["found"].numpy()]
    correct = names == np.where(is_common, truth, "unknown")
    # Never predicting unknown is right for common samples at most, always predicting it for the others.
    assert correct.mean() > max(is_common.mean(), 1 - is_common.mean())
    assert scope["new"].tolist() == scope["found"][:5].tolist()
    # Common-class detection took part.
    assert float((scope["loss"].common.class_mass - 1 / len(classes)).abs().max()) > 1e-3


# --- what the loss refuses --------------------------------------------------------------------------------


def test_queue_that_is_not_full_is_refused_with_its_cure(target):
    loss = UniOTLoss(C, K, D, QUEUE)
    loss.queue.push(target[:5], torch.arange(5))
    with pytest.raises(DataError, match=r"holds 5 of 12 features.*queue\.push\(features, sample_ids\).*queue_size"):
        step(loss, target[:6], target[:6])
    assert loss.queue.n_stored == 5


def test_each_target_loss_refuses_a_queue_that_is_not_full(target):
    queue = FeatureQueue(QUEUE, D)
    queue.push(target[: QUEUE - 1], torch.arange(QUEUE - 1))
    common, prototypes = CommonClassDetectionLoss(C), Prototypes(C, D)
    with pytest.raises(DataError, match="11 of 12"):
        common(target[:6], prototypes, queue)
    assert common.class_mass.tolist() == [1 / C] * C
    with pytest.raises(DataError, match="11 of 12"):
        PrivateClassDiscoveryLoss()(target[:6], torch.arange(6), prototypes, queue)


@pytest.mark.parametrize("place", ["source", "target"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[:, :5], r"\(n, feature_size\) = \(n, 8\), got \(6, 5\)"),
        (
            lambda x: x.double(),
            r"torch\.float32.*got torch\.float64.*F\.normalize\(features\.to\(torch\.float32\), dim=1\)",
        ),
        (lambda x: 3 * x, r"unit norm, got norm 3 in row \d.*F\.normalize\(features, dim=1\)"),
        (lambda x: x * torch.tensor([[1.0], [1], [1], [1.002], [1], [1]]), r"got norm 1\.002 in row 3"),
    ],
)
def test_features_of_another_width_dtype_or_norm_are_refused(loss, target, place, change, message):
    given = {"source": target[:6], "target": target[6:12]}
    given[place] = change(given[place])
    before = loss.queue.features.clone()
    with pytest.raises(DataError, match=f"{place}: expected .*{message}"):
        step(loss, given["source"], given["target"])
    assert torch.equal(loss.queue.features, before)


@pytest.mark.parametrize("change", [lambda x: x[:, :5], lambda x: x.double(), lambda x: 3 * x])
def test_prediction_refuses_the_same_features(loss, target, change):
    with pytest.raises(DataError, match="target: expected"):
        loss.fit_rule(change(target))
    with pytest.raises(DataError, match="features: expected"):
        loss.fit_rule(target).predict(change(target))


def test_norm_may_differ_from_one_by_rounding(loss, target):
    assert torch.isfinite(step(loss, target[:6] * 1.0005, target[6:12] * 0.9995).total)


def test_features_of_a_network_under_autocast_are_taken(loss, target):
    network = torch.nn.Linear(D, D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = F.normalize(network(target[:12]), dim=1)
        assert features.dtype == torch.bfloat16
        losses = step(loss, features[:6].float(), features[6:].float())
    assert torch.isfinite(losses.total)


def test_features_that_are_not_finite_are_not_called_badly_scaled(loss, target):
    source = target[:6].clone()
    source[2] = torch.nan
    assert torch.isnan(step(loss, source, target[6:12], number=0).total)


def test_no_target_is_refused(loss, target):
    with pytest.raises(DataError, match="no rows"):
        loss.fit_rule(target[:0])


def test_first_detection_is_in_the_step_after_detection_start(target):
    torch.manual_seed(0)
    loss = UniOTLoss(C, K, D, QUEUE, detection_start=2)
    loss.queue.push(target[:QUEUE], torch.arange(QUEUE))
    detected = [step(loss, target[:6], target[6:12], number).detected is not None for number in range(5)]
    assert detected == [False, False, False, True, True]


def test_classification_loss_is_that_of_the_class_prototypes(loss, target):
    labels = torch.zeros(6, dtype=torch.long)
    expected = F.cross_entropy(loss.classes(target[:6]) / loss.temperature, labels)
    torch.testing.assert_close(step(loss, target[:6], target[6:12]).classification, expected)


# --- the queue --------------------------------------------------------------------------------------------


def test_queue_counts_what_it_stores_and_its_length_is_its_size():
    queue = FeatureQueue(5, D)
    counts = []
    for start in range(0, 8, 2):
        counts.append((queue.n_stored, len(queue)))
        queue.push(unit(2, start), torch.arange(start, start + 2))
    assert counts == [(0, 5), (2, 5), (4, 5), (5, 5)]
    queue.clear()
    assert queue.n_stored == 0


@pytest.mark.parametrize("shape", [(4, 1), (4, D + 1), (3, D)])
def test_queue_refuses_features_of_another_shape(shape):
    queue = FeatureQueue(5, D)
    with pytest.raises(
        DataError, match=rf"\(n, feature_size\) = \(4, {D}\) for 4 sample ids, got \({shape[0]}, {shape[1]}\)"
    ):
        queue.push(torch.ones(shape), torch.arange(4))
    assert queue.n_stored == 0


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("source_labels", torch.zeros(4, dtype=torch.int32), r"source_labels: expected one class index per feature"),
        ("target_ids", torch.zeros(3, dtype=torch.long), r"shape \(4,\) of torch.int64, got \(3,\) of torch.int64"),
        ("target_ids", [0, 1, 2, 3], r"target_ids: .* got list"),
        ("target", np.eye(8, dtype=np.float32)[:4], r"target: expected a tensor of features, got ndarray"),
    ],
)
def test_wrong_labels_indices_and_arrays_are_named(name, given, words):
    loss = UniOTLoss(n_classes=3, n_clusters=5, feature_size=8, queue_size=12)
    loss.queue.push(F.normalize(torch.randn(12, 8), dim=1), torch.arange(12))
    rows = F.normalize(torch.randn(4, 8), dim=1)
    right = {"source": rows, "source_labels": torch.arange(4) % 3, "target": rows, "target_ids": torch.arange(4)}
    with pytest.raises(DataError, match=words):
        loss(**(right | {name: given}), step=0)
