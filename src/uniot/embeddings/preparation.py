"""How an image becomes what a network was trained on: resized, cropped, normalised."""

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

from uniot.data.decoding import decode
from uniot.errors import DataError, RunFolderError
from uniot.stored_tensors import MAKE_AGAIN

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]

# Raised whenever the same settings would give other pixels, so that stored embeddings are made again.
_VERSION = 1
# Pixels of a side that any network takes; those of timm take at most a thousand.
_MOST_SIDE = 8192


@dataclass(frozen=True)
class Preparation:
    """The evaluation transform of a network.

    Attributes:
        resize: pixels of the shorter side after resizing; of both sides where `mode` is "squash".
        crop: pixels of both sides of the square cut from the middle.
        mean: of the red, green and blue of the pretraining, between 0 and 1.
        std: likewise.
        interpolation: name of a filter of Pillow's in small letters.
        mode: "centre" keeps the proportions, "squash" does not.
    """

    resize: int = 256
    crop: int = 224
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = "bicubic"
    mode: Literal["centre", "squash"] = "centre"

    @classmethod
    def of_timm(cls, pretrained_cfg: Mapping[str, Any]) -> Preparation:
        """What timm's own evaluation transform does, from the `pretrained_cfg` of a network of timm."""
        from uniot.embeddings.timm_import import import_timm

        config = import_timm().data.resolve_data_config(pretrained_cfg=dict(pretrained_cfg))
        _, height, width = config["input_size"]
        modes: dict[str, Literal["centre", "squash"]] = {"center": "centre", "squash": "squash"}
        if height != width or config["crop_mode"] not in modes:
            raise DataError(
                f"{pretrained_cfg.get('architecture', 'this network')} takes images of {width} × {height} pixels, cut "
                f"in the mode {config['crop_mode']!r}; squares in the modes {', '.join(map(repr, modes))} can be "
                "prepared. Choose another backbone."
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
        """What `to_dict` gave, from a file.

        Raises:
            RunFolderError: it is something else.
        """
        try:
            found = TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            raise RunFolderError(
                f"{path} prepares images in a way that is not known ({place}: {problem['msg'].lower()}). {MAKE_AGAIN}"
            ) from None
        deviations_fit = all(0 < value < np.inf for value in found.std) and np.isfinite(found.mean).all()
        if not (1 <= found.crop <= found.resize <= _MOST_SIDE and deviations_fit):
            raise RunFolderError(
                f"{path} prepares images by resizing to {found.resize} and cropping to {found.crop} pixels, with mean "
                f"{found.mean} and deviation {found.std}; expected were at most {_MOST_SIDE} pixels and finite "
                f"numbers. {MAKE_AGAIN}"
            )
        return found

    def __post_init__(self) -> None:
        # From JSON they come as lists.
        object.__setattr__(self, "mean", tuple(self.mean))
        object.__setattr__(self, "std", tuple(self.std))

    def to_dict(self) -> dict[str, Any]:
        """Its attributes, for JSON; `Preparation(**values)` is the same again."""
        return asdict(self)

    @property
    def key(self) -> str:
        """Names everything that decides the numbers which the network gets."""
        numbers = ",".join(f"{value:g}" for value in (*self.mean, *self.std))
        return f"v{_VERSION} {self.mode} {self.resize} {self.crop} {self.interpolation} {numbers}"

    def read(self, data: bytes) -> Pixels:
        """The pixels of an encoded image, shape (3, crop, crop).

        Raises:
            UnreadableImage: nothing can be made of `data`.
        """
        # A photograph is decoded at no more than twice the size that is needed, several times as fast.
        return self.image(decode(data, shortest_side=2 * self.resize))

    def image(self, image: Image) -> Pixels:
        """The pixels of an RGB image, shape (3, crop, crop)."""
        width = height = self.resize
        if self.mode == "centre":
            width, height = (int(self.resize * side / min(image.size)) for side in image.size)
        # Rounds halves as torchvision does, of which timm's transform is made.
        left, top = round((width - self.crop) / 2), round((height - self.crop) / 2)
        # Pixels that would be cut off are not computed; of a long strip that would be nearly all.
        across, down = image.width / width, image.height / height
        right, bottom = (left + self.crop) * across, (top + self.crop) * down
        box = (left * across, top * down, min(right, image.width), min(bottom, image.height))
        return self._resized(image, self.crop, box)

    def square(self, image: Image) -> Pixels:
        """All of an RGB image without regard to its proportions, shape (3, resize, resize), for crops in training."""
        return self._resized(image, self.resize, (0, 0, image.width, image.height))

    def normalise(self, pixels: Tensor) -> Tensor:
        """Batches of uint8 pixels as the network takes them; on the device and in the layout that they come in."""
        mean, std = (torch.tensor(of, device=pixels.device).mul(255).view(3, 1, 1) for of in (self.mean, self.std))
        return pixels.float().sub_(mean).div_(std)

    def _resized(self, image: Image, side: int, box: tuple[float, float, float, float]) -> Pixels:
        from PIL.Image import Resampling

        resized = image.resize((side, side), Resampling[self.interpolation.upper()], box=box)
        return np.asarray(resized, dtype=np.uint8).transpose(2, 0, 1)
