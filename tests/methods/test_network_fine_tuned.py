from __future__ import annotations

import torch
from torch import nn

from uniot.methods.networks import FineTuned


def tail() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_embeddings_have_the_norm_asked_for():
    embeddings = FineTuned(tail(), 30.0)(torch.randn(5, 3, 8, 8))
    assert embeddings.shape == (5, 4)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.full((5,), 30.0))


def test_batch_statistics_and_dropout_stay_off_in_training():
    network = FineTuned(tail(), 1.0)
    images = torch.randn(6, 3, 8, 8)
    alone = network.eval()(images[:1])
    network.train()
    assert network.training
    before = network.tail[1].running_mean.clone()
    torch.testing.assert_close(network(images)[:1], alone)
    assert torch.equal(network.tail[1].running_mean, before)


def test_frozen_weights_are_trained_again():
    frozen = tail().requires_grad_(False)
    assert all(parameter.requires_grad for parameter in FineTuned(frozen, 1.0).parameters())


def test_parts_give_the_gradients_of_the_whole_batch():
    images = torch.randn(7, 3, 8, 8)
    gradients = []
    for parts in (1, 3):
        network = FineTuned(tail(), 30.0, parts).train()
        embeddings = network(images)
        # Every pair of the batch matters, as in the losses of a method.
        (embeddings @ embeddings.t()).tanh().sum().backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    for whole, in_parts in zip(*gradients, strict=True):
        torch.testing.assert_close(in_parts, whole, rtol=1e-4, atol=1e-5)
    assert any(gradient.abs().max() > 1e-4 for gradient in gradients[0])
