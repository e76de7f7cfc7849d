"""LEAD: the decomposition of features, the threshold of each sample, and the weights of pseudo-labels."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.lead import (
    INFO,
    LEAD,
    common_scores,
    decomposition_loss,
    decomposition_norms,
    known_basis,
    label_weights,
    upper_mean,
)
from uniot.methods.source_free import SourceFreeOptions, TargetBatch


def build(n_classes: int = 2, feature_size: int = 3) -> LEAD:
    """Return a method whose classifier reads the first axes."""
    settings = Settings.checked(feature_size=feature_size, steps=4, queue_size=8, batch_size=4)
    method = LEAD(5, n_classes, settings, SourceFreeOptions())
    with torch.no_grad():
        method.classifier.direction.copy_(torch.eye(feature_size)[:n_classes])
        method.classifier.length.fill_(1)
    return method


def test_known_space_is_the_one_that_the_classifier_reads():
    weight = torch.tensor([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0]])
    basis = known_basis(weight)
    assert (basis @ basis.t()).numpy() == pytest.approx(torch.eye(2).numpy(), abs=1e-6)
    # 0.6 of the first feature lies in the plane, 0.8 along the third axis; the others lie in one of the two.
    features = torch.tensor([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    expected = torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    assert decomposition_norms(features, basis).numpy() == pytest.approx(expected.numpy(), abs=1e-6)


def test_classifier_weights_lie_in_the_known_space():
    weight = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    norms = decomposition_norms(F.normalize(weight, dim=1), known_basis(weight))
    assert norms.numpy() == pytest.approx(torch.tensor([[1.0, 0.0]] * 4).numpy(), abs=1e-5)


def test_common_score_worked_by_hand():
    features = torch.tensor([[1.0, 0.0]])
    prototypes = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    anchors = torch.tensor([[0.6, 0.8], [-1.0, 0.0], [1.0, 0.0]])
    # sqrt((1 - e^-1) e^-0.4) = sqrt(0.63212 · 0.67032); a cosine of -1 counts as 0: sqrt((1 - e^-0.6) e^-1); and
    # sqrt(0 · 1).
    expected = [0.65094, math.sqrt(0.451188 * 0.367879), 0.0]
    assert common_scores(features, prototypes, anchors)[0].tolist() == pytest.approx(expected, abs=1e-4)


def test_upper_mean_is_that_of_the_larger_values():
    values = torch.tensor([0.1, 0.12, 0.08, 0.1, 0.7, 0.72, 0.68])
    assert upper_mean(values) == pytest.approx(0.7, abs=1e-3)
    assert upper_mean(torch.full((5,), 0.3)) == pytest.approx(0.3, abs=1e-6)
    assert upper_mean(torch.tensor([0.4])) == pytest.approx(0.4)


def test_weight_is_zero_at_the_threshold_and_almost_one_far_from_it():
    norms, thresholds = torch.tensor([0.5, 0.51, 0.49, 0.8]), torch.full((4,), 0.5)
    # A distance of 0.01 gives 1 - 2^-0.50005 = 0.29292; one of 0.3 gives 1 - 901^-0.50005 = 0.96670.
    expected = [0.0, 0.29292, 0.29292, 0.96670]
    assert label_weights(norms, thresholds).tolist() == pytest.approx(expected, abs=1e-4)


def test_decomposition_loss_worked_by_hand():
    norms = torch.tensor([[0.6, 0.8], [0.6, 0.8]])
    # -log softmax: unknown ln(1 + e^-0.2) = 0.59814, known ln(1 + e^0.2) = 0.79814; half of the second counts.
    loss = decomposition_loss(norms, torch.tensor([True, False]), torch.tensor([1.0, 0.5]))
    assert float(loss) == pytest.approx((0.59814 + 0.39907) / 2, abs=1e-4)


def test_decomposition_loss_has_the_right_gradient():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    basis = known_basis(torch.randn(2, 5, generator=generator, dtype=torch.float64))
    is_unknown, weights = torch.tensor([True, False, True, False]), torch.rand(4, generator=generator).double()

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return decomposition_loss(decomposition_norms(F.normalize(rows, dim=1), basis), is_unknown, weights)

    assert torch.autograd.gradcheck(loss, features)


def test_feature_in_the_known_space_has_a_finite_gradient():
    features = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True)
    norms = decomposition_norms(features, torch.eye(3)[:2])
    decomposition_loss(norms, torch.tensor([True]), torch.ones(1)).backward()
    assert torch.isfinite(features.grad).all()


def test_threshold_lies_between_the_prior_of_the_class_and_the_upper_mean():
    method = build()
    method.basis.copy_(torch.eye(3)[:2])
    method.prototypes.copy_(torch.eye(3)[:2])
    method.norm_priors.copy_(torch.tensor([0.2, 0.95]))
    method.upper.fill_(0.9)
    features = torch.tensor([[0.6, 0.0, 0.8], [0.0, 0.6, 0.8]])
    norms, thresholds, classes = method.boundaries(features)
    assert classes.tolist() == [0, 1]
    assert norms.tolist() == pytest.approx([0.8, 0.8])
    # The score is sqrt((1 - e^-0.6) e^-0.4) = sqrt(0.451188 · 0.67032) = 0.54995: 0.2 + 0.54995 · 0.7 = 0.58496. The
    # prior of class 1 is above the upper mean, so it is the threshold.
    assert thresholds.tolist() == pytest.approx([0.58496, 0.95], abs=1e-4)


def test_sample_whose_unknown_part_reaches_its_threshold_is_unknown():
    method = build()
    method.n_clusters.fill_(3)
    near, half, away = [1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [0.3, 0.2, 1.0]
    features = F.normalize(torch.tensor([near, near, half, half, away, away]), dim=1)
    probabilities = (4 * method.classifier(features)).softmax(dim=1)
    assert method.pseudo_labels(features, probabilities).tolist() == [0, 0, 1, 1, 2, 2]
    # Two of six samples in three clusters: the samples near a class are those from which its prior comes.
    assert method.norm_priors.tolist() == pytest.approx([0.1 / math.sqrt(1.01)] * 2, abs=1e-5)
    assert float(method.upper) == pytest.approx(1 / math.sqrt(1.13), abs=1e-3)
    assert method.prototypes.numpy() == pytest.approx(features[[0, 2]].numpy(), abs=1e-5)


def test_losses_are_weighted_by_the_distance_from_the_threshold():
    method = build()
    method.n_clusters.fill_(3)
    features = F.normalize(torch.tensor([[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [0.3, 0.2, 1.0]]), dim=1)
    labels = method.pseudo_labels(features, (4 * method.classifier(features)).softmax(dim=1))
    target = TargetBatch(features, method.classifier(features), labels, 2 * features, features[:, None])
    losses = method.target_losses(target)
    norms, thresholds, _ = method.boundaries(features)
    weights = label_weights(norms, thresholds)
    wanted = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    pseudo = (-weights[:, None] * wanted * target.logits.log_softmax(dim=1)).sum(dim=1).mean()
    assert labels.tolist() == [0, 1, 2]
    assert float(losses["pseudo"].detach()) == pytest.approx(float(pseudo.detach()), rel=1e-4)
    two = decomposition_norms(features, torch.eye(3)[:2])
    expected = decomposition_loss(two, torch.tensor([False, False, True]), weights)
    assert float(losses["decomposition"]) == pytest.approx(float(expected), rel=1e-4)
    assert losses.keys() == method.loss_weights().keys()
    assert method.loss_weights() == {"pseudo": 0.3, "neighbours": 1.0, "decomposition": 1.0}


def test_weights_are_those_of_the_stored_rows_that_the_labels_come_from():
    method = build()
    method.n_clusters.fill_(3)
    stored = F.normalize(torch.tensor([[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [0.3, 0.2, 1.0]]), dim=1)
    labels = method.pseudo_labels(stored, (4 * method.classifier(stored)).softmax(dim=1))
    norms, thresholds, _ = method.boundaries(stored)
    # In the batch, each sample now lies just off the threshold of its stored row, where its own weight would be small.
    height = thresholds + 0.01
    now = torch.stack([(1 - height**2).sqrt(), torch.zeros(3), height], dim=1)
    losses = method.target_losses(TargetBatch(now, method.classifier(now), labels, stored, stored[:, None]))
    weights = label_weights(norms, thresholds)
    assert float(weights.min()) > 0.8
    expected = decomposition_loss(decomposition_norms(now, torch.eye(3)[:2]), labels == 2, weights)
    assert float(losses["decomposition"]) == pytest.approx(float(expected), rel=1e-4)
    wanted = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    pseudo = (weights * F.cross_entropy(method.classifier(now), wanted, reduction="none")).mean()
    assert float(losses["pseudo"].detach()) == pytest.approx(float(pseudo.detach()), rel=1e-4)


def test_feature_size_that_leaves_no_unknown_space_is_refused():
    with pytest.raises(
        SettingsError, match=r"feature_size is 3 and there are 3 classes. Set feature_size to at least 4"
    ):
        build(n_classes=3, feature_size=3)
    assert build(n_classes=3, feature_size=4).basis.shape == (3, 4)
    assert INFO.is_source_free
