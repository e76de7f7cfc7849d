"""From image files to what a method takes, and back from a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from uniot.embeddings.backbones import Backbone, Split, empty_backbone, load_backbone
from uniot.embeddings.preparation import Preparation
from uniot.embeddings.timm_import import import_timm
from uniot.errors import RunFolderError
from uniot.run_folder import describe_tensors, read_tensors, write_tensors
from uniot.settings import ImageSettings
from uniot.stored_tensors import MAKE_AGAIN, StoredTensors, check_sizes


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
        return cls.outlined(path).filled(path)

    @classmethod
    def outlined(cls, path: Path) -> ImageReader:
        """Return the reader without its weights, on the meta device, after comparing their sizes with the file's.

        Nothing is allocated for a network that the file does not hold.

        Raises:
            RunFolderError: the file is damaged, or does not hold the weights of the network that it names.
        """
        outline, about = describe_tensors(path)
        images, digest = about.get("images"), about.get("digest")
        if not isinstance(images, dict) or not isinstance(digest, str):
            raise RunFolderError(f"{path} does not say which network it holds. {MAKE_AGAIN}")
        settings = ImageSettings.checked(**images)
        import_timm()  # which defines operators, and must not do so on the meta device
        with torch.device("meta"):
            reader = cls._empty(settings, Preparation.stored(path, about.get("preparation")), digest)
        check_sizes(
            str(path),
            reader.split.trunk,
            outline,
            f"If this version of timm builds {settings.backbone} otherwise, install the one that made the run.",
        )
        return reader

    def filled(self, path: Path) -> ImageReader:
        """Return an outlined reader with the weights of its trunk from the file."""
        tensors, _ = read_tensors(path)
        StoredTensors(str(path), tensors).check_finite()
        reader = self._empty(self.settings, self.preparation, self.backbone.digest)
        reader.split.trunk.load_state_dict(tensors)
        return reader

    @classmethod
    def _empty(cls, settings: ImageSettings, preparation: Preparation, digest: str) -> ImageReader:
        backbone = empty_backbone(settings.backbone, preparation, digest)
        return cls(settings, backbone, backbone.split(settings.fine_tune, flip=settings.flip))
