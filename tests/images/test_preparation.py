from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from uniot.errors import DataError
from uniot.images.decoding import UnreadableImage
from uniot.images.preparation import Preparation
from uniot.images.weights import import_timm

SMALL = Preparation(resize=40, crop=32)


def config(name):
    return import_timm().models.get_pretrained_cfg(name).to_dict()


def soft(width, height, seed=0):
    """Spots without sharp edges, as in a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize(
    "name",
    [
        "tf_efficientnet_lite0",  # bicubic, mean and std of a half
        "tf_efficientnet_lite2",  # 292 pixels, of which 260
        "resnet18.tv_in1k",  # bilinear
        "resnet50.a1_in1k",  # a larger part of the image
        "convnext_base.fb_in22k_ft_in1k_384",  # squashed
    ],
)
@pytest.mark.parametrize("size", [(300, 300), (640, 427), (427, 641), (100, 90), (50, 400)])
def test_images_are_those_of_timms_evaluation_transform_within_rounding(name, size):
    timm = import_timm()
    ours = Preparation.of_timm(config(name))
    theirs = timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=config(name)))
    image = soft(*size)
    grey_levels = 255 * torch.tensor(ours.std).view(3, 1, 1)
    difference = (ours.normalise(torch.from_numpy(ours.image(image).copy())) - theirs(image)) * grey_levels
    # Pillow rounds between its two passes, and decides by the size which comes first.
    assert difference.abs().max() < 2.01
    assert difference.abs().mean() < 0.05


def test_default_network_sees_the_middle_of_the_image():
    preparation = Preparation.of_timm(config("tf_efficientnet_lite0"))
    assert (preparation.resize, preparation.crop) == (256, 224)
    assert preparation.mean == preparation.std == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("name", ["vit_base_patch16_sapiens2", "deepseek_vit_412m"])
def test_network_that_wants_other_shapes_is_refused(name):
    if not import_timm().is_model(name):
        pytest.skip(f"this timm has no {name}")
    with pytest.raises(DataError, match=r"squares with the crop modes 'center', 'squash'. Choose another"):
        Preparation.of_timm(config(name))


@given(st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=50)
def test_every_size_becomes_the_same_size(width, height):
    for preparation in (SMALL, Preparation(resize=32, crop=32), Preparation(40, 32, mode="squash")):
        pixels = preparation.image(Image.new("RGB", (width, height), (10, 20, 30)))
        assert pixels.shape == (3, 32, 32)
        assert pixels.dtype == np.uint8
        assert np.array_equal(pixels[:, 16, 16], [10, 20, 30])


def test_strip_of_film_costs_no_more_than_its_middle():
    # In full it would be 256 × 5 million pixels.
    pixels = Preparation().image(Image.new("RGB", (20_000, 1), (1, 2, 3)))
    assert np.array_equal(pixels[:, 5, 200], [1, 2, 3])


def test_square_holds_all_of_the_image():
    wide = Image.fromarray(np.repeat(np.array([[[0] * 3], [[255] * 3]], np.uint8), 90, axis=1).transpose(1, 0, 2))
    square = SMALL.square(wide.resize((400, 90), Image.Resampling.NEAREST))
    assert square.shape == (3, 40, 40)
    assert (square[:, :, 0] == 0).all()
    assert (square[:, :, -1] == 255).all()


def test_normalised_pixels_have_mean_and_spread_of_the_pretraining():
    values = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    black, white = SMALL.normalise(values)
    mean, std = torch.tensor(SMALL.mean).view(3, 1, 1), torch.tensor(SMALL.std).view(3, 1, 1)
    torch.testing.assert_close(black, -mean / std)
    torch.testing.assert_close(white, (1 - mean) / std)


def test_normalising_keeps_the_layout_and_leaves_the_pixels():
    pixels = torch.full((2, 4, 4, 3), 7, dtype=torch.uint8).permute(0, 3, 1, 2)
    assert SMALL.normalise(pixels).is_contiguous(memory_format=torch.channels_last)
    assert (pixels == 7).all()


def test_file_is_decoded_and_prepared(picture):
    assert SMALL.read(picture(0, (300, 200))).shape == (3, 32, 32)
    with pytest.raises(UnreadableImage, match="truncated"):
        SMALL.read(picture(0, (300, 200))[:500])


def test_large_photograph_is_decoded_smaller_with_nearly_the_same_pixels(picture):
    data = picture(3, (1600, 1200))
    with Image.open(io.BytesIO(data)) as full:
        difference = SMALL.read(data).astype(int) - SMALL.image(full)
    assert np.abs(difference).max() <= 3


def test_whatever_changes_the_numbers_changes_the_key():
    others = [
        Preparation(resize=41, crop=32),
        Preparation(resize=40, crop=31),
        Preparation(40, 32, mean=(0.5, 0.456, 0.406)),
        Preparation(40, 32, std=(0.5, 0.224, 0.225)),
        Preparation(40, 32, interpolation="bilinear"),
        Preparation(40, 32, mode="squash"),
    ]
    assert len({SMALL.key, *(other.key for other in others)}) == 7
    assert Preparation(40, 32).key == SMALL.key


def test_preparation_comes_back_from_json():
    again = Preparation(**json.loads(json.dumps(SMALL.to_dict())))
    assert again == SMALL
    assert hash(again) == hash(SMALL)
