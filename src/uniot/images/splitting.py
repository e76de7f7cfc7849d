"""Cut a network into a frozen trunk and a trained tail."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from uniot.errors import SettingsError

if TYPE_CHECKING:
    from uniot.images.preparation import Preparation

Cut = Literal["none", "last", "all"]
"""Part of a network that is trained."""


@dataclass(frozen=True, eq=False)
class Split:
    """A backbone cut in two: `tail(trunk(x))` is the embedding, that of the whole network but for rounding.

    Both parts stay in evaluation mode: normalisation keeps the statistics of the pretraining. They are copies that
    share no weights with the backbone.

    Attributes:
        name: name of the backbone.
        cut: part that is trained: "none", "last" or "all".
        build: returns trunk and tail; called when one of them is first used.
        preparation: transform of the images that the trunk takes.
        flip: whether the trunk averages over an image and its mirror image.
        stored_digest: digest of the trunk that `build` returns, if it is known before.
    """

    name: str
    cut: Cut
    build: Callable[[], tuple[nn.Module, nn.Module]] = field(repr=False)
    preparation: Preparation
    flip: bool = False
    stored_digest: str | None = None

    @cached_property
    def _parts(self) -> tuple[nn.Module, nn.Module]:
        return self.build()

    @property
    def trunk(self) -> nn.Module:
        """Return the frozen part, whose outputs an `EmbeddingStore` can keep."""
        return self._parts[0]

    @property
    def tail(self) -> nn.Module:
        """Return the trained part."""
        return self._parts[1]

    @property
    def is_built(self) -> bool:
        """Return whether the parts are there, or have to be; otherwise the stored digest is enough for the graph."""
        return self.stored_digest is None or "_parts" in vars(self)

    @property
    def device(self) -> torch.device:
        """Return the device of the trunk."""
        return device_of(self.trunk) if self.is_built else torch.device("cpu")

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the backbone's name and of the trunk's current weights."""
        return sorted_digest(self.name, self.trunk.state_dict()) if self.is_built else str(self.stored_digest)

    @property
    def made_by(self) -> str:
        """Return a key of everything that determines the trunk's output for an image, but for rounding."""
        views = ", averaged with their mirror images" if self.flip else ""
        return f"{self.name} {self.digest} cut {self.cut}, images {self.preparation.key}{views}"


class Part(nn.Sequential):
    """A part of a network, which stays in evaluation mode.

    In training too, normalisation uses the statistics of the pretraining, and dropout is off.
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__(OrderedDict(layers))
        self.eval()

    def train(self, mode: bool = True) -> Part:
        """Stay in evaluation mode; return the part itself."""
        return super().train(False)


class FlipAveraged(Part):
    """A network whose embeddings are averaged over an image and its mirror image.

    Its weights have the same names as without averaging.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__({"network": network})

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (n_images, width) of images (n_images, 3, height, width)."""
        # Two passes, because both in one batch would take twice the memory.
        embeddings: Tensor = self[0](images)
        mirrored: Tensor = self[0](images.flip(-1))
        return (embeddings + mirrored) / 2


@dataclass(frozen=True)
class _Family:
    """The layers of a network family in forward order; the tail begins with the last of `stages`."""

    before: tuple[str, ...]
    stages: str
    after: tuple[str, ...]

    def parts(self, network: nn.Module) -> tuple[Part, Part]:
        """Return trunk and tail of a network of the family."""
        stages: nn.Sequential = getattr(network, self.stages)
        before = {name: getattr(network, name) for name in self.before}
        after = {name: getattr(network, name) for name in self.after}
        return Part({**before, self.stages: stages[:-1]}), Part({self.stages: stages[-1:], **after})


_FAMILIES = {
    "EfficientNet": _Family(("conv_stem", "bn1"), "blocks", ("conv_head", "bn2", "global_pool")),
    "MobileNetV3": _Family(
        ("conv_stem", "bn1"), "blocks", ("global_pool", "conv_head", "norm_head", "act2", "flatten")
    ),
    "ConvNeXt": _Family(("stem",), "stages", ("norm_pre", "head")),
}
_RESNET = (("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3"), ("layer4", "global_pool"))


def cut_network(network: nn.Module, cut: Cut, name: str, *, flip: bool = False) -> tuple[nn.Module, nn.Module]:
    """Cut a network of timm without a classifier in two; the parts take over its layers.

    Args:
        network: the network.
        cut: part that is trained: "none", "last" (the last stage and what follows it) or "all".
        name: name of the network, for error messages.
        flip: whether the trunk averages over an image and its mirror image.

    Returns:
        The frozen trunk and the trained tail.

    Raises:
        SettingsError: `cut` is "last" and the stages of the network are not known; or `flip` with a trained part.
    """
    if flip and cut != "none":
        raise SettingsError(
            f"flip averages the embeddings of a frozen network, and fine_tune is {cut!r}: training uses one view of an "
            "image at a time. Set fine_tune to 'none', or flip to false."
        )
    if flip:
        return FlipAveraged(network), nn.Identity()
    if cut == "none":
        return Part({"network": network}), nn.Identity()
    if cut == "all":
        return nn.Identity(), Part({"network": network})
    # The exact class: a subclass may have another forward pass.
    family = type(network).__name__ if type(network).__module__.startswith("timm.models.") else ""
    if family in _FAMILIES:
        return _FAMILIES[family].parts(network)
    if family == "ResNet":
        trunk, tail = (Part({layer: getattr(network, layer) for layer in layers}) for layers in _RESNET)
        return trunk, tail
    if family == "VisionTransformer":
        return _parts_of_transformer(network)
    raise SettingsError(
        f"fine_tune is 'last', but it is not known where the last stage of {name} begins: its class is "
        f"{type(network).__name__}, and the known ones are {', '.join([*_FAMILIES, 'ResNet', 'VisionTransformer'])}. "
        "Set fine_tune to 'none' or 'all', or choose another backbone."
    )


def _parts_of_transformer(network: Any) -> tuple[Part, Part]:
    blocks: nn.Sequential = network.blocks
    first = len(blocks) - max(1, len(blocks) // 4)
    trunk = Part({"tokens": _Tokens(network), "blocks": blocks[:first]})
    return trunk, Part({"blocks": blocks[first:], "norm": network.norm, "pool": _Pool(network)})


class _Tokens(nn.Module):
    """A vision transformer up to its first block."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = _without(network, "blocks", "norm", "attn_pool", "fc_norm", "head")

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of images, (n_images, n_tokens, width)."""
        network = self.network
        tokens: Tensor = network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(images))))
        return tokens


class _Pool(nn.Module):
    """What follows the last norm of a vision transformer."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        inputs = ("patch_embed", "cls_token", "reg_token", "pos_embed", "norm_pre")
        self.network = _without(network, *inputs, "blocks", "norm")

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of tokens, (n_images, width)."""
        pooled: Tensor = self.network.forward_head(tokens)
        return pooled


def _without(network: Any, *names: str) -> Any:
    """Return a copy without the named layers and parameters, for steps that do not use them."""
    copy = deepcopy(network)
    for name in names:
        setattr(copy, name, nn.Identity() if isinstance(getattr(copy, name), nn.Module) else None)
    return copy


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's weights; the CPU if it has none."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def digest_of(name: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a network's name and of its weights in their order."""
    digest = hashlib.sha256(name.encode())
    for key, value in tensors.items():
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def sorted_digest(name: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the digest that does not depend on the order of the weights, which a file of tensors does not keep."""
    return digest_of(name, dict(sorted(tensors.items())))
