"""Evidence, uncertainty and their losses; ψ and ln Γ of whole numbers are sums that can be done by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Dirichlet, kl_divergence

from uniot.losses import evidence, evidential_loss, evidential_uncertainty, uncertainty_boundary_loss


def test_uncertainty_is_one_without_evidence_and_falls_with_it():
    evidences = torch.tensor([[0.0, 0.0, 0.0], [6.0, 0.0, 0.0], [2.0, 2.0, 2.0]])
    assert evidential_uncertainty(evidences).tolist() == pytest.approx([1, 3 / 9, 3 / 9])


def test_classes_do_not_compete_for_evidence():
    # A softmax cannot tell these two rows apart.
    found = evidence(torch.tensor([[0.0, 0.0], [3.0, 3.0]]))
    assert found[1].tolist() == pytest.approx([math.exp(3)] * 2)
    assert evidential_uncertainty(found)[1] < evidential_uncertainty(found)[0]


def test_huge_logits_stay_numbers():
    assert torch.isfinite(evidence(torch.tensor([[1e6, -1e6]]))).all()


def test_evidential_loss_worked_by_hand():
    # α = (3, 2), y = 0: ψ(5) - ψ(3) = 1/3 + 1/4. Without its own evidence α' = (1, 2), whose divergence from (1, 1) is
    # ln Γ(3) - ln Γ(2) - ln Γ(2) + (ψ(2) - ψ(3)) = ln 2 - 1/2.
    evidences = torch.tensor([[2.0, 1.0]])
    labels = torch.tensor([0])
    assert float(evidential_loss(evidences, labels, 0.0)) == pytest.approx(1 / 3 + 1 / 4, rel=1e-5)
    assert float(evidential_loss(evidences, labels, 0.5)) == pytest.approx(7 / 12 + (math.log(2) - 0.5) / 2, rel=1e-5)


def test_penalty_is_the_divergence_from_the_flat_dirichlet():
    evidences = torch.tensor([[5.0, 0.3, 1.7], [0.2, 9.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 2])
    alpha = (evidences + 1).scatter(1, labels[:, None], 1.0)
    expected = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha))).mean()
    found = evidential_loss(evidences, labels, 1.0) - evidential_loss(evidences, labels, 0.0)
    assert float(found) == pytest.approx(float(expected))


def test_evidence_for_the_right_class_lowers_the_loss_and_for_a_wrong_one_raises_it():
    evidences = torch.tensor([[1.0, 1.0, 1.0]], requires_grad=True)
    evidential_loss(evidences, torch.tensor([1]), 1.0).backward()
    assert evidences.grad[0, 1] < 0
    assert evidences.grad[0, 0] > 0


def test_boundary_loss_is_the_mean_distance_and_its_gradient_is_bounded():
    u = torch.tensor([0.1, 0.9, 0.5], requires_grad=True)
    loss = uncertainty_boundary_loss(u, torch.tensor([0.4, 0.6, 0.5]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx((0.3 + 0.3 + 0) / 3)
    assert u.grad.tolist() == pytest.approx([-1 / 3, 1 / 3, 0])
