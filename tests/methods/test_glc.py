"""GLC: who is positive, who is negative, and which samples are unknown."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.methods.glc import GLC, INFO, GLCOptions
from uniot.methods.glc_clustering import negative_centres, one_vs_all_labels
from uniot.methods.pseudo_labels import estimate_clusters


def test_sample_far_from_every_class_is_unknown_by_one_against_all_clustering():
    right, up, left = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]
    features = torch.tensor([right, right, up, up, left, left])
    probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.5, 0.5], [0.5, 0.5]])
    # Six samples in three clusters: two positive ones per class. The last two have cosines -1 and 0 to the prototypes,
    # and 1 to the cluster of the negative samples that they make themselves.
    assert one_vs_all_labels(features, probabilities, n_clusters=3).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("prior", "probability", "others", "label"),
    [(0.75, 0.2, 0.1, 1), (1.0, 0.2, 0.1, 0), (0.75, 0.9, 0.0, 0)],
)
def test_class_with_improbable_samples_is_trusted_less(prior, probability, others, label):
    # One class: five positive samples at 0°, one at 36.87°; the prototype is (5.8, 0.6) / 5.831 = (0.9947, 0.1029), and
    # the cosine of the sixth to it is 0.8575. Six negative samples at 78.28° have cosine 0.75 to the sixth.
    sixth, away = [0.8, 0.6], [0.2032, 0.9791]
    features = F.normalize(torch.tensor([[1.0, 0.0]] * 5 + [sixth] + [away] * 6), dim=1)
    probabilities = torch.tensor([probability] * 6 + [others] * 6)[:, None]
    # With ρ = ¾ the factor is 0.75 + 0.25 · 0.2 = 0.8, and 0.8 · 0.8575 = 0.686 < 0.75. Only the positive samples
    # count: 0.75 + 0.25 · 0.9 = 0.975 gives 0.836, while with the mean of all, 0.45, it would be 0.740.
    labels = one_vs_all_labels(features, probabilities, n_clusters=2, prior=prior)
    assert labels.tolist() == [0] * 5 + [label] + [1] * 6


def test_label_is_the_nearest_prototype_whatever_the_prediction():
    # The prediction of the last sample is class 1, but it lies with the positive samples of class 0.
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.3, 0.7]])
    labels = one_vs_all_labels(features, probabilities, n_clusters=2, prior=1.0)
    assert labels[4] != 1


def test_cluster_of_positive_samples_alone_is_no_negative_cluster():
    negative = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.6, 0.8]])
    start = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    centres = negative_centres(negative, start)
    # All three are nearest to the second centre, whose mean (0.2, 0.9333) has the direction (0.2095, 0.9778).
    assert centres.numpy() == pytest.approx(torch.tensor([[0.2095, 0.9778]]).numpy(), abs=1e-4)


def test_features_of_one_number_get_the_least_number_of_clusters():
    assert estimate_clusters(torch.rand(40, 1), 8, (0.25, 1, 2)) == 2


def test_method_clusters_with_its_number_and_prior(monkeypatch):
    given = []
    monkeypatch.setattr("uniot.methods.glc.one_vs_all_labels", lambda *args: given.append(args) or args[0])
    settings = Settings.checked(feature_size=4, steps=4, queue_size=8, batch_size=4)
    method = GLC(3, 2, settings, GLCOptions(prior=0.6))
    method.n_clusters.fill_(5)
    method.pseudo_labels(torch.zeros(1), torch.ones(1))
    assert given[0][2:] == (5, 0.6)
    assert INFO.is_source_free
