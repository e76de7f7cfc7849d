"""The classifier that every adaptation is measured against: its loss by hand, and without a rule for the unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.methods import resolved_settings
from uniot.methods.base import Batch
from uniot.methods.registry import create_method


def test_loss_is_the_cross_entropy_of_the_source_alone():
    method = create_method(resolved_settings(Settings.checked(method="source-only", feature_size=2), 4), 2, 2)
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    source, target = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.full((2, 2), 9.0)
    loss = method.step(Batch(source, torch.tensor([0, 0]), target, torch.arange(2), 0, torch.Generator())).total
    # −log softmax: log(1 + e⁻²) for the first, log(1 + e¹) for the second, which is taken for the other class.
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_without_a_rule_every_sample_gets_its_likeliest_class():
    toy = make_toy_domains(seed=1)
    data = toy.x_source, toy.y_source, toy.x_target
    settings = {"method": "source-only", "steps": 60, "feature_size": 16, "n_private_classes": 1, "random_state": 0}
    with_rule, without = (
        UniDAClassifier(**settings),
        UniDAClassifier(**settings, says_unknown=False),
    )
    with_rule.fit(*data), without.fit(*data)
    assert 0 < (with_rule.labels_ == "unknown").sum() < len(toy.x_target)
    assert "unknown" not in without.labels_
    known = with_rule.labels_ != "unknown"
    np.testing.assert_array_equal(without.labels_[known], with_rule.labels_[known])
