"""From image files to what a method takes, and back from a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import nn

from uniot.embeddings.backbones import Backbone, Split, load_backbone
from uniot.embeddings.preparation import Preparation
from uniot.errors import RunFolderError
from uniot.run_folder import read_tensors, write_tensors
from uniot.settings import ImageSettings


@dataclass(frozen=True)
class ImageReader:
    """A backbone, cut where training begins: the trunk is computed once an image, the tail is trained.

    Attributes:
        settings: backbone, its views of an image, and what of it is trained.
        backbone: the network as it was pretrained, and how it wants its images.
        split: trunk and tail.
    """

    settings: ImageSettings
    backbone: Backbone
    split: Split

    @classmethod
    def open(cls, settings: ImageSettings) -> ImageReader:
        """The pretrained backbone that the settings name."""
        weights = None if settings.weights is None else Path(settings.weights)
        backbone = load_backbone(settings.backbone, weights)
        return cls(settings, backbone, backbone.split(settings.fine_tune, flip=settings.flip))

    @property
    def fine_tunes(self) -> bool:
        """Whether a part of the backbone is trained."""
        return self.settings.fine_tune != "none"

    @property
    def tail(self) -> nn.Module:
        """The part that is trained; does nothing where none is."""
        return self.split.tail

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return self.backbone.width

    @property
    def preparation(self) -> Preparation:
        """How an image is brought to the backbone's size."""
        return self.backbone.preparation

    def save(self, path: Path) -> None:
        """Writes the trunk; the tail's weights are the method's own."""
        about = {
            "images": self.settings.model_dump(),
            "preparation": self.preparation.to_dict(),
            "digest": self.backbone.digest,
        }
        write_tensors(path, self.split.trunk.state_dict(), about)

    @classmethod
    def load(cls, path: Path) -> ImageReader:
        """What `save` wrote. The weights of the tail are those of the method, which loads them itself."""
        tensors, about = read_tensors(path)
        settings = ImageSettings.checked(**cast(dict[str, Any], about["images"]))
        preparation = Preparation(**cast(dict[str, Any], about["preparation"]))
        empty = load_backbone(settings.backbone, pretrained=False)
        backbone = Backbone(
            settings.backbone, empty.network, preparation, empty.width, digest=cast(str, about["digest"])
        )
        split = backbone.split(settings.fine_tune, flip=settings.flip)
        try:
            split.trunk.load_state_dict(tensors)
        except RuntimeError as error:
            raise RunFolderError(
                f"{path} does not hold the weights of {settings.backbone} as this version of timm builds it "
                f"({str(error).splitlines()[0]}). Install the version of timm that the run was made with."
            ) from None
        return cls(settings, backbone, split)
