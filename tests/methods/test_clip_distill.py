"""AutoDistill: its loss against the authors' code, a distillation by hand, and what its options turn off."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot import UniDAClassifier
from uniot.datasets import make_toy_domains
from uniot.losses import distillation_loss
from uniot.methods.calibrated import calibration_loss
from uniot.methods.clip_distill import distilled

# `AutoDistill.forward` and `_ECELossOOD` of szubing/uniood, methods/auto_distillation.py, commit 32c4bad, on the arrays
# of `arrays`: the student's logits, and the teacher's, which are divided by a temperature of 0.7. With one bin,
# `_ECELoss` is the calibration error that `calibration_loss` has.
OFFICIAL = {"distillation": 2.7567129135131836, "nll": 3.514563798904419, "ece": 0.7915236353874207}
OFFICIAL_OUT = 0.47895658016204834


def arrays() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    logits, teacher = (torch.from_numpy(random.normal(size=(6, 4)) * 3).float() for _ in range(2))
    return logits, teacher, torch.from_numpy(random.integers(0, 4, 6))


def test_loss_is_that_of_the_authors_code():
    logits, teacher, _ = arrays()
    loss = distillation_loss(logits, (teacher / 0.7).softmax(dim=1))
    assert loss.item() == pytest.approx(OFFICIAL["distillation"], abs=1e-5)


def test_calibration_is_the_sum_of_the_authors_three_terms():
    logits, others, labels = arrays()
    of_known = calibration_loss(logits, labels, torch.arange(4), torch.tensor(1.0))
    assert of_known.item() == pytest.approx(OFFICIAL["nll"] + OFFICIAL["ece"], abs=1e-5)
    # A fifth class that is held out has the samples whose confidence should be 1/4.
    five = torch.cat([torch.cat([logits, others]), torch.zeros(12, 1)], dim=1)
    classes = torch.cat([labels, torch.full((6,), 4)])
    with_unknown = calibration_loss(five, classes, torch.arange(4), torch.tensor(1.0))
    assert with_unknown.item() == pytest.approx(of_known.item() + OFFICIAL_OUT, abs=1e-5)


def test_loss_worked_by_hand():
    # p = (1/4, 3/4), q = (1/3, 2/3): log 4 / 3 + 2 log(4/3) / 3.
    loss = distillation_loss(torch.tensor([[0.0, math.log(3)]]), torch.tensor([[1 / 3, 2 / 3]]))
    assert loss.item() == pytest.approx(math.log(4) / 3 + 2 * math.log(4 / 3) / 3, abs=1e-4)


def test_gradient_reaches_the_student_alone_and_is_p_minus_q():
    logits, teacher, _ = arrays()
    logits, q = (logits / 3).requires_grad_(True), (teacher / 0.7).softmax(dim=1).requires_grad_(True)
    distillation_loss(logits, q).backward()
    assert q.grad is None
    expected = (logits.softmax(dim=1) - q).detach() / len(logits)
    assert torch.allclose(logits.grad, expected, atol=2e-4)


def test_one_class_and_no_samples_have_nothing_to_learn():
    assert distillation_loss(torch.randn(3, 1), torch.ones(3, 1)).item() == pytest.approx(0, abs=2e-5)
    assert distillation_loss(torch.zeros(0, 4), torch.zeros(0, 4)).item() == 0


def test_student_learns_predictions_that_its_start_does_not_make():
    # The teacher swaps the two classes of the start.
    rows = F.normalize(torch.tensor([[1.0, 0.1], [0.1, 1.0]]), dim=1).repeat(40, 1)
    teacher = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(40, 1)
    student = distilled(rows, teacher, torch.eye(2), 0.05, 300, torch.Generator().manual_seed(0))
    assert torch.allclose(student.norm(dim=1), torch.ones(2), atol=1e-6)
    assert (rows @ student.t()).argmax(dim=1).tolist() == teacher.argmax(dim=1).tolist()


def test_student_stays_where_it_starts_if_it_predicts_what_the_teacher_does():
    rows = F.normalize(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    start = F.normalize(torch.randn(3, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    teacher = (rows @ start.t() / 0.05).softmax(dim=1)
    student = distilled(rows, teacher, start, 0.05, 100, torch.Generator().manual_seed(0))
    assert torch.allclose(student, start, atol=5e-3)


TOY = make_toy_domains(n_common=4, n_source_private=2, n_target_private=2, samples_per_class=20, seed=1)


def fit(method: str = "clip-distill", toy=TOY, prototypes=None, **options) -> UniDAClassifier:
    model = UniDAClassifier(method, n_private_classes=2, random_state=0, **options)
    return model.fit(toy.x_source, toy.y_source, toy.x_target, prototypes=prototypes)


@pytest.mark.medium
def test_zero_shot_is_the_nearest_prototype_with_the_published_temperature():
    texts = np.random.default_rng(0).normal(size=(6, TOY.x_source.shape[1]))
    model = fit("zero-shot", prototypes=texts)
    unit = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    cosines = (TOY.x_target / np.linalg.norm(TOY.x_target, axis=1, keepdims=True)) @ unit.T
    p = torch.from_numpy(cosines / 0.05).softmax(dim=1).numpy()
    known = -(p * np.log(p)).sum(axis=1) <= math.log(6) / 2
    expected = np.where(known, model.classes_[cosines.argmax(axis=1)], "unknown")
    assert model.labels_.tolist() == expected.tolist()


@pytest.mark.medium
def test_prototypes_decide_and_the_weight_averages_them_with_class_means():
    # Class means in the wrong order: the student learns the wrong names. Calibration would notice that they are wrong.
    means = np.stack([TOY.x_source[TOY.y_source == name].mean(axis=0) for name in np.unique(TOY.y_source)])
    options = {"calibrates": False, "distillation_steps": 20, "temperature": 0.02}
    right, swapped = (fit(prototypes=rows, **options).labels_ for rows in (means, means[::-1]))
    names = np.unique(TOY.y_source)
    other = dict(zip([*names, "unknown"], [*names[::-1], "unknown"], strict=True))
    assert [other[name] for name in swapped] == right.tolist()
    without = fit(prototypes=means[::-1], distillation_steps=0)
    with_means = UniDAClassifier("clip-distill", n_private_classes=2, random_state=0, distillation_steps=0)
    with_means.fit(TOY.x_source, TOY.y_source, TOY.x_target, prototypes=means[::-1], prototype_weight=0.0)
    assert without.labels_.tolist() != with_means.labels_.tolist()
    assert with_means.labels_.tolist() == fit(distillation_steps=0).labels_.tolist()


@pytest.mark.medium
def test_a_target_without_private_classes_keeps_its_classes():
    toy = make_toy_domains(n_common=4, n_source_private=2, n_target_private=0, samples_per_class=20, seed=1)
    assert (fit(toy=toy, distillation_steps=100).labels_ == toy.oracle_y_target).mean() > 0.8
