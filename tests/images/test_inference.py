from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from uniot.errors import NumericalError
from uniot.images.backbones import Split
from uniot.images.inference import FrozenTrunk, inference_form
from uniot.images.preparation import Preparation

NORMALISED = ["test_efficientnet", "mobilenetv3_small_050", "test_byobnet"]


def pixels(of, number):
    size = of.preparation.crop
    return list(np.random.default_rng(0).integers(0, 256, (number, 3, size, size), dtype=np.uint8))


def images(of, number=2):
    return of.preparation.normalise(torch.from_numpy(np.stack(pixels(of, number))))


@pytest.mark.parametrize("name", [*NORMALISED, "test_resnet", "test_convnext", "test_vit", "test_efficientnet_gn"])
def test_fast_form_gives_the_same_numbers(backbone, name):
    of = backbone(name)
    expected = of.network(images(of))
    fast = inference_form(of.network, of.preparation.crop)
    torch.testing.assert_close(fast(images(of)), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("name", NORMALISED)
def test_fast_form_has_no_normalisation_left_and_the_network_keeps_its_own(backbone, name):
    of = backbone(name)
    before = {key: value.clone() for key, value in of.network.state_dict().items()}
    fast = inference_form(of.network, of.preparation.crop)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in of.network.modules())
    assert all(torch.equal(value, before[key]) for key, value in of.network.state_dict().items())


class UsesTheNormFirst(nn.Module):
    """Its layers are registered in another order than they are used in."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.norm.running_mean.fill_(2.0)

    def forward(self, images):
        return self.conv(self.norm(images))


def test_layers_in_another_order_than_they_are_used_in_are_left_alone():
    network = UsesTheNormFirst().eval()
    batch = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(inference_form(network, 8)(batch), network(batch))


def test_network_without_weights_has_a_fast_form():
    assert inference_form(nn.Identity(), 8)(torch.ones(1)) == 1


@pytest.mark.parametrize("name", ["test_efficientnet", "test_resnet", "test_vit"])
def test_numbers_of_an_image_do_not_depend_on_its_company(backbone, name):
    of = backbone(name)
    some = pixels(of, 7)
    with FrozenTrunk(of.split("none"), 4) as trunk:
        together = trunk.submit(some[:4]).result()
        assert np.array_equal(trunk.submit(some[:1]).result(), together[:1])
        assert np.array_equal(trunk.submit([some[5], some[6], some[2], some[0]]).result()[2:], together[[2, 0]])


def test_rows_are_what_the_network_gives_in_half_precision(small):
    with FrozenTrunk(small.split("none"), 4) as trunk:
        rows = trunk.submit(pixels(small, 3)).result()
    assert rows.dtype == np.float16
    assert rows.shape == (3, small.width)
    np.testing.assert_allclose(rows, small.network(images(small, 3)), rtol=2e-3, atol=1e-3 * np.abs(rows).max())


def test_fast_form_averages_over_mirror_images(small):
    split = small.split("none", flip=True)
    fast = inference_form(split.trunk, small.preparation.crop)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    batch = images(small)
    expected = (small.network(batch) + small.network(batch.flip(3))) / 2
    torch.testing.assert_close(fast(batch), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def test_mirrored_pixels_have_the_same_averaged_row_to_the_bit(small):
    some = pixels(small, 3)
    with FrozenTrunk(small.split("none", flip=True), 4) as trunk:
        rows = trunk.submit(some).result()
        mirrored = trunk.submit([image[:, :, ::-1] for image in some]).result()
    assert np.array_equal(rows, mirrored)


def test_threads_compute_the_same_and_leave_the_number_of_threads(small):
    some = pixels(small, 12)
    with FrozenTrunk(small.split("last"), 4) as trunk:
        assert trunk.streams == torch.get_num_threads() == 1
        alone = [trunk.submit(some[start : start + 4]).result() for start in (0, 4, 8)]
    torch.set_num_threads(2)
    try:
        with FrozenTrunk(small.split("last"), 4) as trunk:
            assert trunk.streams == 2
            futures = [trunk.submit(some[start : start + 4]) for start in (0, 4, 8)]
            assert all(np.array_equal(future.result(), rows) for future, rows in zip(futures, alone, strict=True))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_numbers_too_large_for_float16_name_the_network():
    class Large(nn.Module):
        def forward(self, images):
            return images.flatten(1) + 70_000

    split = Split("resnet-large", "none", lambda: (Large(), nn.Identity()), Preparation(8, 8))
    with FrozenTrunk(split, 2) as trunk, pytest.raises(NumericalError, match=r"output of resnet-large .*beyond 65504"):
        trunk.submit([np.zeros((3, 8, 8), np.uint8)]).result()


def test_default_backbone_is_the_same_to_the_bit_in_any_company(default):
    some = pixels(default, 3)
    with FrozenTrunk(default.split("none"), 16) as trunk:
        alone = trunk.submit(some[:1]).result()
        together = trunk.submit([some[2], some[1], some[0]]).result()
    assert np.array_equal(alone[0], together[2])
    expected = default.network(images(default, 3))
    np.testing.assert_allclose(together[::-1], expected, rtol=2e-3, atol=1e-3)
