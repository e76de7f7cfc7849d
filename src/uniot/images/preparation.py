"""Resize, crop and normalise images as a pretrained network expects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from uniot.errors import DataError, RunFolderError
from uniot.images.decoding import decoded
from uniot.io.tensor_files import MAKE_AGAIN

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]

# Increased when the same settings give other pixels, so that stored embeddings are computed again.
_VERSION = 2
# A little less than 2: photographs of 1000 pixels, resized to 256, are decoded at half their size.
_DECODED = 1.9
# Larger than the images of any network; those of timm take about a thousand pixels per side.
_MAX_SIDE = 8192


@dataclass(frozen=True)
class Preparation:
    """The evaluation transform of a network.

    Attributes:
        resize: shorter side after resizing, in pixels; both sides if `mode` is "squash".
        crop: side of the square that is cut from the centre, in pixels.
        mean: mean of red, green and blue in the pretraining, between 0 and 1.
        std: standard deviation of red, green and blue.
        interpolation: name of a resampling filter of Pillow, in small letters.
        mode: "centre" keeps the aspect ratio, "squash" does not.
    """

    resize: int = 256
    crop: int = 224
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = "bicubic"
    mode: Literal["centre", "squash"] = "centre"

    @classmethod
    def of_timm(cls, pretrained_cfg: Mapping[str, Any]) -> Preparation:
        """Return timm's evaluation transform of a network, from its `pretrained_cfg`."""
        from uniot.images.weights import import_timm

        config = import_timm().data.resolve_data_config(pretrained_cfg=dict(pretrained_cfg))
        _, height, width = config["input_size"]
        modes: dict[str, Literal["centre", "squash"]] = {"center": "centre", "squash": "squash"}
        if height != width or config["crop_mode"] not in modes:
            raise DataError(
                f"{pretrained_cfg.get('architecture', 'this network')} takes images of {width} × {height} pixels "
                f"with the crop mode {config['crop_mode']!r}; uniot prepares squares with the crop modes "
                f"{', '.join(map(repr, modes))}. Choose another backbone."
            )
        return cls(
            resize=int(height / config["crop_pct"]),
            crop=height,
            mean=config["mean"],
            std=config["std"],
            interpolation=config["interpolation"],
            mode=modes[config["crop_mode"]],
        )

    @classmethod
    def stored(cls, path: Path, values: object) -> Preparation:
        """Return the transform from the values of `to_dict`, after checking them.

        Args:
            path: file of the values, for error messages.
            values: values as they were read.

        Raises:
            RunFolderError: the values do not describe a transform.
        """
        try:
            found = TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            raise RunFolderError(
                f"{path} has an unknown transform of images ({place}: {problem['msg'].lower()}). {MAKE_AGAIN}"
            ) from None
        deviations_fit = all(0 < value < np.inf for value in found.std) and np.isfinite(found.mean).all()
        if not (1 <= found.crop <= found.resize <= _MAX_SIDE and deviations_fit):
            raise RunFolderError(
                f"{path} prepares images by resizing to {found.resize} and cropping to {found.crop} pixels, with mean "
                f"{found.mean} and deviation {found.std}; expected are at most {_MAX_SIDE} pixels and finite "
                f"numbers. {MAKE_AGAIN}"
            )
        return found

    def __post_init__(self) -> None:
        # JSON has lists instead of tuples.
        object.__setattr__(self, "mean", tuple(self.mean))
        object.__setattr__(self, "std", tuple(self.std))

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes for JSON; `Preparation(**values)` restores the transform."""
        return asdict(self)

    @property
    def key(self) -> str:
        """Return a key of everything that determines the pixels that the network gets."""
        numbers = ",".join(f"{value:g}" for value in (*self.mean, *self.std))
        return f"v{_VERSION} {self.mode} {self.resize} {self.crop} {self.interpolation} {numbers}"

    @property
    def decoded_side(self) -> int:
        """Return the length in pixels of the shorter side that a photograph is decoded at, if it is larger.

        That is several times as fast, and about twice the size that is needed is as good as all of it.
        """
        return int(_DECODED * self.resize)

    def read(self, data: bytes) -> Pixels:
        """Return the pixels of an image file, decoded, resized and cropped, (3, crop, crop).

        Raises:
            UnreadableImage: `data` cannot be decoded.
        """
        with decoded(data, shortest_side=self.decoded_side) as image:
            return self.image(image)

    def image(self, image: Image) -> Pixels:
        """Return the pixels of an RGB image, resized and cropped, (3, crop, crop)."""
        width = height = self.resize
        if self.mode == "centre":
            width, height = (int(self.resize * side / min(image.size)) for side in image.size)
        # Halves are rounded as in torchvision, which timm's transform uses.
        left, top = round((width - self.crop) / 2), round((height - self.crop) / 2)
        # Only the crop is resized; of a long strip nearly all pixels lie outside it.
        across, down = image.width / width, image.height / height
        right, bottom = (left + self.crop) * across, (top + self.crop) * down
        box = (left * across, top * down, min(right, image.width), min(bottom, image.height))
        return self._resized(image, self.crop, box)

    def square(self, image: Image) -> Pixels:
        """Return the pixels of an RGB image, resized to a square for random crops in training, (3, resize, resize)."""
        return self._resized(image, self.resize, (0, 0, image.width, image.height))

    def normalise(self, pixels: Tensor) -> Tensor:
        """Normalise uint8 pixels (n_images, 3, height, width); return float32 of the same shape, device and layout."""
        mean, std = (torch.tensor(of, device=pixels.device).mul(255).view(3, 1, 1) for of in (self.mean, self.std))
        return pixels.float().sub_(mean).div_(std)

    def _resized(self, image: Image, side: int, box: tuple[float, float, float, float]) -> Pixels:
        from PIL.Image import Resampling

        resized = image.resize((side, side), Resampling[self.interpolation.upper()], box=box)
        return np.asarray(resized, dtype=np.uint8).transpose(2, 0, 1)
