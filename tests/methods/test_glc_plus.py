"""GLC++: the contrast between stored neighbours and hard negatives of the batch."""

from __future__ import annotations

import math

import pytest
import torch

from uniot.config import Settings
from uniot.losses import contrastive_affinity_loss
from uniot.methods.glc_plus import INFO, GLCPlus, GLCPlusOptions
from uniot.methods.source_free import TargetBatch


def at(*degrees: float) -> torch.Tensor:
    """Return points of the plane at these angles, at different distances."""
    return torch.stack(
        [
            (1 + i) * torch.tensor([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
            for i, angle in enumerate(degrees)
        ]
    )


@pytest.mark.parametrize(
    ("n_skipped", "expected"),
    [
        # Cosines to the others, largest first, are for 0°: ½ (60°), 0 (90°), -1 (180°);
        # for 60°: √3/2 (90°), ½ (0°), -½ (180°); for 90°: √3/2 (60°), 0 (0°), 0 (180°); for 180°: 0 (90°), -½, -1.
        # The single neighbour of each is at 0°, with cosines 1, ½, 0 and -1: ½ in total.
        (0, (0.5 + math.sqrt(3) + 0 - 0.5) / 4),
        (1, (0 + 0.5 + 0 - 0.5 - 0.5) / 4),
        (2, (-1 - 0.5 + 0 - 1 - 0.5) / 4),
        # No negatives are left.
        (3, -0.5 / 4),
    ],
)
def test_contrast_worked_by_hand(n_skipped, expected):
    batch = at(0, 60, 90, 180)
    neighbours = at(0).expand(4, 1, 2)
    loss = contrastive_affinity_loss(batch, batch, neighbours, n_skipped)
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_there_are_as_many_negatives_as_neighbours():
    batch = at(0, 60, 90, 180)
    # Two neighbours at 90° and 0°: cosines sum to 1, ½ + √3/2, 1 and -1.
    neighbours = torch.stack([at(90), at(0)], dim=1).expand(4, 2, 2)
    # Negatives after the first: 0 - 1, ½ - ½, 0 + 0, -½ - 1.
    expected = (-2.5 - (1 + 0.5 + math.sqrt(3) / 2 + 1 - 1)) / 4
    assert float(contrastive_affinity_loss(batch, batch, neighbours, 1)) == pytest.approx(expected, abs=1e-6)


def test_contrast_has_the_right_gradient():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    batch = features.detach().clone()
    neighbours = torch.randn(6, 2, 4, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda rows: contrastive_affinity_loss(rows, batch, neighbours, 2), features)


@pytest.mark.parametrize(("n_clusters", "n_skipped"), [(2, 2), (3, 2), (4, 1), (9, 1)])
def test_as_many_samples_are_skipped_as_a_class_has_in_a_batch(n_clusters, n_skipped):
    settings = Settings.checked(feature_size=2, steps=4, queue_size=8, batch_size=4)
    method = GLCPlus(3, 2, settings, GLCPlusOptions(contrast_weight=0.5))
    method.n_clusters.fill_(n_clusters)
    features, neighbours = at(0, 60, 90, 180), at(0).expand(4, 1, 2)
    target = TargetBatch(features, method.classifier(features), torch.tensor([0, 1, 2, 2]), features, neighbours)
    losses = method.target_losses(target)
    expected = contrastive_affinity_loss(features, features, neighbours, n_skipped)
    assert float(losses["contrast"]) == pytest.approx(float(expected))
    assert method.loss_weights() == {"pseudo": 0.3, "neighbours": 1.0, "contrast": 0.5}
    assert losses.keys() == method.loss_weights().keys()


def test_pseudo_labels_are_those_of_glc(monkeypatch):
    given = []
    monkeypatch.setattr("uniot.methods.glc_plus.one_vs_all_labels", lambda *args: given.append(args) or args[0])
    settings = Settings.checked(feature_size=4, steps=4, queue_size=8, batch_size=4)
    method = GLCPlus(3, 2, settings, GLCPlusOptions(prior=0.6))
    method.n_clusters.fill_(5)
    method.pseudo_labels(torch.zeros(1), torch.ones(1))
    assert given[0][2:] == (5, 0.6)
    assert INFO.is_source_free
