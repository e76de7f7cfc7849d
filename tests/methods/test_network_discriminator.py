from __future__ import annotations

import pytest
import torch

from uniot.methods.networks import DomainDiscriminator, dropped


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 6, generator=generator(seed))


@pytest.fixture
def discriminator():
    torch.manual_seed(0)
    return DomainDiscriminator(6, hidden_size=32)


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    x = torch.full((200, 500), 3.0)
    y = dropped(x, 0.25, generator())
    assert float((y == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert y[y != 0].unique().tolist() == [4]


def test_dropout_without_a_generator_or_a_rate_changes_nothing():
    x = rows(3)
    assert dropped(x, 0.5, None) is x
    assert dropped(x, 0.0, generator()) is x


def test_dropped_values_have_no_gradient_and_the_others_a_larger_one():
    x = torch.ones(1000, requires_grad=True)
    y = dropped(x, 0.5, generator())
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_masks_come_from_the_generator_alone(discriminator):
    state = torch.random.get_rng_state()
    first = discriminator(rows(4), generator(1))
    torch.rand(7)
    assert torch.equal(first, discriminator(rows(4), generator(1)))
    assert not torch.equal(first, discriminator(rows(4), generator(2)))
    torch.random.set_rng_state(state)
    discriminator(rows(4), generator(1))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_discriminator_is_three_layers_that_end_in_a_logit(discriminator):
    x = rows(5)
    hidden = torch.relu(x @ discriminator.first.weight.t() + discriminator.first.bias)
    hidden = torch.relu(hidden @ discriminator.second.weight.t() + discriminator.second.bias)
    expected = (hidden @ discriminator.last.weight.t() + discriminator.last.bias)[:, 0]
    logits = discriminator(x)
    assert logits.shape == (5,)
    assert torch.allclose(logits, expected, atol=1e-6)


def test_both_domains_in_one_pass_are_each_on_its_own(discriminator):
    source, target = discriminator.of_domains(rows(3), rows(5, seed=1))
    assert torch.allclose(source, discriminator(rows(3)), atol=1e-6)
    assert torch.allclose(target, discriminator(rows(5, seed=1)), atol=1e-6)


def test_published_width_and_dropout_are_the_defaults():
    discriminator = DomainDiscriminator(6)
    assert discriminator.second.weight.shape == (1024, 1024)
    assert discriminator.dropout == 0.5
