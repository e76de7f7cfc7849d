"""MATHS: the dip test, the losses by hand, which samples are private, and what the prototypes are."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.losses import neighbour_contrastive_loss
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.dip_test import dip_statistic, neighbourhood_angles, split_threshold, unimodality_p_value
from uniot.methods.maths import INFO, MATHS, MATHSOptions, prototype_loss
from uniot.metrics.accuracy import h_score

C, STEPS = 2, 20
# Evenly spread numbers between 0 and 1 that need no random generator.
GOLDEN = np.modf(np.arange(1, 401) * 0.6180339887498949)[0]


def build(**options) -> MATHS:
    """Features are the normalised inputs."""
    torch.manual_seed(0)
    settings = Settings.checked(feature_size=2, steps=STEPS, queue_size=100, batch_size=8)
    method = MATHS(2, C, settings, MATHSOptions(**options), None)
    with torch.no_grad():
        method.bottleneck.weight.copy_(torch.eye(2))
        method.bottleneck.bias.zero_()
    return method


def directions(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees) * math.pi / 180
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def batch_at(step: int, source: torch.Tensor, target: torch.Tensor) -> Batch:
    labels, ids = torch.arange(len(source)) % C, torch.arange(len(target))
    return Batch(source, labels, target, ids, step, torch.Generator().manual_seed(step))


def with_source(method: MATHS, *degrees: float) -> MATHS:
    """Store a source sample per class in this direction."""
    method.source_bank.put(directions(*degrees), torch.arange(len(degrees)), torch.arange(len(degrees)))
    return method


def spread(centre: float, width: float, n: int = 10) -> list[float]:
    return np.linspace(centre - width, centre + width, n).tolist()


def test_it_is_labelled_as_a_reconstruction():
    assert INFO.is_reconstruction
    assert "reconstruction" in INFO.title
    assert "reconstruction" in MATHS.__doc__


@pytest.mark.parametrize(
    ("values", "dip"),
    [
        # Half of the mass at each of two points: any unimodal function misses one step of 1/2 by half of it.
        ([0, 0, 0, 1, 1, 1], 1 / 4),
        # Evenly spaced, n = 5: only the steps of 1/n themselves.
        ([0, 1, 2, 3, 4], 1 / 10),
        ([7, 7, 7], 1 / 6),
        # The majorant runs from (1, 1/2) to (10, 1), at 9 through 17/18; below 9 there is 1/2. Half of the difference.
        ([0, 1, 9, 10], 2 / 9),
    ],
)
def test_dip_worked_by_hand(values, dip):
    assert dip_statistic(np.array(values)) == pytest.approx(dip)


# Made with dipstat(x, allow_zero=False) and diptest(x, allow_zero=False) of the package diptest 0.12.0.
REFERENCES = {
    "uniform": (GOLDEN[:100], 0.01198520503736212, 1.0),
    "two modes": (np.concatenate([GOLDEN[:60] ** 2, 2 + GOLDEN[:40]]), 0.10319777018276889, 0.0),
    "overlapping": (
        np.concatenate([GOLDEN[:200] + GOLDEN[200:400], 1.1 + GOLDEN[:150] + GOLDEN[150:300]]),
        0.018131122277299048,
        0.6352,
    ),
    "ties": (np.floor(GOLDEN[:90] * 7) ** 2, 0.07777777777777778, 0.0002),
    "skewed": (-np.log(GOLDEN[:300]), 0.0032930734230505482, 1.0),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_dip_and_p_value_are_those_of_the_package_diptest(name):
    values, dip, p_value = REFERENCES[name]
    assert dip_statistic(values) == pytest.approx(dip, rel=1e-5)
    # The order of the values, their unit and their sign do not matter.
    assert dip_statistic(3 - 5 * values[::-1]) == pytest.approx(dip_statistic(values), abs=1e-12)
    # The table ends at 0.001 and 0.99.
    assert unimodality_p_value(values) == pytest.approx(p_value, abs=0.02)


@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.medium
def test_uniform_values_are_rejected_as_often_as_the_significance_says(n):
    random = np.random.default_rng(0)
    p_values = np.array([unimodality_p_value(random.random(n)) for _ in range(1000)])
    assert (p_values <= 0.05).mean() == pytest.approx(0.05, abs=0.02)
    assert (p_values <= 0.5).mean() == pytest.approx(0.5, abs=0.05)


def test_threshold_splits_into_two_groups_of_least_variance_worked_by_hand():
    # {1, 2, 3} and {11, 12}: half-way between 3 and 11.
    assert float(split_threshold(torch.tensor([11.0, 2.0, 1.0, 12.0, 3.0]))) == 7


def test_angles_of_neighbourhoods_worked_by_hand():
    # The samples at 0° and 20° are neighbours, with their mean at 10°; the mean of 180° and 20° is at 100°.
    target, prototypes = directions(0, 20, 180), directions(0, 300)
    with_neighbour = neighbourhood_angles(target, prototypes, 1) * 180 / math.pi
    assert with_neighbour.tolist() == pytest.approx([10, 10, 100], abs=1e-3)
    alone = neighbourhood_angles(target, prototypes, 0) * 180 / math.pi
    assert alone.tolist() == pytest.approx([0, 20, 120], abs=0.1)


def test_prototype_loss_worked_by_hand():
    # q = (3/4, 1/4) with label 0 and weight 1/2, q = (1/2, 1/2) with label 1 and weight 1/4.
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    loss = prototype_loss(logits, torch.tensor([0, 1]), torch.tensor([0.5, 0.25]))
    assert float(loss) == pytest.approx((0.5 * math.log(4 / 3) + 0.25 * math.log(2)) / 2)


def test_confidences_have_no_gradient():
    confidences = torch.tensor([0.5], requires_grad=True)
    loss = prototype_loss(torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([0]), confidences)
    loss.backward()
    assert confidences.grad is None


def test_contrast_worked_by_hand():
    # Source at 0° and 90°, target at 10° and 70°. The first of each are neighbours, 10° apart; the others across are
    # 70° and 80° away, and those of the own domain 90° and 60°. The target sample at 70° is private: neither it nor
    # the source sample at 90°, whose nearest it is, has a neighbour.
    method, source, target = build(contrast_temperature=1.0), directions(0, 90), directions(10, 70)
    found = method.contrast(source, target, batch_at(0, source, target), torch.tensor([True, False]))

    def cosine(angle: float) -> float:
        return math.cos(math.radians(angle))

    of_source = math.log(sum(math.exp(cosine(a)) for a in (10, 70, 90))) - cosine(10)
    of_target = math.log(sum(math.exp(cosine(a)) for a in (10, 80, 60))) - cosine(10)
    assert float(found) == pytest.approx((of_source + of_target) / 2, rel=1e-5)


def test_classification_worked_by_hand():
    # Unit rows at 0° and 90°, τ = 1: a sample of class 0 at 60° has the cosines 1/2 and √3/2.
    method = build(temperature=1.0)
    with torch.no_grad():
        method.classifier.weight.copy_(torch.tensor([[5.0, 0.0], [0.0, 0.1]]))
    loss = method.step(batch_at(0, 3 * directions(60), directions(10))).parts["source"]
    assert float(loss.detach()) == pytest.approx(math.log(1 + math.exp(math.sqrt(3) / 2 - 0.5)), rel=1e-5)


def test_gradients_of_the_losses_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()

    confidences, labels = draw(4).detach(), torch.tensor([0, 2, 1, 2])
    positives, hidden = torch.eye(4, 6, dtype=torch.bool), torch.eye(4, 6, dtype=torch.bool).flip(1)
    assert gradcheck(lambda x: prototype_loss(x, labels, confidences), draw(4, 3))
    assert gradcheck(lambda x: neighbour_contrastive_loss(x, positives, hidden), draw(4, 6))


def test_total_is_the_weighted_sum_and_self_training_begins_after_the_alignment():
    method, generator = (
        build(contrast_weight=0.3, prototype_weight=0.7, temperature=1.0),
        torch.Generator().manual_seed(0),
    )
    for step in range(STEPS):
        batch = batch_at(step, torch.randn(8, 2, generator=generator), torch.randn(8, 2, generator=generator))
        losses = method.step(batch)
        part = {name: float(value.detach()) for name, value in losses.parts.items()}
        expected = part["source"] + 0.3 * part["contrast"] + 0.7 * part["prototype"]
        assert float(losses.total.detach()) == pytest.approx(expected, rel=1e-5)
        assert (part["prototype"] > 0) is (step >= 10)


COMMON, PRIVATE = [*spread(0, 2), *spread(90, 2)], [*spread(180, 2), *spread(270, 2)]


def test_two_modes_are_split_and_the_far_one_is_clustered():
    # Angles to the nearest class mean are below 2° or above 88°. Twenty common samples have two classes, so twenty
    # private ones have two clusters.
    method = with_source(build(n_averaged=0), 0, 90)
    method.fit_prototypes(directions(*COMMON, *PRIVATE))
    assert float(method.p_value) == 0.001
    assert int(method.n_private) == 2
    assert torch.allclose(method.prototypes[:2], directions(0, 90), atol=1e-3)
    found = sorted(method.prototypes[2:4].tolist())
    assert np.allclose(found, sorted(directions(180, 270).tolist()), atol=1e-3)
    decision = method.decide(directions(10, 80, 190, 260))
    assert decision.nearest[:2].tolist() == [0, 1]
    assert decision.known.tolist() == [True, True, False, False]


def test_score_is_one_half_half_way_to_a_private_prototype():
    method = with_source(build(n_averaged=0, temperature=1.0), 0, 90)
    method.fit_prototypes(directions(*COMMON, *PRIVATE))
    half, at_class = method.score(directions(135, 90)).tolist()
    assert half == pytest.approx(0.5, abs=1e-3)
    # Cosines 1 to its class and 0 to the nearest private prototype.
    assert at_class == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-3)


def test_nothing_is_rejected_if_the_angles_have_one_mode():
    method = with_source(build(n_averaged=0), 0, 90)
    method.fit_prototypes(directions(*spread(0, 30, 20), *spread(90, 30, 20)))
    assert float(method.p_value) > 0.05
    assert int(method.n_private) == 0
    # However far a sample is; the farther, the lower is its score.
    scores = method.score(directions(0, 30, 225))
    assert bool(method.decide(directions(0, 30, 225)).known.all())
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)


def test_significance_of_one_always_finds_private_classes():
    method = with_source(build(n_averaged=0, significance=1.0), 0, 90)
    method.fit_prototypes(directions(*spread(0, 30, 20), *spread(90, 30, 20)))
    assert int(method.n_private) > 0


def test_class_prototype_is_half_way_between_both_domains():
    method = with_source(build(), 0, 90)
    # The class at 90° has no target sample.
    method.fit_prototypes(directions(19, 20, 21))
    assert torch.allclose(method.prototypes[:2], directions(10, 90), atol=1e-3)


def test_prototypes_are_those_of_the_features_after_the_last_step():
    method = with_source(build(n_averaged=0), 0, 90)
    method.fit_prototypes(directions(*COMMON, *PRIVATE))
    p_value = float(method.p_value)
    # All classes have moved by 10°, and a private class is gone; the test is not repeated.
    moved = [angle + 10 for angle in [*COMMON, *spread(180, 2)]]
    method.finalize(FinalFeatures.of_target(directions(*moved)))
    assert torch.allclose(method.prototypes[:2], directions(5, 95), atol=1e-3)
    found = sorted(method.prototypes[2:4].tolist())
    assert np.allclose(found, sorted(directions(190, 270).tolist()), atol=1e-3)
    assert (float(method.p_value), int(method.n_private)) == (p_value, 2)


def test_private_samples_have_no_neighbour_in_the_source():
    method = build()
    with_source(method, 0, 90).fit_prototypes(directions(*COMMON, *PRIVATE))
    target = directions(5, 185)
    method.step(batch_at(STEPS - 1, directions(0, 90), target))
    stored = {int(i): int(label) for i, label in zip(method.target_bank.ids, method.target_bank.labels, strict=True)}
    assert (stored[0], stored[1]) == (1, 0)


OPEN_PARTIAL, CLOSED = make_toy_domains(5, 3, 4, samples_per_class=20), make_toy_domains(6, 0, 0, samples_per_class=20)
PARTIAL = make_toy_domains(5, 4, 0, samples_per_class=20)
SETTINGS = {"steps": 100, "queue_size": 300, "feature_size": 32, "n_private_classes": 4}


@functools.cache
def fitted(data) -> UniDAClassifier:
    return UniDAClassifier("maths", random_state=0, **SETTINGS).fit(data.x_source, data.y_source, data.x_target)


def test_private_classes_are_found_in_an_open_partial_target():
    model = fitted(OPEN_PARTIAL)
    assert h_score(OPEN_PARTIAL.oracle_y_target, model.labels_, source_classes=model.classes_) > 0.9


@pytest.mark.parametrize("data", [CLOSED, PARTIAL], ids=["closed", "partial"])
def test_nothing_is_rejected_if_all_classes_of_the_target_are_known(data):
    model = fitted(data)
    assert (model.labels_ != "unknown").all()
    assert (model.labels_ == data.oracle_y_target).mean() > 0.95


def test_saved_and_loaded_model_predicts_the_same(tmp_path):
    model = fitted(OPEN_PARTIAL)
    model.save(tmp_path / "run")
    loaded = UniDAClassifier.load(tmp_path / "run")
    rows = OPEN_PARTIAL.x_target
    assert np.array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    assert torch.equal(loaded.model_.method.prototypes, model.model_.method.prototypes)
