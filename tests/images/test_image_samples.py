from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from uniot.images.files import unlabelled_images
from uniot.images.preparation import Preparation
from uniot.training.samples import ImageSamples

PREPARATION = Preparation(resize=40, crop=32)
IDS = torch.tensor([3, 0, 7, 7])


@pytest.fixture
def samples(shape_folders) -> ImageSamples:
    return ImageSamples(unlabelled_images(shape_folders[1]), PREPARATION)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_without_a_generator_an_image_is_seen_as_at_prediction(samples, shape_folders):
    files = unlabelled_images(shape_folders[1])
    pixels = PREPARATION.read(files[3].path.read_bytes())
    expected = PREPARATION.normalise(torch.tensor(pixels)[None])
    assert torch.equal(samples.batch(IDS)[:1], expected)
    assert len(samples) == len(files)


def test_the_generator_decides_crop_and_flip(samples):
    first, again, other = (samples.batch(IDS, seeded(seed)) for seed in (0, 0, 1))
    assert first.shape == (4, 3, 32, 32)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # The same image twice in a batch is seen in two ways.
    assert not torch.equal(first[2], first[3])


def test_crops_lie_in_many_places_and_half_are_mirrored(tmp_path):
    # Brightness rises from left to right: its slope tells the orientation, its mean the place.
    ramp = np.tile(np.arange(0, 250, dtype=np.uint8), (250, 1))
    Image.fromarray(ramp).convert("RGB").save(tmp_path / "ramp.png")
    views = ImageSamples(unlabelled_images(tmp_path), PREPARATION).batch(torch.zeros(200, dtype=torch.long), seeded(0))
    rises = views[:, 0, 0, -1] > views[:, 0, 0, 0]
    assert 70 < int(rises.sum()) < 130
    assert len(views.mean(dim=(1, 2, 3)).round(decimals=2).unique()) == 9  # 40 - 32 + 1 places from left to right


def test_processes_that_make_parts_make_the_whole_batch(samples):
    whole = samples.batch(IDS, seeded(5))
    generators = [seeded(5), seeded(5)]
    parts = [samples.batch(IDS, generators[0], slice(0, 2)), samples.batch(IDS, generators[1], slice(2, 4))]
    assert torch.equal(torch.cat(parts), whole)
    # Both have used the generator up as far.
    assert torch.equal(torch.rand(3, generator=generators[0]), torch.rand(3, generator=generators[1]))
