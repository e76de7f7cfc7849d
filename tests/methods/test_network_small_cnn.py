import pytest
import torch

from uniot.errors import DataError
from uniot.methods.networks import SmallCNN


def images(n, height=28, width=28):
    return torch.rand(n, height, width, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return SmallCNN(out_features=24)


@pytest.mark.parametrize("shape", [(8, 8), (8, 31), (28, 28), (33, 20), (64, 64)])
def test_any_side_from_eight_gives_one_embedding_an_image(network, shape):
    assert network(images(3, *shape)).shape == (3, network.out_features) == (3, 24)


def test_embedding_of_an_image_does_not_depend_on_its_batch_nor_on_the_mode(network):
    batch = images(17)
    with torch.no_grad():
        in_training = network.train()(batch)
        network.eval()
        together = network(batch)
        alone = torch.cat([network(image[None]) for image in batch])
    torch.testing.assert_close(in_training, together, rtol=0, atol=1e-5)
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-5)


def test_embeddings_have_the_scale_that_the_projection_is_initialised_for(network):
    lengths = network(images(9) * torch.linspace(0.2, 1, 9)[:, None, None]).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((9,), 24**0.5), rtol=1e-2, atol=0)


def test_empty_image_has_a_finite_embedding_and_finite_gradients(network):
    empty = torch.zeros(2, 28, 28, requires_grad=True)
    network(empty).square().sum().backward()
    assert torch.isfinite(empty.grad).all()
    assert all(torch.isfinite(weight.grad).all() for weight in network.parameters())


def test_every_weight_learns(network):
    (network(images(8)) ** 3).sum().backward()
    assert [name for name, weight in network.named_parameters() if not weight.grad.abs().max() > 0] == []


def test_position_matters_as_a_six_is_a_nine_upside_down(network):
    image = torch.zeros(1, 28, 28)
    image[:, 16:24, 8:16] = 1
    assert (network(image) - network(image.flip(1, 2))).abs().max() > 0.1


def test_weights_are_all_the_state_there_is(network):
    torch.manual_seed(1)
    other = SmallCNN(out_features=24)
    network(images(5))
    other.load_state_dict(dict(network.named_parameters()))
    torch.testing.assert_close(other(images(4)), network(images(4)), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(2, 7, 28), (2, 28, 7), (2, 1, 28, 28), (28, 28)])
def test_wrong_shape_is_refused_with_the_shape_that_came(network, shape):
    with pytest.raises(DataError, match=r"\(n, height, width\).*at least 8.*Resize") as error:
        network(torch.zeros(shape))
    assert str(tuple(shape)) in str(error.value)
