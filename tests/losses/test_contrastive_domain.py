"""The contrastive domain discrepancy by hand and beside plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from uniot.losses import contrastive_domain_discrepancy

# What five kernels give two samples that are as far from each other as γ says: e^-4 + e^-2 + e^-1 + e^-½ + e^-¼.
KAPPA = sum(math.exp(-(2.0**i)) for i in (2, 1, 0, -1, -2))


def by_loops(source: np.ndarray, target: np.ndarray) -> float:
    def discrepancy(s: np.ndarray, t: np.ndarray) -> float:
        both = np.concatenate([s, t])
        squares = [np.sum((x - y) ** 2) for x in both for y in both]
        gamma = sum(squares) / (len(both) ** 2 - len(both))

        def kernel(xs: np.ndarray, ys: np.ndarray) -> float:
            values = [
                sum(math.exp(-np.sum((x - y) ** 2) / (gamma * 2.0**i)) for i in range(-2, 3)) for x in xs for y in ys
            ]
            return float(np.mean(values))

        return kernel(s, s) + kernel(t, t) - 2 * kernel(s, t)

    c = range(len(source))
    intra = np.mean([discrepancy(source[i], target[i]) for i in c])
    return float(intra - np.mean([discrepancy(source[i], target[j]) for i in c for j in c if i != j]))


def test_one_sample_a_class_worked_by_hand():
    # With one sample each γ is their squared distance, so every pair that differs has 5 + 5 - 2κ, and one that does not
    # has 0. Class 0 is in the same place in both domains, class 1 is not.
    source, target = torch.tensor([[[0.0]], [[3.0]]]), torch.tensor([[[0.0]], [[4.0]]])
    intra, inter = (0 + 10 - 2 * KAPPA) / 2, 10 - 2 * KAPPA
    assert float(contrastive_domain_discrepancy(source, target)) == pytest.approx(intra - inter)


def test_single_class_has_no_others_to_part_from():
    source, target = torch.tensor([[[0.0]]]), torch.tensor([[[2.0]]])
    assert float(contrastive_domain_discrepancy(source, target)) == pytest.approx(10 - 2 * KAPPA)


def test_it_is_what_loops_over_classes_and_samples_give():
    random = np.random.default_rng(0)
    source, target = random.normal(size=(4, 3, 5)), random.normal(size=(4, 2, 5))
    found = contrastive_domain_discrepancy(torch.from_numpy(source), torch.from_numpy(target))
    assert float(found) == pytest.approx(by_loops(source, target), rel=1e-9)


def test_gradient_brings_a_class_together_and_parts_classes():
    source = torch.tensor([[[0.0, 0.0], [0.2, 0.0]], [[3.0, 0.0], [3.2, 0.0]]])
    target = torch.tensor([[[0.0, 1.0], [0.2, 1.0]], [[3.0, 1.0], [3.2, 1.0]]], requires_grad=True)
    contrastive_domain_discrepancy(source, target).backward()
    # Down the gradient a class as a whole moves towards the source of the class and away from that of the other.
    of_classes = target.grad.sum(dim=1)
    assert of_classes[0, 1] > 0
    assert of_classes[1, 1] > 0
    assert of_classes[0, 0] > 0
    assert of_classes[1, 0] < 0


def test_samples_that_all_coincide_have_a_finite_gradient():
    source, target = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4, requires_grad=True)
    loss = contrastive_domain_discrepancy(source, target)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.isfinite(target.grad).all()
